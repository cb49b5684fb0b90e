"""Read requests of the Open Inference Protocol: what their JSON says, and their instances."""

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace
from numpy.typing import NDArray

from xylem.base import BadInput, BadRequest, Limits, UnsupportedOption
from xylem.serving.dialects.search import body_query_of
from xylem.serving.dialects.tensors.elements import (
    DTYPES,
    TensorPart,
    check_kind,
    divide_binary,
    numbers_of,
    packed_text,
    texts_of,
)
from xylem.serving.dialects.tensors.kernels.tensor_arrays import TensorLayout, form_of
from xylem.serving.dialects.tensors.schema import (
    OUTPUTS,
    VECTORS,
    InferParameters,
    InferRequest,
    InferTensor,
    RequestedOutput,
)
from xylem.serving.dialects.tensors.writing import InferOutputs, outputs_of
from xylem.serving.parse import LONG_BYTES, parse_json, validated
from xylem.serving.schemas.fields import refuse_beyond, total_length, utf8_length
from xylem_store import F32, I64

# The header that says how many bytes of a body are JSON, where binary data follow.
HEADER = "inference-header-content-length"

# Options of predict whose answers are no tensors, or that only predict and batches have.
UNSUPPORTED_OPTIONS = ("explain", "statistics", "language", "label_info", "chunk_characters")

_ITEMS_MAX = 1 << 20  # elements of a tensor in a long body of JSON; more come as binary data

# Requests whose tensors are all binary, and of the same shapes, have the same JSON: that of so
# many, of at most this many bytes, is kept with what it says. To read it takes longer than all else
# that such a request needs.
PLANS_MAX = 256
PLAN_BYTES_MAX = 2048

_CODES = {name: code for code, name in enumerate(OUTPUTS)}
_CSR = ("indptr", "indices", "values")

# The rows of a request as compressed sparse rows: indptr, indices, values.
Arrays = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32]]


class InferPlan(Struct, frozen=True):
    """A plan for reading and answering a request, made from its JSON.

    limits    the limits that the request was checked against
    n_binary  bytes of binary data behind the JSON
    parts     the tensors, by their names
    outputs   the outputs to answer with
    identity  the id of the request, which the answer repeats
    form      the description of the binary data for kernels; None if a tensor is in the JSON, or if
              no kernel can answer the request
    number    the threshold, if it is one for all labels, else 0
    """

    limits: Limits
    n_binary: int
    options: InferParameters
    n_rows: int
    parts: dict[str, TensorPart]
    outputs: InferOutputs
    identity: str | None
    form: I64 | None = None
    number: float = 0.0


class InferRows(NamedTuple):
    """The instances of a request: texts, compressed sparse rows, or fields; the others are None.

    vectors  those of the texts, float32[n, numbers]; None: there are none
    fields   the fields of each text, by name
    """

    texts: list[str] | None
    csr: Arrays | None
    vectors: F32 | None = None
    fields: list[dict[str, str]] | None = None


_plans: dict[bytes, InferPlan] = {}


def read_plan(head: bytes, n_binary: int, limits: Limits) -> InferPlan:
    """Return the plan of a request, from its JSON `head`, which n_binary bytes of data follow.

    Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, naming the place.
    """
    plan = _plans.get(head)
    if plan is not None and plan.n_binary == n_binary and plan.limits is limits:
        return plan
    plan = make_plan(parse_json(head, limits, _ITEMS_MAX), n_binary, limits)
    if any(part.start is None for part in plan.parts.values()):
        return plan
    plan = _with_form(plan)
    remember(_plans, head, plan)
    return plan


def remember(plans: dict[bytes, InferPlan], key: bytes, plan: InferPlan) -> None:
    """Keep a plan by its JSON, unless that is long."""
    if len(key) <= PLAN_BYTES_MAX:
        if len(plans) >= PLANS_MAX:
            plans.clear()
        plans[key] = plan


