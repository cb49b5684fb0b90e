"""Read requests of the Open Inference Protocol: what their JSON says, and their instances."""

from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import orjson
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from xylem.base import BadInput, BadRequest, Limits, UnsupportedOption
from xylem.engine import TensorLayout, form_of
from xylem.serving.dialects.search import body_query_of
from xylem.serving.dialects.tensors.elements import (
    DTYPES,
    TensorPart,
    check_elements,
    check_kind,
    divide_binary,
    numbers_of,
    packed_text,
    texts_of,
)
from xylem.serving.dialects.tensors.schema import (
    INPUTS,
    OUTPUTS,
    InferParameters,
    InferRequest,
    InferTensor,
    RequestedOutput,
)
from xylem.serving.parse import LONG_BYTES, parse_json, validated
from xylem.serving.schemas.limits import refuse_beyond, utf8_length
from xylem_store import I64

HEADER = "inference-header-content-length"
"""The header that says how many bytes of a body are JSON, where binary data follow."""

UNSUPPORTED_OPTIONS = ("explain", "statistics", "language", "label_info", "chunk_characters")
"""Options of predict whose answers are no tensors, or that only predict and batches have."""

_ITEMS_MAX = 1 << 20  # elements of a tensor in a long body of JSON; more come as binary data
PLANS_MAX = 256
PLAN_BYTES_MAX = 2048
"""Requests whose tensors are all binary, and of the same shapes, have the same JSON: that of so
many, of at most so many bytes, is kept with what it says. To read it takes longer than all else
that such a request needs.
"""

_CODES = {name: code for code, name in enumerate(OUTPUTS)}
_TEXT = {"text"}
_CSR = ("indptr", "indices", "values")

Arrays = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32]]
"""The rows of a request as compressed sparse rows: indptr, indices, values."""


class InferPlan(Struct, frozen=True):
    """A plan for reading and answering a request, made from its JSON.

    limits    the limits that the request was checked against
    n_binary  bytes of binary data behind the JSON
    parts     the tensors, by their names
    outputs   for the name of each output to answer with, whether it is sent as binary data
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
    outputs: dict[str, bool]
    identity: str | None
    form: I64 | None = None
    number: float = 0.0


class InferRows(NamedTuple):
    """The instances of a request: texts, or compressed sparse rows; the other is None."""

    texts: list[str] | None
    csr: Arrays | None


_plans: dict[bytes, InferPlan] = {}
_outlines: dict[bytes, InferPlan] = {}
"""The same for requests with all tensors in the JSON, without what `read_packed` takes from it."""


def read_plan(head: bytes, n_binary: int, limits: Limits) -> InferPlan:
    """Return the plan of a request, from its JSON `head`, which n_binary bytes of data follow.

    Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, naming the place.
    """
    plan = _plans.get(head)
    if plan is not None and plan.n_binary == n_binary and plan.limits is limits:
        return plan
    plan = _make_plan(parse_json(head, limits, _ITEMS_MAX), n_binary, limits)
    if any(part.start is None for part in plan.parts.values()):
        return plan
    plan = _with_form(plan)
    _remember(_plans, head, plan)
    return plan


def _remember(plans: dict[bytes, InferPlan], key: bytes, plan: InferPlan) -> None:
    if len(key) <= PLAN_BYTES_MAX:
        if len(plans) >= PLANS_MAX:
            plans.clear()
        plans[key] = plan


def _make_plan(value: Any, n_binary: int, limits: Limits) -> InferPlan:
    request = validated(value, InferRequest, limits)
    options = request.parameters
    for name in options.model_fields_set.intersection(UNSUPPORTED_OPTIONS):
        if getattr(options, name):
            fault = "expected an option of infer, found one that only predict has"
            raise UnsupportedOption(fault).with_path(f"parameters.{name}")
    for i, tensor in enumerate(request.inputs):
        check_kind(tensor, f"inputs[{i}]")
    places = _by_name(request.inputs, "tensors", "inputs")
    parts = divide_binary(request.inputs, n_binary)
    outputs = _outputs(request)
    if places.keys() not in (_TEXT, set(_CSR)):
        names = ", ".join(places)
        raise BadRequest(f"expected text, or indptr, indices and values, found {names}").with_path(
            "inputs"
        )
    if "text" in places:
        n_rows = request.inputs[0].shape[0]
    else:
        n_rows = request.inputs[places["indptr"]].shape[0] - 1
    if n_rows < 1:
        raise BadRequest("expected at least one instance, found none").with_path("inputs")
    refuse_beyond(n_rows, "instances", "instances_max", limits, "inputs")
    n_labels = n_rows * options.top_r
    refuse_beyond(n_labels, "labels asked for", "answer_labels_max", limits, "parameters.top_r")
    return InferPlan(
        limits=limits,
        n_binary=n_binary,
        options=options,
        n_rows=n_rows,
        parts={name: parts[i] for name, i in places.items()},
        outputs=outputs,
        identity=request.id,
    )


def _with_form(plan: InferPlan) -> InferPlan:
    """Return a plan with the form of its tensors, all of which are binary data.

    If a size is wrong, the plan is returned without a form: `read_rows` then raises the error.
    """
    starts = {name: part.start or 0 for name, part in plan.parts.items()}
    n_values = 0
    for name, part in plan.parts.items():
        n_elements = part.tensor.shape[0]
        if name != "text":
            n_bytes = n_elements * DTYPES[part.tensor.datatype].itemsize
            if part.end is None or part.end - starts[name] != n_bytes:
                return plan
        if name == "indices":
            n_values = n_elements
    if "values" in plan.parts and plan.parts["values"].tensor.shape[0] != n_values:
        return plan
    return _planned(plan, TensorLayout(plan.n_rows, n_values, plan.n_binary, **starts))


def _planned(plan: InferPlan, layout: TensorLayout) -> InferPlan:
    """Return a plan with the form of tensors of a layout, if kernels can answer the request."""
    query_and_number = body_query_of(plan.options, plan.n_rows, layout.n_values)
    if query_and_number is None:
        return plan
    codes = [_CODES[name] for name in plan.outputs]
    return replace(
        plan, form=form_of(layout, query_and_number[0], codes), number=query_and_number[1]
    )


def read_packed(head: bytes, limits: Limits) -> tuple[InferPlan, bytes] | None:
    """Return the plan of a request with all tensors in its JSON, and the tensors as binary data.

    Requests differ in their ids, their elements and how many these are. What the models of requests
    say of all else is cached: to validate it takes longer than all else that such a request needs.

    Returns None for a request that `read_plan` and `read_rows` have to read: it is long or wrong,
    its elements are nested, or no kernel answers it.
    """
    if len(head) > LONG_BYTES:
        return None
    try:
        outline = orjson.loads(head)
        identity = outline.pop("id", None)
        if identity is not None and utf8_length(identity) > limits.name_bytes_max:
            return None
        elements = [_take_elements(tensor) for tensor in outline["inputs"]]
        plan = _outline_plan(outline, limits)
        layout, packed = _pack(dict(zip(plan.parts, elements, strict=True)))
    except _ODD_JSON:
        return None
    if plan.form is None:
        return None
    form = layout.placed_in(plan.form)
    return replace(plan, n_rows=layout.n_rows, identity=identity, form=form), packed


_ODD_JSON = (BadInput, ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""The errors of taking elements from JSON of any form."""

