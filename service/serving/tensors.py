"""Tensors of the Open Inference Protocol <-> arrays and texts, in JSON or as binary data behind it.

Binary data are little-endian; an element of BYTES is its length as uint32, then its bytes.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.base.errors import BadRequest
from service.base.faults import what_is
from service.base.settings import Limits
from service.serving.schemas.limits import refuse_beyond, utf8_length
from service.serving.schemas.oip import INPUTS, InferTensor

_DTYPES = {name: np.dtype(kind) for name, kind in (("INT64", "<i8"), ("INT32", "<i4"), ("FP32", "<f4"))}
_ELEMENTS: dict[str, tuple[frozenset[type], str]] = {
    "BYTES": (frozenset({str}), "a string"),
    "INT64": (frozenset({int}), "an integer"),
    "INT32": (frozenset({int}), "an integer"),
    "FP32": (frozenset({int, float}), "a number"),
}


def divide_binary(tensors: Sequence[InferTensor], binary: bytes) -> list[bytes | None]:
    """Return the binary data of each tensor; None: its data are in the JSON.

    Raises BadRequest where a tensor has both or neither, or where the sizes are not those of `binary`.
    """
    parts: list[bytes | None] = []
    start = 0
    for i, tensor in enumerate(tensors):
        size = tensor.parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            found = "neither" if size is None else "both"
            raise BadRequest(f"expected data or binary_data_size, found {found}").at(f"inputs[{i}]")
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
        raise BadRequest(f"expected {start} bytes of binary data in all, found {len(binary)}").at("inputs")
    return parts


def check_kind(tensor: InferTensor, place: str) -> None:
    """Raise BadRequest unless a tensor is one of INPUTS, of its type and of a shape that it may have."""
    datatype = INPUTS.get(tensor.name)
    if datatype is None:
        raise BadRequest(f"expected one of {', '.join(INPUTS)}, found {what_is(tensor.name)}").at(
            f"{place}.name"
        )
    if tensor.datatype != datatype:
        raise BadRequest(f"expected {datatype}, found {what_is(tensor.datatype)}").at(f"{place}.datatype")
    shape = tensor.shape
    if len(shape) == 2 and (tensor.name != "text" or shape[1] != 1):
        expected = "[n] or [n, 1]" if tensor.name == "text" else "[n]"
        raise BadRequest(f"expected a shape {expected}, found {shape}").at(f"{place}.shape")


def numbers_of(tensor: InferTensor, binary: bytes | None, place: str) -> NDArray[Any]:
    """Return the elements of a tensor of numbers. Raises BadRequest where they are not what it says."""
    dtype, n = _DTYPES[tensor.datatype], tensor.shape[0]
    if binary is not None:
        if len(binary) != n * dtype.itemsize:
            expected = f"expected {n * dtype.itemsize} bytes, {dtype.itemsize} for each of {n} elements"
            raise BadRequest(f"{expected}, found {len(binary)}").at(f"{place}.parameters.binary_data_size")
        return np.frombuffer(binary, dtype)
    data = _elements(tensor, place)
    try:
        if dtype.kind != "f":
            return np.array(data, dtype)
        with np.errstate(over="ignore"):  # numbers beyond 32 bits become infinite, and are refused as such
            return np.array(data, np.float64).astype(dtype)
    except OverflowError:
        fault = f"expected numbers of {tensor.datatype}, found one beyond them"
        raise BadRequest(fault).at(f"{place}.data") from None


def texts_of(tensor: InferTensor, binary: bytes | None, place: str, limits: Limits) -> list[str]:
    """Return the elements of a tensor of texts.

    Raises BadRequest where they are not what it says, and LimitExceeded for one that is too long.
    """
    texts = _elements(tensor, place) if binary is None else binary_texts(binary, tensor.shape[0], place)
    for i, text in enumerate(texts):
        refuse_beyond(utf8_length(text), "bytes of text", "text_bytes_max", limits, f"{place}.data[{i}]")
    return texts


def _elements(tensor: InferTensor, place: str) -> list[Any]:
    """Return the data of a tensor that are in the JSON, flat, all of its type and as many as it says."""
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
    """Return n texts, each behind its length. Raises BadRequest, naming the place, where there are others."""
    texts: list[str] = []
    start, place = 0, f"{place}.data"
    while start < len(binary) and len(texts) < n:
        begin = start + 4  # after its length
        start = begin + int.from_bytes(binary[start:begin], "little")
        if start > len(binary) or begin > len(binary):
            fault = f"expected {start - begin} bytes of element {len(texts)}, found {len(binary) - begin}"
            raise BadRequest(fault).at(place)
        try:
            texts.append(binary[begin:start].decode())
        except UnicodeDecodeError as error:
            fault = f"expected UTF-8, found byte {binary[begin + error.start]:#04x} at {error.start}"
            raise BadRequest(fault).at(f"{place}[{len(texts)}]") from None
    if len(texts) != n or start != len(binary):
        found = f"{len(texts)}, and {len(binary) - start} bytes behind them"
        raise BadRequest(f"expected {n} elements, as the shape says, found {found}").at(place)
    return texts
