"""Read requests with all tensors in their JSON: their elements become binary data, for kernels.

msgspec takes the elements from the JSON. What is left is the outline of the request: its options,
the names and types of its tensors, the outputs. Many requests have the same one, and what the
models of requests say of it is cached: to validate it takes longer than all else that a request
needs.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from xylem.base import BadInput, Limits
from xylem.serving.dialects.tensors.elements import packed_text
from xylem.serving.dialects.tensors.kernels.tensor_arrays import TensorLayout
from xylem.serving.dialects.tensors.reading import InferPlan, make_plan, planned, remember
from xylem.serving.parse import LONG_BYTES, parse_json
from xylem.serving.schemas.limits import utf8_length


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

_ODD_REQUEST = (
    BadInput,
    MsgspecError,
    struct.error,
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError),
)
"""What is raised for a request that is left to the models of requests."""

_VALUES = ("indices", "values")
"""Tensors that have as many elements as rows have features; all others tell the number of rows."""

_outlines: dict[bytes, InferPlan] = {}


def read_packed(head: bytes, limits: Limits) -> tuple[InferPlan, bytes] | None:
    """Return the plan of a request with all tensors in its JSON, and the tensors as binary data.

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
        plan = _outline_plan(_encode(request), limits)
        layout, packed = _pack(dict(zip(plan.parts, elements, strict=True)))
    except _ODD_REQUEST:
        return None
    if plan.form is None:
        return None
    form = layout.placed_in(plan.form)
    return replace(plan, identity=identity, form=form), packed


def _take_elements(tensor: _Tensor) -> Sequence[Any]:
    """Return the elements of a tensor, and leave out of it what outlines do not have."""
    elements = tensor.data
    if tensor.shape[0] != len(elements):
        raise ValueError
    if tensor.name in _VALUES:
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
    if "text" in elements:
        texts = elements["text"]
        packed = b"".join([packed_text(text.encode()) for text in texts])
        return TensorLayout(len(texts), 0, len(packed), text=0), packed
    indptr, indices, values = elements["indptr"], elements["indices"], elements["values"]
    n_values = len(indices)
    packed = struct.pack(f"<{len(indptr)}q{n_values}i{n_values}f", *indptr, *indices, *values)
    start = 8 * len(indptr)
    layout = TensorLayout(
        len(indptr) - 1, n_values, len(packed), indptr=0, indices=start, values=start + 4 * n_values
    )
    return layout, packed
