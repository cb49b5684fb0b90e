"""A request of the Open Inference Protocol -> its answer: the search of predict, tensors around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable
from service.errors import BadInput, BadRequest, LimitExceeded, UnsupportedOption
from service.features import Featurizer
from service.inference.answering import Predictions
from service.rows import SparseRows
from service.serving.answer import is_short_of
from service.serving.parse import parse_json, validated
from service.serving.rows import to_options
from service.serving.schemas.limits import limit_fault
from service.serving.schemas.oip import (
    OUTPUTS,
    InferAnswer,
    InferAnswerParameters,
    InferParameters,
    InferRequest,
    InferTensor,
    OutputTensor,
)
from service.serving.schemas.predict import TUNED
from service.serving.served import ServedVersion
from service.serving.tensors import check_kind, divide_binary, join_bytes, numbers_of, texts_of
from service.serving.wire import dump
from service.settings import Limits
from service.stages import FEATURES, QUEUE, SEARCH, WRITE, StageNotes

HEADER = "inference-header-content-length"
"""The header that says how many bytes of a body are JSON, where binary data follow."""

NOT_TAKEN = ("explain", "statistics", "language", "label_info")
"""Options of predict whose answers are no tensors."""

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


class InferAnswered(NamedTuple):
    """An answer: its bytes, and how many of them are JSON, None: all."""

    body: bytes
    n_json: int | None


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


def infer_now(query: InferQuery, served: ServedVersion, notes: StageNotes) -> InferAnswered | None:
    """Return the answer if a thread would only delay it, else None. Event loop only.

    notes   where it is noted when its stages end
    """
    if not is_short_of(query.options, query.n_rows, (query.n_items,), served):
        return None
    rows = _rows_of(query, served.featurizer)
    notes.end(FEATURES)
    epoch = served.thresholds.epoch
    found = served.predictor.predict_shortly(rows, to_options(query.options, served))
    if found is None:
        return None
    notes.end(SEARCH)
    answer = _write(query, found, epoch, served)
    notes.end(WRITE)
    return answer


def answer_infer(
    query: InferQuery,
    served: ServedVersion,
    stop: NDArray[np.uint8] | None = None,
    notes: StageNotes | None = None,
) -> InferAnswered:
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
    answer = _write(query, found, epoch, served)
    notes.end(WRITE)
    return answer


def is_tuned(query: InferQuery) -> bool:
    """Return whether a request is for tuned thresholds."""
    return query.options.threshold == TUNED


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


def _write(query: InferQuery, found: Predictions, epoch: int, served: ServedVersion) -> InferAnswered:
    """Return the answer's bytes."""
    shape = query.n_rows, query.options.top_r
    counts = np.diff(found.ptr)
    make: dict[str, Callable[[], Any]] = {
        "labels": lambda: _padded_names(served.labels, found, shape),
        "label_ids": lambda: _padded(found.labels, counts, shape, -1),
        "scores": lambda: _padded(found.scores, counts, shape, 0),
        "lengths": lambda: counts.astype(np.int32),
        "exact": lambda: found.exact.astype(np.bool_),
    }
    parameters: InferAnswerParameters = {"version": served.version}
    if epoch:
        parameters["threshold_epoch"] = epoch
    outputs: list[OutputTensor] = []
    binaries: list[bytes] = []
    for name, is_binary in query.outputs.items():
        data = make[name]()
        is_one = name in ("lengths", "exact")
        output: OutputTensor = {
            "name": name,
            "shape": [shape[0]] if is_one else list(shape),
            "datatype": OUTPUTS[name],
        }
        if is_binary:
            binaries.append(join_bytes(data) if isinstance(data, list) else data.tobytes())
            output["parameters"] = {"binary_data_size": len(binaries[-1])}
        else:
            output["data"] = [each.decode() for each in data] if isinstance(data, list) else data
        outputs.append(output)
    answer: InferAnswer = {
        "model_name": served.name,
        "model_version": str(served.version),
        "parameters": parameters,
        "outputs": outputs,
    }
    if query.identity is not None:
        answer["id"] = query.identity
    head = dump(answer)
    return InferAnswered(b"".join([head, *binaries]), len(head) if binaries else None)


def _padded(flat: NDArray[Any], counts: NDArray[np.int64], shape: tuple[int, int], fill: int) -> NDArray[Any]:
    """Return the elements row by row, flat, `fill` in places that are not used."""
    n_rows, top_r = shape
    if len(flat) == n_rows * top_r:
        return flat
    padded = np.full(shape, fill, flat.dtype)
    padded[np.arange(top_r) < counts[:, None]] = flat
    return padded.reshape(-1)


def _padded_names(names: NameTable, found: Predictions, shape: tuple[int, int]) -> list[bytes]:
    """Return the names of the labels row by row, flat, nothing in places that are not used."""
    ids = found.labels
    starts, ends = names.offsets[ids].tolist(), names.offsets[ids + 1].tolist()
    utf8 = names.utf8.data
    flat = [bytes(utf8[start:end]) for start, end in zip(starts, ends, strict=True)]
    n_rows, top_r = shape
    if len(flat) == n_rows * top_r:
        return flat
    padded = [b""] * (n_rows * top_r)
    ptr = found.ptr.tolist()
    for row in range(n_rows):
        start, end = ptr[row], ptr[row + 1]
        padded[row * top_r : row * top_r + end - start] = flat[start:end]
    return padded
