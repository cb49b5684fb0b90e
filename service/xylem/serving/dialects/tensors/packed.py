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
from xylem.serving.dialects.tensors.schema import VECTORS
from xylem.serving.parse import LONG_BYTES, parse_json
from xylem.serving.schemas.limits import utf8_length
from xylem_store import I64


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
