"""Data of tensors of the Open Inference Protocol: in JSON, or binary behind it."""

import numpy as np

from xylem.base import RowArrays
from xylem.engine.features.request_bodies import COUNT_LIMIT
from xylem.engine.kernels.text.digits import parse_id
from xylem.engine.kernels.text.sparse_json import (
    OPEN_LIST,
    after,
    first_item,
    next_item,
    read_ids,
    read_numbers,
    skip_blanks,
)
from xylem.engine.kernels.text.texts import BodyTexts, read_bytes, read_string
from xylem_store import I64, U8, inlined

INDPTR, INDICES, VALUES, TEXT = range(4)
"""The tensors, also their types: INT64, INT32, FP32 and BYTES."""

N_TENSORS = 4
NOT_SAID = -1
_ZERO = 48
_LENGTH_BYTES = 4  # an element of BYTES begins with its length


@inlined
def read_data(
    data: U8, i: int, tensor: int, n_features: int, rows: RowArrays, texts: BodyTexts
) -> tuple[int, int]:
    """Read the elements of a tensor to its array; return (the place after them, how many)."""
    indptr, indices, values = rows
    i = after(data, i, OPEN_LIST)
    if tensor == TEXT:
        return _read_strings(data, i, texts)
    if tensor == INDPTR:
        return read_ids(data, i, len(indices) + 1, indptr, 0)
    if tensor == INDICES:
        return read_ids(data, i, n_features, indices, 0)
    return read_numbers(data, i, values, 0)


@inlined
def read_size(data: U8, i: int) -> tuple[int, int]:
    """Read an integer of at least 0; return (the place after it, the integer)."""
    i = skip_blanks(data, i)
    number, end = parse_id(data, i, COUNT_LIMIT)
    if end == i or number >= COUNT_LIMIT or (data[i] == _ZERO and end > i + 1):
        return len(data) - 1, NOT_SAID
    return end, number


@inlined
def _read_strings(data: U8, i: int, texts: BodyTexts) -> tuple[int, int]:
    """Read strings from after the bracket to after its fellow; return (that place, how many)."""
    n = 0
    n_characters = 0
    i, is_end = first_item(data, i)
    while not is_end:
        if n + 1 >= len(texts.text_ptr):
            return len(data) - 1, n
        i, texts.text_ptr[n + 1], n_characters = read_string(
            data, i, texts, texts.text_ptr[n], n_characters
        )
        if i == len(data) - 1:
            return i, n
        n += 1
        i, is_end = next_item(data, i)
    return i, n


@inlined
def unpack(data: U8, at: int, n_bytes: int) -> int:
    """Return the integer of so many bytes at data[at], the least byte first; negative
    only with 8.
    """
    number = np.int64(0)
    for k in range(n_bytes):
        number |= np.int64(data[at + k]) << (8 * k)
    return int(number)


@inlined
def copy_rows(data: U8, end: int, n_features: int, tensors: I64, rows: RowArrays) -> int:
    """Copy the binary data, which begin at data[end]; return how many rows
    they and the others make, 0: none.

    The ends of the rows must ascend to the number of indices, and there must be as many values.
    """
    indptr, indices, values = rows
    n_rows = tensors[INDPTR, 0] - 1
    n = tensors[INDICES, 0]
    if n_rows < 1 or n_rows >= len(indptr) or n > len(indices) or tensors[VALUES, 0] != n:
        return 0
    is_right = True
    at = end + tensors[INDPTR, 1]
    for row in range(1, n_rows + 1):
        if tensors[INDPTR, 1] >= 0:
            indptr[row] = unpack(data, at + 8 * row, 8)
        is_right &= indptr[row] >= indptr[row - 1]
    if not is_right or indptr[n_rows] != n:
        return 0
    if tensors[INDICES, 1] >= 0:
        at = end + tensors[INDICES, 1]
        for k in range(n):
            feature = unpack(data, at + 4 * k, 4)
            is_right &= feature < n_features
            indices[k] = feature
    if tensors[VALUES, 1] >= 0:
        at = end + tensors[VALUES, 1]
        bits = values.view(np.uint32)
        for k in range(n):
            bits[k] = unpack(data, at + 4 * k, 4)
    return n_rows if is_right else 0


@inlined
def copy_texts(data: U8, start: int, n_bytes: int, n: int, texts: BodyTexts) -> bool:
    """Read n texts from n_bytes of binary data at `start`; return whether these are just such."""
    if n < 1 or n >= len(texts.text_ptr):
        return False
    i = start
    end = start + n_bytes
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
        i, texts.text_ptr[text + 1], n_characters = read_bytes(
            data, i, stop, texts, at, n_characters
        )
        if i != stop:
            return False
    return i == end
