"""Lines of NDJSON that are sparse instances and nothing else, read without the interpreter's lock.

Reading a line by a JSON library and checking each of its numbers costs more than to predict it. What is not
plain is left to that way, which says what is wrong with it: the kernel takes a part of what JSON allows, and
reads it as JSON does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model_store.jit import inlined, kernel
from service.datasets.decimals import EXACT, is_digit, parse_decimal, parse_id

_ID_LIMIT = 1 << 31
_INDICES = np.frombuffer(b'"indices"', np.uint8)
_VALUES = np.frombuffer(b'"values"', np.uint8)
_SPACE, _TAB, _RETURN = 32, 9, 13
_OPEN, _CLOSE, _COLON, _COMMA, _OPEN_LIST, _CLOSE_LIST = 123, 125, 58, 44, 91, 93
_ZERO, _MINUS, _DOT, _END = 48, 45, 46, 10


def read_plain_lines(
    lines: Sequence[bytes], features_max: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]] | None:
    """Return lines such as `{"indices": [3, 17], "values": [0.5, 1]}` as compressed rows, not checked yet.

    Parameters: lines without their ends; features_max the most features of one. Returns indptr int64[n + 1],
    indices int64[nnz] in [0, 2^31) and values float32[nnz], float32(float(text)) each and finite. None when a
    line has other keys or another order, more features, an id or a number that needs more care, or is wrong.
    Cost: about a nanosecond a byte.
    """
    data = np.frombuffer(b"\n".join([*lines, b"\0"]), np.uint8)
    indptr = np.zeros(len(lines) + 1, np.int64)
    indices, values = np.empty(len(data) // 2, np.int64), np.empty(len(data) // 2, np.float32)
    if not _read(data, features_max, indptr, indices, values):
        return None
    n = int(indptr[-1])
    return indptr, indices[:n], values[:n]


@kernel
def _read(
    data: NDArray[np.uint8],
    features_max: int,
    indptr_out: NDArray[np.int64],
    indices_out: NDArray[np.int64],
    values_out: NDArray[np.float32],
) -> bool:
    """Read all lines; return whether they were plain.

    Every line ends with _END, which nothing within a line is: no step goes past it. What is not as expected
    leads to the last byte of all, which is nothing that is expected, and so to the end.
    """
    i, n = 0, 0
    for row in range(len(indptr_out) - 1):
        start = n
        i = _after(data, i, _OPEN)
        i = _after(data, _after_key(data, i, _INDICES), _COLON)
        i, n = _read_ids(data, _after(data, i, _OPEN_LIST), indices_out, n)
        i = _after(data, i, _COMMA)
        i = _after(data, _after_key(data, i, _VALUES), _COLON)
        i, end = _read_numbers(data, _after(data, i, _OPEN_LIST), values_out, start)
        i = _skip_blanks(data, _after(data, i, _CLOSE))
        if data[i] != _END or end != n or n - start > features_max:
            return False
        indptr_out[row + 1] = n
        i += 1
    return True


@inlined
def _skip_blanks(data: NDArray[np.uint8], i: int) -> int:
    while data[i] == _SPACE or data[i] == _TAB or data[i] == _RETURN:
        i += 1
    return i


@inlined
def _after(data: NDArray[np.uint8], i: int, byte: int) -> int:
    """Return the place after blanks and `byte`; the last of all if it is not there."""
    i = _skip_blanks(data, i)
    return i + 1 if data[i] == byte else len(data) - 1


@inlined
def _after_key(data: NDArray[np.uint8], i: int, key: NDArray[np.uint8]) -> int:
    """Return the place after blanks and the key; the last of all if it is not there."""
    i = _skip_blanks(data, i)
    for k in range(len(key)):
        if data[i + k] != key[k]:
            return len(data) - 1
    return i + len(key)


@inlined
def _read_ids(data: NDArray[np.uint8], i: int, ids_out: NDArray[np.int64], n: int) -> tuple[int, int]:
    """Read unsigned integers from after the bracket to after its fellow; return (that place, their end)."""
    i = _skip_blanks(data, i)
    if data[i] == _CLOSE_LIST:
        return i + 1, n
    while True:
        i = _skip_blanks(data, i)
        number, end = parse_id(data, i, _ID_LIMIT)
        if end == i or number >= _ID_LIMIT or (data[i] == _ZERO and end > i + 1):
            return len(data) - 1, n
        ids_out[n] = number
        n += 1
        i = _skip_blanks(data, end)
        if data[i] == _CLOSE_LIST:
            return i + 1, n
        i = _after(data, i, _COMMA)


@inlined
def _read_numbers(
    data: NDArray[np.uint8], i: int, values_out: NDArray[np.float32], n: int
) -> tuple[int, int]:
    """Read numbers from after the bracket to after its fellow; return (that place, their end)."""
    i = _skip_blanks(data, i)
    if data[i] == _CLOSE_LIST:
        return i + 1, n
    while True:
        i = _skip_blanks(data, i)
        if not _is_json_number(data, i):
            return len(data) - 1, n
        value, end, code = parse_decimal(data, i)
        if code != EXACT or (value == 0 and data[i] == _MINUS):
            return len(data) - 1, n
        values_out[n] = value
        n += 1
        i = _skip_blanks(data, end)
        if data[i] == _CLOSE_LIST:
            return i + 1, n
        i = _after(data, i, _COMMA)


@inlined
def _is_json_number(data: NDArray[np.uint8], i: int) -> bool:
    """Return whether a number that begins here, if `parse_decimal` takes it, is one of JSON's.

    JSON wants a digit first and after the point, and none after a zero in front.
    """
    if data[i] == _MINUS:
        i += 1
    if not is_digit(data[i]) or (data[i] == _ZERO and is_digit(data[i + 1])):
        return False
    while is_digit(data[i]):
        i += 1
    return data[i] != _DOT or is_digit(data[i + 1])
