"""The dialect of the Open Inference Protocol: tensors in JSON, or as binary data behind the JSON.

Binary data are little-endian; an element of BYTES is its length as uint32, then its bytes.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from xylem.base import BadInput, BadRequest, Limits, UnsupportedOption, what_is
from xylem.engine import (
    AS_TENSORS,
    OUTPUTS,
    FastAnswer,
    Featurizer,
    Predictions,
    PredictOptions,
    form_of,
    spans_of,
    tensors_json,
)
from xylem.serving.answer import SearchDialect
from xylem.serving.dialect import Body, Query, Reply
from xylem.serving.lines import dump
from xylem.serving.parse import parse_json, validated
from xylem.serving.rows import ChunkedRows
from xylem.serving.schemas.limits import refuse_beyond, utf8_length
from xylem.serving.schemas.oip import (
    INPUTS,
    InferParameters,
    InferRequest,
    InferTensor,
    RequestedOutput,
)
from xylem.serving.schemas.predict import TUNED
from xylem.serving.served import ServedVersion
from xylem_store import name_of

_DTYPES = {
    name: np.dtype(kind) for name, kind in (("INT64", "<i8"), ("INT32", "<i4"), ("FP32", "<f4"))
}
_ELEMENTS: dict[str, tuple[frozenset[type], str]] = {
    "BYTES": (frozenset({str}), "a string"),
    "INT64": (frozenset({int}), "an integer"),
    "INT32": (frozenset({int}), "an integer"),
    "FP32": (frozenset({int, float}), "a number"),
}


def divide_binary(tensors: Sequence[InferTensor], binary: bytes) -> list[bytes | None]:
    """Return the binary data of each tensor; None for a tensor whose data are in the JSON.

    Raises BadRequest if a tensor has both or neither, or if the sizes do not add up to those of
    `binary`.
    """
    parts: list[bytes | None] = []
    start = 0
    for i, tensor in enumerate(tensors):
        size = tensor.parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            fields_present = "neither" if size is None else "both"
            raise BadRequest(f"expected data or binary_data_size, found {fields_present}").at(
                f"inputs[{i}]"
            )
        if size is None:
            parts.append(None)
            continue
        if start + size > len(binary):
            raise BadRequest(
                f"expected the {size} bytes of binary_data_size, found {len(binary) - start}"
            ).at(f"inputs[{i}].parameters.binary_data_size")
        parts.append(binary[start : start + size])
        start += size
    if start != len(binary):
        raise BadRequest(f"expected {start} bytes of binary data in all, found {len(binary)}").at(
            "inputs"
        )
    return parts


def check_kind(tensor: InferTensor, place: str) -> None:
    """Raise BadRequest unless a tensor is one of INPUTS, with the right type and shape."""
    datatype = INPUTS.get(tensor.name)
    if datatype is None:
        raise BadRequest(f"expected one of {', '.join(INPUTS)}, found {what_is(tensor.name)}").at(
            f"{place}.name"
        )
    if tensor.datatype != datatype:
        raise BadRequest(f"expected {datatype}, found {what_is(tensor.datatype)}").at(
            f"{place}.datatype"
        )
    shape = tensor.shape
    if len(shape) == 2 and (tensor.name != "text" or shape[1] != 1):
        expected = "[n] or [n, 1]" if tensor.name == "text" else "[n]"
        raise BadRequest(f"expected a shape {expected}, found {shape}").at(f"{place}.shape")


def numbers_of(tensor: InferTensor, binary: bytes | None, place: str) -> NDArray[Any]:
    """Return the elements of a tensor of numbers. Raises BadRequest if they do not fit it."""
    dtype = _DTYPES[tensor.datatype]
    n = tensor.shape[0]
    if binary is not None:
        if len(binary) != n * dtype.itemsize:
            expected = (
                f"expected {n * dtype.itemsize} bytes, {dtype.itemsize} for each of {n} elements"
            )
            raise BadRequest(f"{expected}, found {len(binary)}").at(
                f"{place}.parameters.binary_data_size"
            )
        return np.frombuffer(binary, dtype)
    data = _elements(tensor, place)
    try:
        if dtype.kind != "f":
            return np.array(data, dtype)
        # numbers beyond 32 bits become infinite, and are refused as such
        with np.errstate(over="ignore"):
            return np.array(data, np.float64).astype(dtype)
    except OverflowError:
        fault = f"expected numbers of {tensor.datatype}, found one beyond them"
        raise BadRequest(fault).at(f"{place}.data") from None


def texts_of(tensor: InferTensor, binary: bytes | None, place: str, limits: Limits) -> list[str]:
    """Return the elements of a tensor of texts.

    Raises BadRequest if they do not fit the tensor, and LimitExceeded for a text that is too long.
    """
    texts = (
        _elements(tensor, place) if binary is None else binary_texts(binary, tensor.shape[0], place)
    )
    for i, text in enumerate(texts):
        refuse_beyond(
            utf8_length(text), "bytes of text", "text_bytes_max", limits, f"{place}.data[{i}]"
        )
    return texts


def _elements(tensor: InferTensor, place: str) -> list[Any]:
    """Return the data of a tensor from the JSON, flat. Raises BadRequest if they do not fit it."""
    data = tensor.data or []
    if len(tensor.shape) == 2 and set(map(type, data)) == {list}:
        wrong = next((i for i, row in enumerate(data) if len(row) != 1), None)
        if wrong is not None:
            fault = f"expected an array of 1, found {what_is(data[wrong])}"
            raise BadRequest(fault).at(f"{place}.data[{wrong}]")
        data = list(chain.from_iterable(data))
    types, expected = _ELEMENTS[tensor.datatype]
    if not types.issuperset(map(type, data)):
        i = next(i for i, value in enumerate(data) if type(value) not in types)
        raise BadRequest(f"expected {expected}, found {what_is(data[i])}").at(f"{place}.data[{i}]")
    if len(data) != tensor.shape[0]:
        expected = f"expected {tensor.shape[0]} elements, as the shape says"
        raise BadRequest(f"{expected}, found {len(data)}").at(f"{place}.data")
    return data


def binary_texts(binary: bytes, n: int, place: str) -> list[str]:
    """Return n texts, each of which follows its length in `binary`.

    Raises BadRequest, which names the place, if `binary` holds anything else.
    """
    texts: list[str] = []
    start = 0
    place = f"{place}.data"
    while start < len(binary) and len(texts) < n:
        begin = start + 4  # after its length
        start = begin + int.from_bytes(binary[start:begin], "little")
        if start > len(binary) or begin > len(binary):
            fault = (
                f"expected {start - begin} bytes of element {len(texts)}, found "
                f"{len(binary) - begin}"
            )
            raise BadRequest(fault).at(place)
        try:
            texts.append(binary[begin:start].decode())
        except UnicodeDecodeError as error:
            fault = (
                f"expected UTF-8, found byte {binary[begin + error.start]:#04x} at {error.start}"
            )
            raise BadRequest(fault).at(f"{place}[{len(texts)}]") from None
    if len(texts) != n or start != len(binary):
        elements = f"{len(texts)}, and {len(binary) - start} bytes behind them"
        raise BadRequest(f"expected {n} elements, as the shape says, found {elements}").at(place)
    return texts


HEADER = "inference-header-content-length"
"""The header that says how many bytes of a body are JSON, where binary data follow."""

NOT_TAKEN = ("explain", "statistics", "language", "label_info", "chunk_characters")
"""Options of predict that infer refuses.