def make_plan(value: Any, n_binary: int, limits: Limits) -> InferPlan:
    """Return the plan of a request without a form, from the value of its JSON.

    Raises BadRequest, LimitExceeded or UnsupportedOption, naming the place.
    """
    request = validated(value, InferRequest, limits)
    options = request.parameters
    for name in options.model_fields_set.intersection(UNSUPPORTED_OPTIONS):
        if getattr(options, name):
            raise UnsupportedOption(
                "expected an option of infer, found one that only predict has"
            ).with_path(f"parameters.{name}")
    for i, tensor in enumerate(request.inputs):
        check_kind(tensor, f"inputs[{i}]")
    places = _by_name(request.inputs, "tensors", "inputs")
    parts = divide_binary(request.inputs, n_binary)
    names = places.keys() - {VECTORS}
    are_texts = bool(names) and all(
        tensor.datatype == "BYTES" for tensor in request.inputs if tensor.name != VECTORS
    )
    if not are_texts and places.keys() != set(_CSR):
        raise BadRequest(
            "expected text, text and vectors, or indptr, indices and values, "
            f"found {', '.join(places)}"
        ).with_path("inputs")
    if are_texts:
        n_rows = request.inputs[min(places[name] for name in names)].shape[0]
        for i, tensor in enumerate(request.inputs):
            if tensor.shape[0] != n_rows:
                parts_of = "vectors" if tensor.name == VECTORS else f"elements of {tensor.name}"
                raise BadRequest(
                    f"expected as many {parts_of} as texts, {n_rows}, found {tensor.shape[0]}"
                ).with_path(f"inputs[{i}].shape")
    else:
        n_rows = request.inputs[places["indptr"]].shape[0] - 1
    if n_rows < 1:
        raise BadRequest("expected at least one instance, found none").with_path("inputs")
    refuse_beyond(n_rows, "instances", "instances_max", limits, "inputs")
    refuse_beyond(
        n_rows * options.top_r, "labels asked for", "answer_labels_max", limits, "parameters.top_r"
    )
    return InferPlan(
        limits=limits,
        n_binary=n_binary,
        options=options,
        n_rows=n_rows,
        parts={name: parts[i] for name, i in places.items()},
        outputs=_outputs(request, n_rows),
        identity=request.id,
    )


def _with_form(plan: InferPlan) -> InferPlan:
    """Return a plan with the form of its tensors, all of which are binary data.

    If a size is wrong, the plan is returned without a form: `read_rows` then raises the error.
    """
    if plan.parts.keys() not in ({"text"}, set(_CSR)):  # kernels read neither vectors nor fields
        return plan
    starts = {name: part.start or 0 for name, part in plan.parts.items()}
    sizes = {name: part.tensor.shape[0] for name, part in plan.parts.items()}
    if sizes.get("values") != sizes.get("indices") or any(
        part.end != starts[name] + sizes[name] * DTYPES[part.tensor.datatype].itemsize
        for name, part in plan.parts.items()
        if name != "text"
    ):
        return plan
    n_values = sizes.get("values", 0)
    return planned(plan, TensorLayout(plan.n_rows, n_values, plan.n_binary, **starts))


def planned(plan: InferPlan, layout: TensorLayout) -> InferPlan:
    """Return the plan with the form of its tensors, by which kernels answer the request.

    A plan that no kernel can answer is returned unchanged.
    """
    query_and_number = body_query_of(plan.options, plan.n_rows, layout.n_values)
    if query_and_number is None:
        return plan
    return replace(
        plan,
        form=form_of(
            layout, query_and_number[0], [_CODES[name] for name in plan.outputs.are_binary]
        ),
        number=query_and_number[1],
    )


def read_rows(plan: InferPlan, binary: memoryview) -> InferRows:
    """Return the instances of a request, from its plan and its binary data.

    Raises BadRequest for elements that do not fit their tensors, and LimitExceeded for an instance
    that is too long; both name the place.
    """
    if plan.parts.keys() != set(_CSR):
        vectors = plan.parts.get(VECTORS)
        vector_rows = (
            None if vectors is None else numbers_of(vectors, binary).reshape(vectors.tensor.shape)
        )
        texts = {
            name: texts_of(part, binary, plan.limits)
            for name, part in plan.parts.items()
            if name != VECTORS
        }
        if texts.keys() == {"text"}:
            return InferRows(texts["text"], None, vector_rows)
        fields = [
            dict(zip(texts, cells, strict=True)) for cells in zip(*texts.values(), strict=True)
        ]
        for i, cells in enumerate(fields):
            refuse_beyond(
                total_length(cells), "bytes of text", "text_bytes_max", plan.limits, f"rows[{i}]"
            )
        return InferRows(None, None, vector_rows, fields)
    return InferRows(None, _read_csr(plan, binary))


def json_length(header: str, n_bytes: int) -> int:
    """Return how many of the n_bytes of a body are JSON, as its header says.

    Raises BadRequest.
    """
    is_number = header.isascii() and header.isdigit() and len(header) < 20
    if not is_number or int(header) > n_bytes:
        raise BadRequest(
            f"expected at most the {n_bytes} bytes of the body, found {header[:40]!r}"
        ).with_path(HEADER)
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
            raise BadRequest(
                f"expected {kind} of different names, found {tensor.name} twice"
            ).with_path(f"{place}[{i}].name")
    return places