_OUTLINE_ELEMENTS = 2  # so many has each tensor of an outline: `indptr` has one row then


def _take_elements(tensor: dict[str, Any]) -> list[Any]:
    """Return the elements of a tensor, and remove them and their number from it."""
    elements: list[Any] = tensor["data"]
    shape = tensor["shape"]
    n = shape[0]
    if type(elements) is not list or type(n) is not int:
        raise TypeError
    check_elements(elements, tensor["datatype"], n, "")
    tensor["data"] = []
    shape[0] = _OUTLINE_ELEMENTS
    return elements


def _outline_plan(outline: Any, limits: Limits) -> InferPlan:
    key = orjson.dumps(outline)
    plan = _outlines.get(key)
    if plan is None or plan.limits is not limits:
        plan = _planned(_make_plan(outline, 0, limits), TensorLayout(0, 0, 0))
        _remember(_outlines, key, plan)
    return plan


def _pack(elements: Mapping[str, list[Any]]) -> tuple[TensorLayout, bytes]:
    """Return elements by the names of their tensors as binary data, and where each tensor is."""
    if "text" in elements:
        texts = elements["text"]
        packed = b"".join([packed_text(text.encode()) for text in texts])
        return TensorLayout(len(texts), 0, len(packed), text=0), packed
    arrays = [array(DTYPES[INPUTS[name]].char, elements[name]) for name in _CSR]
    n_rows = len(arrays[0]) - 1
    n_values = len(arrays[1])
    if len(arrays[2]) != n_values:
        raise ValueError
    packed = b"".join(arrays)
    indices = 8 * n_rows + 8
    values = indices + 4 * n_values
    layout = TensorLayout(n_rows, n_values, len(packed), 0, indices, values)
    return layout, packed


def read_rows(plan: InferPlan, binary: memoryview) -> InferRows:
    """Return the instances of a request, from its plan and its binary data.

    Raises BadRequest for elements that do not fit their tensors, and LimitExceeded for an instance
    that is too long; both name the place.
    """
    if "text" in plan.parts:
        return InferRows(texts_of(plan.parts["text"], binary, plan.limits), None)
    indptr, indices, values = (numbers_of(plan.parts[name], binary) for name in _CSR)
    csr = (indptr, indices, values)
    _check_rows(csr, plan.parts, plan.limits)
    return InferRows(None, csr)


def json_length(header: str, n_bytes: int) -> int:
    """Return how many of the n_bytes of a body are JSON, as its header says.

    Raises BadRequest.
    """
    is_number = header.isascii() and header.isdigit() and len(header) < 20
    if not is_number or int(header) > n_bytes:
        value = f"{header[:40]!r}"
        raise BadRequest(
            f"expected at most the {n_bytes} bytes of the body, found {value}"
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
            fault = f"expected {kind} of different names, found {tensor.name} twice"
            raise BadRequest(fault).with_path(f"{place}[{i}].name")
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


def _check_rows(csr: Arrays, parts: Mapping[str, TensorPart], limits: Limits) -> None:
    """Raise BadRequest unless indptr divides the elements into rows.

    Raises LimitExceeded for a row that is too long.
    """
    indptr, indices, values = csr
    n = len(indices)
    if len(values) != n:
        fault = f"expected as many values as indices, {n}, found {len(values)}"
        raise BadRequest(fault).with_path(f"{parts['values'].place}.shape")
    ends = indptr.tolist()
    if ends[0] != 0 or ends[-1] != n or sorted(ends) != ends:
        raise BadRequest(
            f"expected indptr to ascend from 0 to the {n} indices, found another"
        ).with_path(parts["indptr"].place)
    sizes = [end - start for start, end in pairwise(ends)]
    longest = max(sizes)
    place = f"rows[{sizes.index(longest)}]"
    refuse_beyond(longest, "features", "features_max", limits, place)
