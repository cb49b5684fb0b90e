"""A request of the Open Inference Protocol -> its answer: the search of predict, tensors around it.

As with predict (`service.serving.answer`) one kernel reads, searches and writes sparse rows. What it does not
read, the models of `service.serving.schemas.oip` read, which refuse what is wrong. One kernel writes tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.errors import BadInput, BadRequest, LimitExceeded, UnsupportedOption
from service.features import Featurizer
from service.inference.answering import Predictions
from service.inference.prediction_json import spans_of
from service.inference.tensors_json import OUTPUTS, Tensors, form_of, tensors_json
from service.rows import SparseRows
from service.serving.answer import Answer, asked_of, is_short_of
from service.serving.parse import parse_json, validated
from service.serving.rows import to_options
from service.serving.schemas.limits import limit_fault
from service.serving.schemas.oip import InferParameters, InferRequest, InferTensor
from service.serving.schemas.predict import TUNED
from service.serving.served import ServedVersion
from service.serving.tensors import check_kind, divide_binary, numbers_of, texts_of
from service.serving.wire import dump
from service.settings import Limits
from service.stages import FEATURES, QUEUE, READ, SEARCH, WRITE, StageNotes

HEADER = "inference-header-content-length"
"""The header that says how many bytes of a body are JSON, where binary data follow."""

NOT_TAKEN = ("explain", "statistics", "language", "label_info", "chunk_characters")
"""Options of predict whose answers are no tensors, or that only predict and batches have."""

_HEADS_KEPT = 1024
_TEXT, _CSR = {"text"}, {"indptr", "indices", "values"}

Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


class InferQuery(NamedTuple):
    """A request that has been read.

    n_rows    its instances; n_items: characters or features of all of them
    texts     the instances, or None: they are the compressed sparse rows `csr`
    place     of the tensor of texts, for what is wrong with them
    outputs   those to answer with; each: whether as binary data
    identity  what the answer repeats
    """

    options: InferParameters
    n_rows: int
    n_items: int
    texts: list[str] | None
    csr: Arrays | None
    place: str
    outputs: dict[str, bool]
    identity: str | None


def parse_infer(body: bytes, header: str | None, limits: Limits) -> InferQuery:
    """Return the request that a body is; `header` is what HEADER says, None: the body is all JSON.

    Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, naming the place.
    """
    n_json = len(body) if header is None else _json_length(header, len(body))
    request = validated(parse_json(body[:n_json]), InferRequest, limits)
    options = request.parameters
    for name in NOT_TAKEN:
        if getattr(options, name):
            fault = "expected an option of infer, found one that only predict has"
            raise UnsupportedOption(fault).at(f"parameters.{name}")
    tensors = _by_name(request.inputs)
    binaries = divide_binary(request.inputs, body[n_json:])
    outputs = _outputs(request)
    if tensors.keys() == _TEXT:
        n_rows = check_kind(request.inputs[0], "inputs[0]")
        _check_counts(n_rows, options, limits)
        texts = texts_of(request.inputs[0], binaries[0], "inputs[0]", limits)
        n_items = sum(map(len, texts))
        return InferQuery(options, n_rows, n_items, texts, None, "inputs[0]", outputs, request.id)
    if tensors.keys() != _CSR:
        found = ", ".join(tensors)
        raise BadRequest(f"expected text, or indptr, indices and values, found {found}").at("inputs")
    n_rows = check_kind(request.inputs[tensors["indptr"]], f"inputs[{tensors['indptr']}]") - 1
    _check_counts(n_rows, options, limits)
    indptr, indices, values = (
        numbers_of(request.inputs[i], binaries[i], f"inputs[{i}]")
        for i in (tensors["indptr"], tensors["indices"], tensors["values"])
    )
    csr = indptr, indices.astype(np.int64), values
    _check_rows(csr, tensors, limits)
    return InferQuery(options, n_rows, len(indices), None, csr, "inputs", outputs, request.id)


def infer_now(
    message: bytes,
    start: int,
    header: str | None,
    served: ServedVersion,
    limits: Limits,
    notes: StageNotes,
) -> Answer | InferQuery:
    """Return the answer to the body message[start:], or the request that it is if that is for a thread.

    header  as `parse_infer` takes it
    notes   where it is noted when the stages end that the kernel does not count

    Event loop only. Raises as `parse_infer`, and BadInstance.
    """
    end = len(message)
    if header is not None:
        end = start + _json_length(header, end - start)
    epoch = served.thresholds.epoch
    found = served.sparse.answer_tensors(message, (start, end), served.ids.present())
    if found is not None and found.identity[1] - found.identity[0] <= limits.name_bytes_max:
        if notes.is_traced:
            notes.take_counted(served.sparse.times)
        first, last = found.identity
        identity = message[first - 1 : last + 1] if first else None
        return _answer(found.tensors, found.n_rows, found.is_tuned, identity, epoch, served)
    notes.begin()
    query = parse_infer(message[start:], header, limits)
    notes.end(READ)
    return infer_read(query, served, notes)


def infer_read(query: InferQuery, served: ServedVersion, notes: StageNotes) -> Answer | InferQuery:
    """Return the answer to a request that has been read, or the request if it is for a thread.

    Event loop only. Raises BadInstance.
    """
    return _answer_shortly(query, served, notes) or query


def _answer_shortly(query: InferQuery, served: ServedVersion, notes: StageNotes) -> Answer | None:
    """Return the answer if a thread would only delay it, else None. Event loop only."""
    items_each = 1 if query.texts is None else served.featurizer.items_a_character
    if not is_short_of(query.options, query.n_rows, (query.n_items * items_each,), served):
        return None
    rows = _rows_of(query, served.featurizer)
    notes.end(FEATURES)
    epoch = served.thresholds.epoch
    asked = asked_of(query.options, rows)
    if asked is not None:
        form = form_of(query.options.top_r, query.outputs)
        answered = served.sparse.rows_as_tensors(rows, *asked, form, served.ids.present())
        if answered is not None:
            if notes.is_traced:
                notes.take_counted(served.sparse.times)
            return _answer_of(query, answered.tensors, epoch, served)
    found = served.predictor.predict_shortly(rows, to_options(query.options, served))
    if found is None:
        return None
    notes.end(SEARCH)
    answer = _found_answer(query, found, epoch, served)
    notes.end(WRITE)
    return answer


def answer_infer(
    query: InferQuery,
    served: ServedVersion,
    stop: NDArray[np.uint8] | None = None,
    notes: StageNotes | None = None,
) -> Answer:
    """Return the answer, of the version that serves it; once `stop` is set, what is sure.

    notes   where it is noted when its stages end; the wait for this thread is the first
    """
    notes = notes or StageNotes()
    notes.end(QUEUE)
    rows = _rows_of(query, served.featurizer)
    notes.end(FEATURES)
    epoch = served.thresholds.epoch
    found = served.predictor.predict(rows, to_options(query.options, served, stop))
    notes.end(SEARCH)
    answer = _found_answer(query, found, epoch, served)
    notes.end(WRITE)
    return answer


def _found_answer(query: InferQuery, found: Predictions, epoch: int, served: ServedVersion) -> Answer:
    """Return the answer to a request whose rows the predictor searched."""
    form = form_of(query.options.top_r, query.outputs)
    return _answer_of(query, tensors_json(served.labels, form, spans_of(found)), epoch, served)


def _json_length(header: str, n_bytes: int) -> int:
    is_number = header.isascii() and header.isdigit() and len(header) < 20
    if not is_number or int(header) > n_bytes:
        found = f"{header[:40]!r}"
        raise BadRequest(f"expected at most the {n_bytes} bytes of the body, found {found}").at(HEADER)
    return int(header)


def _by_name(inputs: list[InferTensor]) -> dict[str, int]:
    """Return the place of each tensor. Raises BadRequest for two of a name, and for an unknown one."""
    places: dict[str, int] = {}
    for i, tensor in enumerate(inputs):
        check_kind(tensor, f"inputs[{i}]")
        if places.setdefault(tensor.name, i) != i:
            raise BadRequest(f"expected tensors of different names, found {tensor.name} twice").at(
                f"inputs[{i}].name"
            )
    return places


def _outputs(request: InferRequest) -> dict[str, bool]:
    """Return the outputs to answer with, and whether each comes as binary data."""
    binary = request.parameters.binary_data_output
    if not request.outputs:
        return dict.fromkeys(OUTPUTS, binary)
    wanted: dict[str, bool] = {}
    for i, output in enumerate(request.outputs):
        if output.name in wanted:
            raise BadRequest(f"expected outputs of different names, found {output.name} twice").at(
                f"outputs[{i}].name"
            )
        own = output.parameters.binary_data
        wanted[output.name] = binary if own is None else own
    return wanted


def _check_counts(n_rows: int, options: InferParameters, limits: Limits) -> None:
    """Raise BadRequest without an instance, and LimitExceeded for too many, or too many labels."""
    if n_rows < 1:
        raise BadRequest("expected at least one instance, found none").at("inputs")
    _check_limit(n_rows, "instances", "instances_max", limits, "inputs")
    _check_limit(n_rows * options.top_r, "labels asked for", "answer_labels_max", limits, "parameters.top_r")


def _check_rows(csr: Arrays, places: Mapping[str, int], limits: Limits) -> None:
    """Raise BadRequest unless indptr divides the elements into rows, LimitExceeded for too long a one."""
    indptr, indices, values = csr
    n = len(indices)
    if len(values) != n:
        fault = f"expected as many values as indices, {n}, found {len(values)}"
        raise BadRequest(fault).at(f"inputs[{places['values']}].shape")
    if indptr[0] != 0 or indptr[-1] != n or (indptr[1:] < indptr[:-1]).any():
        raise BadRequest(f"expected indptr to ascend from 0 to the {n} indices, found another").at(
            f"inputs[{places['indptr']}]"
        )
    sizes = np.diff(indptr)
    longest = int(sizes.argmax())
    _check_limit(int(sizes[longest]), "features", "features_max", limits, f"rows[{longest}]")


def _check_limit(found: int, what: str, limit: str, limits: Limits, place: str) -> None:
    fault = limit_fault(found, what, limit, limits)
    if fault is not None:
        raise LimitExceeded(fault).at(place)


def _rows_of(query: InferQuery, featurizer: Featurizer) -> SparseRows:
    """Return the rows of the instances. Raises BadInstance for what the model does not take."""
    try:
        if query.csr is None:
            return featurizer.transform_texts(query.texts or [])
        return featurizer.transform_csr(*query.csr)
    except BadInput as error:
        within = (error.path or "").replace("instances", "rows", 1)
        raise error.at(within or query.place) from None


def _answer_of(query: InferQuery, tensors: Tensors, epoch: int, served: ServedVersion) -> Answer:
    """Return the answer to a request that was read by its models."""
    identity = None if query.identity is None else dump(query.identity)
    return _answer(tensors, query.n_rows, query.options.threshold == TUNED, identity, epoch, served)


def _answer(
    tensors: Tensors, n_rows: int, is_tuned: bool, identity: bytes | None, epoch: int, served: ServedVersion
) -> Answer:
    """Return an answer's parts, an InferAnswer and the binary data; `identity` is the JSON of its id."""
    head = _head(served.name, served.version, epoch)
    tail = b"]}" if identity is None else b'],"id":%b}' % identity
    if not tensors.binary:
        return Answer((head, tensors.json, tail), n_rows, is_tuned)
    n_json = len(head) + len(tensors.json) + len(tail)
    return Answer((head, tensors.json, tail, tensors.binary), n_rows, is_tuned, n_json)


@functools.lru_cache(_HEADS_KEPT)
def _head(model: str, version: int, epoch: int) -> bytes:
    """Return what stands before the outputs of an InferAnswer."""
    shown = b',"threshold_epoch":%d' % epoch if epoch else b""
    head = b'{"model_name":"%b","model_version":"%d","parameters":{"version":%d%b},"outputs":['
    return head % (model.encode(), version, version, shown)