Their answers are no tensors, or only predict and batches have them.
"""

_ITEMS_MAX = 1 << 20  # elements of a tensor in a long JSON body; more must be binary data
_TEXT = {"text"}
_CSR = {"indptr", "indices", "values"}

Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


@dataclass(frozen=True)
class InferQuery(Query):
    """A request of infer that has been read.

    texts     the instances; None if they are in `csr`
    csr       the instances as compressed sparse rows (indptr, indices, values), or None
    outputs   the tensors to answer with, and for each whether as binary data
    identity  the id that the answer repeats
    """

    options: InferParameters
    n_rows: int
    texts: list[str] | None
    csr: Arrays | None
    outputs: dict[str, bool]
    identity: str | None

    def n_items(self, featurizer: Featurizer) -> int:
        """Return its size in items: characters or features.

        A character counts as often as the featurizer says.
        """
        if self.csr is not None:
            return len(self.csr[1])
        return featurizer.items_a_character * sum(map(len, self.texts or ()))

    def to_rows(self, featurizer: Featurizer) -> ChunkedRows:
        """Return the rows of the instances. Raises BadInstance if the model does not take one."""
        try:
            if self.csr is None:
                rows = featurizer.transform_texts(self.texts or [])
            else:
                rows = featurizer.transform_csr(*self.csr)
        except BadInput as error:
            rows_path = (error.path or "").replace("instances", "rows", 1)
            raise error.at(rows_path or ("inputs[0]" if self.csr is None else "inputs")) from None
        return ChunkedRows(rows, None, [])

    def form(self) -> NDArray[np.int64]:
        """Return which tensors the answer has."""
        return form_of(self.options.top_r, self.outputs)

    def write(
        self,
        predictions: Predictions,
        chunked: ChunkedRows,
        options: PredictOptions,
        epoch: int,
        served: ServedVersion,
    ) -> FastAnswer:
        """Write the output tensors."""
        json, binary = tensors_json(served.labels, self.form(), spans_of(predictions))
        return FastAnswer(self.n_rows, json, self.options.threshold == TUNED, binary, self.identity)

    def compared(self) -> Query:
        """Return the request with the names of labels as its only output."""
        return replace(self, outputs={"labels": False})


class TensorDialect(SearchDialect):
    """Reads and answers requests of tensors: JSON, or JSON with binary data behind it.

    Clients that send binary data name the type application/octet-stream, or none.
    """

    media = frozenset({b"application/json", b"application/octet-stream", b""})
    header = HEADER
    writer = AS_TENSORS

    def span(self, body: Body) -> tuple[int, int] | None:
        """Return where the JSON begins and ends in the message; the header says how long it is."""
        start = body.start
        return start, start + _json_length(body.header_or_query or "", len(body.message) - start)

    def wrap(self, fast_answer: FastAnswer, epoch: int, served: ServedVersion) -> Reply:
        """Return an InferAnswer, and the binary data behind it."""
        head = _head(served.name, served.version, epoch)
        tail = b"]}" if fast_answer.identity is None else b'],"id":%b}' % dump(fast_answer.identity)
        if not fast_answer.binary:
            return Reply((head, fast_answer.json, tail), fast_answer.n_rows, fast_answer.is_tuned)
        n_json = len(head) + len(fast_answer.json) + len(tail)
        return Reply(
            (head, fast_answer.json, tail, fast_answer.binary),
            fast_answer.n_rows,
            fast_answer.is_tuned,
            n_json,
        )

    def read(self, body: Body, limits: Limits) -> Query:
        """Read a body."""
        return parse_infer(body.content, body.header_or_query, limits)

    def first_labels(
        self, reply: bytes, n_json: int | None, n_max: int, served: ServedVersion
    ) -> list[list[str]]:
        """Return the names of the first labels, read from an answer.

        They are in the tensor `labels`, or can be found by the tensor `label_ids`; none without
        either.
        """
        offset = len(reply) if n_json is None else n_json
        outputs: dict[str, list[list[Any]]] = {}
        for output in orjson.loads(reply[:offset])["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size", 0)
            name = output["name"]
            shape = output["shape"]
            binary = reply[offset : offset + size]
            offset += size
            if name not in ("labels", "label_ids"):
                continue
            n_rows, places = shape
            data = output.get("data")
            if data is None and name == "labels":
                data = binary_texts(binary, n_rows * places, name)
            elif data is None:
                data = np.frombuffer(binary, "<i4").tolist()
            outputs[name] = [
                data[row * places : (row + 1) * places][:n_max] for row in range(n_rows)
            ]
        if "labels" in outputs:
            return [[label for label in row if label] for row in outputs["labels"]]
        return [
            [name_of(served.labels, i) for i in row if i >= 0]
            for row in outputs.get("label_ids", ())
        ]


TENSORS = TensorDialect()


def parse_infer(body: bytes, header: str | None, limits: Limits) -> InferQuery:
    """Read a body.

    header  the value of the header HEADER; None: the body is all JSON

    Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, which name the place.
    """
    n_json = len(body) if header is None else _json_length(header, len(body))
    request = validated(parse_json(body[:n_json], limits, _ITEMS_MAX), InferRequest, limits)
    options = request.parameters
    for name in NOT_TAKEN:
        if getattr(options, name):
            fault = "expected an option of infer, found one that only predict has"
            raise UnsupportedOption(fault).at(f"parameters.{name}")
    for i, tensor in enumerate(request.inputs):
        check_kind(tensor, f"inputs[{i}]")
    places = _by_name(request.inputs, "tensors", "inputs")
    binaries = divide_binary(request.inputs, body[n_json:])
    outputs = _outputs(request)
    if places.keys() not in (_TEXT, _CSR):
        names = ", ".join(places)
        raise BadRequest(f"expected text, or indptr, indices and values, found {names}").at(
            "inputs"
        )
    n_rows = (
        request.inputs[0].shape[0]
        if "text" in places
        else request.inputs[places["indptr"]].shape[0] - 1
    )
    if n_rows < 1:
        raise BadRequest("expected at least one instance, found none").at("inputs")
    refuse_beyond(n_rows, "instances", "instances_max", limits, "inputs")
    n_labels = n_rows * options.top_r
    refuse_beyond(n_labels, "labels asked for", "answer_labels_max", limits, "parameters.top_r")
    if "text" in places:
        texts = texts_of(request.inputs[0], binaries[0], "inputs[0]", limits)
        return InferQuery(
            options=options,
            n_rows=n_rows,
            texts=texts,
            csr=None,
            outputs=outputs,
            identity=request.id,
        )
    indptr, indices, values = (
        numbers_of(request.inputs[places[name]], binaries[places[name]], f"inputs[{places[name]}]")
        for name in ("indptr", "indices", "values")
    )
    csr = indptr, indices.astype(np.int64), values
    _check_rows(csr, places, limits)
    return InferQuery(
        options=options, n_rows=n_rows, texts=None, csr=csr, outputs=outputs, identity=request.id
    )


def _json_length(header: str, n_bytes: int) -> int:
    is_number = header.isascii() and header.isdigit() and len(header) < 20
    if not is_number or int(header) > n_bytes:
        value = f"{header[:40]!r}"
        raise BadRequest(f"expected at most the {n_bytes} bytes of the body, found {value}").at(
            HEADER
        )
    return int(header)


def _by_name(
    tensors: Sequence[InferTensor | RequestedOutput], kind: str, place: str
) -> dict[str, int]:
    """Return the index of each tensor, by name. Raises BadRequest for a name that occurs twice.

    kind   "tensors" or "outputs", for the error
    """
    places: dict[str, int] = {}
    for i, tensor in enumerate(tensors):
        if places.setdefault(tensor.name, i) != i:
            fault = f"expected {kind} of different names, found {tensor.name} twice"
            raise BadRequest(fault).at(f"{place}[{i}].name")
    return places


def _outputs(request: InferRequest) -> dict[str, bool]:
    """Return the outputs to answer with, and whether each is sent as binary data."""
    binary_by_default = request.parameters.binary_data_output
    if not request.outputs:
        return dict.fromkeys(OUTPUTS, binary_by_default)
    _by_name(request.outputs, "outputs", "outputs")
    requested = {output.name: output.parameters.binary_data for output in request.outputs}
    return {
        name: binary_by_default if is_binary is None else is_binary
        for name, is_binary in requested.items()
    }


def _check_rows(csr: Arrays, places: Mapping[str, int], limits: Limits) -> None:
    """Raise BadRequest unless indptr divides the elements into rows.

    Raises LimitExceeded for a row of too many features.
    """
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
    refuse_beyond(int(sizes[longest]), "features", "features_max", limits, f"rows[{longest}]")


@functools.lru_cache(1024)
def _head(model: str, version: int, epoch: int) -> bytes:
    epoch_json = b',"threshold_epoch":%d' % epoch if epoch else b""
    head = b'{"model_name":"%b","model_version":"%d","parameters":{"version":%d%b},"outputs":['
    return head % (model.encode(), version, version, epoch_json)