def _outputs(request: InferRequest, n_rows: int) -> InferOutputs:
    if not request.outputs:
        return outputs_of(
            dict.fromkeys(OUTPUTS, request.parameters.binary_data_output),
            n_rows,
            request.parameters.top_r,
        )
    _by_name(request.outputs, "outputs", "outputs")
    requested = {output.name: output.parameters.binary_data for output in request.outputs}
    return outputs_of(
        {
            name: request.parameters.binary_data_output if is_binary is None else is_binary
            for name, is_binary in requested.items()
        },
        n_rows,
        request.parameters.top_r,
    )


def _read_csr(plan: InferPlan, binary: memoryview) -> Arrays:
    """Return the rows of a request.

    Raises BadRequest unless indptr divides the elements into rows, and LimitExceeded for a row that
    is too long.
    """
    indptr, indices, values = (numbers_of(plan.parts[name], binary) for name in _CSR)
    n = len(indices)
    if len(values) != n:
        raise BadRequest(f"expected as many values as indices, {n}, found {len(values)}").with_path(
            f"{plan.parts['values'].place}.shape"
        )
    ends = indptr.tolist()
    if ends[0] != 0 or ends[-1] != n or sorted(ends) != ends:
        raise BadRequest(
            f"expected indptr to ascend from 0 to the {n} indices, found another"
        ).with_path(plan.parts["indptr"].place)
    sizes = [end - start for start, end in pairwise(ends)]
    longest = max(sizes)
    refuse_beyond(longest, "features", "features_max", plan.limits, f"rows[{sizes.index(longest)}]")
    return indptr, indices, values


class _Tensor(Struct, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    datatype: str
    data: list[str | int | float]
    parameters: Raw = Raw(b"{}")


class _Request(Struct, forbid_unknown_fields=True):
    inputs: list[_Tensor]
    id: str | None = None
    parameters: Raw = Raw(b"{}")
    outputs: Raw = Raw(b"null")


_decode = Decoder(_Request).decode
_encode = Encoder().encode

# what is raised for a request that is left to the models of requests
_ODD_REQUEST = (
    BadInput,
    MsgspecError,
    struct.error,
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError),
)

_outlines: dict[bytes, InferPlan] = {}


class PackedTensors(Struct, frozen=True):
    """A request whose tensors a kernel can read: its plan, and their form in data[start:]."""

    plan: InferPlan
    form: I64
    data: bytes
    start: int = 0


def read_packed(head: bytes, limits: Limits) -> PackedTensors | None:
    """Return a request with all tensors in its JSON, which are made binary data.

    Returns None for a request that `read_plan` and `read_rows` have to read: it is long or wrong,
    its elements are nested, or no kernel answers it.
    """
    if len(head) > LONG_BYTES:
        return None
    try:
        request = _decode(head)
        identity = request.id
        request.id = None
        if identity is not None and utf8_length(identity) > limits.name_bytes_max:
            return None
        elements = [_take_elements(tensor) for tensor in request.inputs]
        if any(tensor.name == VECTORS for tensor in request.inputs):
            return None
        plan = _outline_plan(_encode(request), limits)
        layout, packed = _pack(dict(zip(plan.parts, elements, strict=True)))
    except _ODD_REQUEST:
        return None
    if plan.form is None:
        return None
    form = plan.form.copy()
    form[: len(layout)] = layout
    return PackedTensors(replace(plan, identity=identity), form, packed)


def _take_elements(tensor: _Tensor) -> Sequence[Any]:
    """Return the elements of a tensor, and leave out of it what outlines do not have."""
    elements = tensor.data
    if tensor.shape[0] != len(elements):
        raise ValueError
    if tensor.name in ("indices", "values"):  # the others have as many elements as there are rows
        tensor.shape[0] = 0
    tensor.data = []
    return elements


def _outline_plan(outline: bytes, limits: Limits) -> InferPlan:
    """Return the plan of all requests with an outline; its form has no layout yet."""
    plan = _outlines.get(outline)
    if plan is None or plan.limits is not limits:
        plan = planned(make_plan(parse_json(outline, limits), 0, limits), TensorLayout(0, 0, 0))
        remember(_outlines, outline, plan)
    return plan


def _pack(elements: Mapping[str, Sequence[Any]]) -> tuple[TensorLayout, bytes]:
    """Return the elements of tensors as binary data, and where the data of each begin.

    Raises struct.error for one that is no number of the type of its tensor.
    """
    if elements.keys() == {"text"}:
        texts = elements["text"]
        packed = b"".join([packed_text(text.encode()) for text in texts])
        return TensorLayout(len(texts), 0, len(packed), text=0), packed
    indptr = elements["indptr"]
    n = len(elements["indices"])
    packed = struct.pack(
        f"<{len(indptr)}q{n}i{n}f", *indptr, *elements["indices"], *elements["values"]
    )
    start = 8 * len(indptr)
    return TensorLayout(
        len(indptr) - 1, n, len(packed), indptr=0, indices=start, values=start + 4 * n
    ), packed
