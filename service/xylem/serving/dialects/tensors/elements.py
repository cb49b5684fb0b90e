"""Elements of a request's tensors: in the JSON, or binary data behind it.

Binary data are little-endian; an element of BYTES is its length as uint32, then its bytes.
"""

from array import array
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadRequest, Limits, what_is
from xylem.serving.dialects.tensors.schema import INPUTS, VECTORS, InferTensor
from xylem.serving.schemas.fields import refuse_beyond, utf8_length

# What elements of tensors of numbers are as binary data.
DTYPES: dict[str, np.dtype[Any]] = {
    "INT64": np.dtype("<i8"),
    "INT32": np.dtype("<i4"),
    "FP32": np.dtype("<f4"),
    "BOOL": np.dtype("?"),
}

_LENGTH_BYTES = 4  # the length of an element of BYTES stands before it

_ELEMENTS: dict[str, tuple[frozenset[type], str]] = {
    "BYTES": (frozenset({str}), "a string"),
    "INT64": (frozenset({int}), "an integer"),
    "INT32": (frozenset({int}), "an integer"),
    "FP32": (frozenset({int, float}), "a number"),
}


class TensorPart(NamedTuple):
    """A tensor of a request, and where its elements are.

    place       its path in the request, for errors
    start, end  of its binary data, after the JSON; both None if its elements are in the JSON
    """

    tensor: InferTensor
    place: str
    start: int | None
    end: int | None

    def binary(self, data: memoryview) -> memoryview | None:
        """Return its binary data; None if its elements are in the JSON."""
        return None if self.start is None else data[self.start : self.end]


def divide_binary(tensors: Sequence[InferTensor], n_binary: int) -> list[TensorPart]:
    """Return where the elements of each tensor are.

    Raises BadRequest if a tensor has both `data` and `binary_data_size`, or neither, and if the
    sizes do not add up to the n_binary bytes of binary data.
    """
    parts: list[TensorPart] = []
    start = 0
    for i, tensor in enumerate(tensors):
        size = tensor.parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            fields_present = "neither" if size is None else "both"
            raise BadRequest(
                f"expected data or binary_data_size, found {fields_present}"
            ).with_path(f"inputs[{i}]")
        if size is None:
            parts.append(TensorPart(tensor, f"inputs[{i}]", None, None))
            continue
        if start + size > n_binary:
            raise BadRequest(
                f"expected the {size} bytes of binary_data_size, found {n_binary - start}"
            ).with_path(f"inputs[{i}].parameters.binary_data_size")
        parts.append(TensorPart(tensor, f"inputs[{i}]", start, start + size))
        start += size
    if start != n_binary:
        raise BadRequest(
            f"expected {start} bytes of binary data in all, found {n_binary}"
        ).with_path("inputs")
    return parts


def check_kind(tensor: InferTensor, place: str) -> None:
    """Raise BadRequest unless a tensor is one of INPUTS, with the right type and shape.

    A tensor of BYTES may be a field of the version.
    """
    datatype = INPUTS.get(tensor.name, "BYTES")
    if tensor.name not in INPUTS and tensor.datatype != datatype:
        raise BadRequest(
            f"expected one of {', '.join(INPUTS)}, found {what_is(tensor.name)}"
        ).with_path(f"{place}.name")
    if tensor.datatype != datatype:
        raise BadRequest(f"expected {datatype}, found {what_is(tensor.datatype)}").with_path(
            f"{place}.datatype"
        )
    shape = tensor.shape
    is_vectors = tensor.name == VECTORS
    if len(shape) != 2 if is_vectors else len(shape) == 2 and shape[1] != 1:
        expected = "[n, numbers]" if is_vectors else "[n] or [n, 1]"
        raise BadRequest(f"expected a shape {expected}, found {shape}").with_path(f"{place}.shape")


def numbers_of(part: TensorPart, data: memoryview) -> NDArray[Any]:
    """Return the elements of a tensor of numbers, flat.

    Raises BadRequest if they do not fit the tensor's type and shape.
    """
    tensor = part.tensor
    place = part.place
    binary = part.binary(data)
    dtype = DTYPES[tensor.datatype]
    n = prod(tensor.shape)
    if binary is not None:
        if len(binary) != n * dtype.itemsize:
            raise BadRequest(
                f"expected {n * dtype.itemsize} bytes, {dtype.itemsize} for each of {n} elements, "
                f"found {len(binary)}"
            ).with_path(f"{place}.parameters.binary_data_size")
        return np.frombuffer(binary, dtype)
    elements = _elements(tensor, place)
    try:
        # numbers beyond 32 bits become infinite, and are refused as such
        return np.frombuffer(array(dtype.char, elements), dtype)
    except OverflowError:
        raise BadRequest(f"expected numbers of {tensor.datatype}, found one beyond them").with_path(
            f"{place}.data"
        ) from None


def texts_of(part: TensorPart, data: memoryview, limits: Limits) -> list[str]:
    """Return the elements of a tensor of texts.

    Raises BadRequest if they do not fit the tensor, and LimitExceeded for a text that is too long.
    """
    place = part.place
    binary = part.binary(data)
    texts = (
        _elements(part.tensor, place)
        if binary is None
        else binary_texts(bytes(binary), part.tensor.shape[0], place)
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
        width = tensor.shape[1]
        wrong_row = next((i for i, row in enumerate(data) if len(row) != width), None)
        if wrong_row is not None:
            raise BadRequest(
                f"expected an array of {width}, found an array of {len(data[wrong_row])}"
            ).with_path(f"{place}.data[{wrong_row}]")
        data = list(chain.from_iterable(data))
    types, expected = _ELEMENTS[tensor.datatype]
    if not types.issuperset(map(type, data)):
        i = next(i for i, value in enumerate(data) if type(value) not in types)
        raise BadRequest(f"expected {expected}, found {what_is(data[i])}").with_path(
            f"{place}.data[{i}]"
        )
    n = prod(tensor.shape)
    if len(data) != n:
        raise BadRequest(f"expected {n} elements, as the shape says, found {len(data)}").with_path(
            f"{place}.data"
        )
    return data


def packed_text(text: bytes) -> bytes:
    """Return a text as an element of BYTES: its length, and its bytes."""
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def binary_texts(binary: bytes, n: int, place: str) -> list[str]:
    """Return n texts from binary data; there the length of each text stands before it.

    Raises BadRequest, which names the place, if `binary` holds anything else.
    """
    texts: list[str] = []
    start = 0
    place = f"{place}.data"
    while start < len(binary) and len(texts) < n:
        begin = start + _LENGTH_BYTES
        start = begin + int.from_bytes(binary[start:begin], "little")
        if start > len(binary) or begin > len(binary):
            raise BadRequest(
                f"expected {start - begin} bytes of element {len(texts)}, "
                f"found {len(binary) - begin}"
            ).with_path(place)
        try:
            texts.append(binary[begin:start].decode())
        except UnicodeDecodeError as error:
            raise BadRequest(
                f"expected UTF-8, found byte {binary[begin + error.start]:#04x} at {error.start}"
            ).with_path(f"{place}[{len(texts)}]") from None
    if len(texts) != n or start != len(binary):
        raise BadRequest(
            f"expected {n} elements, as the shape says, found {len(texts)}, and "
            f"{len(binary) - start} bytes behind them"
        ).with_path(place)
    return texts
