"""Data of tensors of the Open Inference Protocol: lists of JSON, or binary.

A `layout`, int64[N_TENSORS, LAYOUT_SIZE], says of each tensor how many elements it has (COUNT; of the text -1
if there is none), where in the data it begins and ends (BEGIN, STOP), and whether it is binary (IS_BINARY).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from model_store.compiled.handles import Handle, struct_at
from service.features.sparse_request import finish_rows
from service.kernels.text.sparse_json import (
    OPEN_LIST,
    after,
    first_item,
    next_item,
    read_ids,
    read_numbers,
)
from service.kernels.text.texts import TEXTS, BodyTexts, read_bytes, read_string
from service.rows import RowArrays

INDPTR, INDICES, VALUES, TEXT = range(4)
"""The tensors, also their types: INT64, INT32, FP32 and BYTES."""

N_TENSORS = 4
COUNT, BEGIN, STOP, IS_BINARY = range(4)
LAYOUT_SIZE = 4
_LENGTH_BYTES = 4
"""An element of BYTES begins with its length."""


@kernel
def read_tensors(
    data: NDArray[np.uint8],
    layout: NDArray[np.int64],
    constants: tuple[int, int, int, int],
    rows_out: RowArrays,
    asked: NDArray[np.int64],
    texts_at: Handle,
) -> tuple[int, int, int, int, int, int]:
    """Read tensors into rows that are sorted, summed and normalised; return the fields of SparseQuery.

    data       uint8[..]   two bytes that are nothing of JSON stand behind the last tensor
    constants  features of the model and code of the norm first
    rows_out   indptr, indices, values, which bound the rows
    asked      int64[6]    the fields of SparseQuery, from the third on, as the body says them
    texts_at   of BodyTexts, where the instances are read to if they are texts

    n_rows is 0 for what is not right or not for kernels. Work is bounded by the data's length.
    """
    n_rows, n_values = 0, TEXTS
    if layout[TEXT, COUNT] >= 0:
        n_rows = _read_texts(data, layout[TEXT], struct_at(BodyTexts, texts_at))
    else:
        n_rows = _read_rows(data, layout, constants[0], rows_out)
        if n_rows > 0:
            n_values = finish_rows(constants[1], rows_out[0][: n_rows + 1], rows_out[1], rows_out[2])
            n_rows = n_rows if n_values >= 0 else 0
    if n_rows == 0:
        return 0, 0, 0, 0, 0, 0
    return n_rows, n_values, asked[2], asked[3], asked[4], asked[5]


@inlined
def _read_rows(data: NDArray[np.uint8], layout: NDArray[np.int64], n_features: int, rows: RowArrays) -> int:
    """Read the three tensors; return how many rows they make, 0: none.

    The ends of the rows must ascend from 0 to the number of indices, and there must be as many values.
    """
    indptr, indices, values = rows
    n_rows, n = layout[INDPTR, COUNT] - 1, layout[INDICES, COUNT]
    if n_rows < 1 or n_rows >= len(indptr) or n > len(indices) or layout[VALUES, COUNT] != n:
        return 0
    is_right = (
        _read_integers(data, layout[INDPTR], n + 1, 8, indptr)
        and _read_integers(data, layout[INDICES], n_features, 4, indices)
        and _read_values(data, layout[VALUES], values)
    )
    is_right = is_right and indptr[0] == 0 and indptr[n_rows] == n
    for row in range(n_rows if is_right else 0):
        is_right &= indptr[row + 1] >= indptr[row]
    indptr[0] = 0  # where the rows of each body begin, whatever this one said
    return n_rows if is_right else 0


@inlined
def _read_integers(
    data: NDArray[np.uint8], tensor: NDArray[np.int64], limit: int, width: int, out: NDArray[Any]
) -> bool:
    """Read integers from 0 to below the limit to out; return whether all are such."""
    begin, n = tensor[BEGIN], tensor[COUNT]
    if tensor[IS_BINARY] == 0:
        end, n_read = read_ids(data, after(data, begin, OPEN_LIST), limit, out, 0)
        return bool(end == tensor[STOP] and n_read == n)
    if tensor[STOP] - begin != n * width:
        return False
    is_right = True
    for k in range(n):
        number = unpack(data, begin + width * k, width)
        is_right &= 0 <= number < limit
        out[k] = number
    return is_right


@inlined
def _read_values(data: NDArray[np.uint8], tensor: NDArray[np.int64], out: NDArray[np.float32]) -> bool:
    """Read numbers of 32 bits to out; return whether all are such."""
    begin, n = tensor[BEGIN], tensor[COUNT]
    if tensor[IS_BINARY] == 0:
        end, n_read = read_numbers(data, after(data, begin, OPEN_LIST), out, 0)
        return bool(end == tensor[STOP] and n_read == n)
    if tensor[STOP] - begin != 4 * n:
        return False
    bits = out.view(np.uint32)
    for k in range(n):
        bits[k] = unpack(data, begin + 4 * k, 4)
    return True


@inlined
def _read_texts(data: NDArray[np.uint8], tensor: NDArray[np.int64], texts: BodyTexts) -> int:
    """Read texts; return how many, 0: they are not as many as the tensor says, or not right."""
    n, begin, stop = tensor[COUNT], tensor[BEGIN], tensor[STOP]
    if n < 1 or n >= len(texts.text_ptr) or len(texts.ready) == 0:
        return 0
    if tensor[IS_BINARY] == 0:
        end, n_read = _read_strings(data, begin, texts)
        return n if end == stop and n_read == n else 0
    return n if copy_texts(data, begin, stop, n, texts) else 0


@inlined
def _read_strings(data: NDArray[np.uint8], i: int, texts: BodyTexts) -> tuple[int, int]:
    """Read a list of strings; return (the place after it, how many)."""
    n, n_characters = 0, 0
    i, is_end = first_item(data, after(data, i, OPEN_LIST))
    while not is_end:
        if n + 1 >= len(texts.text_ptr):
            return len(data) - 1, n
        i, texts.text_ptr[n + 1], n_characters = read_string(data, i, texts, texts.text_ptr[n], n_characters)
        if i == len(data) - 1:
            return i, n
        n += 1
        i, is_end = next_item(data, i)
    return i, n


@inlined
def unpack(data: NDArray[np.uint8], at: int, n_bytes: int) -> int:
    """Return the integer of so many bytes at data[at], the least byte first; negative only with 8."""
    number = np.int64(0)
    for k in range(n_bytes):
        number |= np.int64(data[at + k]) << (8 * k)
    return int(number)


@inlined
def copy_texts(data: NDArray[np.uint8], i: int, end: int, n: int, texts: BodyTexts) -> bool:
    """Read n texts of binary data from i to `end`; return whether these are just such."""
    n_characters = 0
    for text in range(n):
        if end - i < _LENGTH_BYTES:
            return False
        length = unpack(data, i, _LENGTH_BYTES)
        i += _LENGTH_BYTES
        if length > end - i:
            return False
        stop = i + length
        at = texts.text_ptr[text]
        i, texts.text_ptr[text + 1], n_characters = read_bytes(data, i, stop, texts, at, n_characters)
        if i != stop:
            return False
    return i == end
