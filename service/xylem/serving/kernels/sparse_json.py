"""Read a subset of JSON in kernels: expected keys, and lists of ids and of numbers.

The data end with END and one more byte, which nothing expects. A function that finds something
unexpected returns the place of that last byte, where all further steps fail too: none of them reads
past it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.datasets import EXACT, is_digit, parse_decimal, parse_id
from xylem_store import F32, U8, nonallocating_inlined

INDICES = np.frombuffer(b'"indices"', np.uint8)
VALUES = np.frombuffer(b'"values"', np.uint8)
END = 10
OPEN = 123
CLOSE = 125
COLON = 58
COMMA = 44
OPEN_LIST = 91
CLOSE_LIST = 93
_SPACE = 32
_TAB = 9
_RETURN = 13
ZERO = 48
MINUS = 45
DOT = 46


@nonallocating_inlined
def skip_blanks(data: U8, i: int) -> int:
    """Return the place after blanks; a line's end is no blank."""
    while data[i] == _SPACE or data[i] == _TAB or data[i] == _RETURN:
        i += 1
    return i


@nonallocating_inlined
def skip_byte(data: U8, i: int, byte: int) -> int:
    """Return the place after blanks and `byte`; the last place if it is not there."""
    i = skip_blanks(data, i)
    return i + 1 if data[i] == byte else len(data) - 1


@nonallocating_inlined
def skip_key(data: U8, i: int, key: U8) -> int:
    """Return the place after blanks and the key; the last place if it is not there."""
    i = skip_blanks(data, i)
    for k in range(len(key)):
        if data[i + k] != key[k]:
            return len(data) - 1
    return i + len(key)


@nonallocating_inlined
def first_item(data: U8, i: int) -> tuple[int, bool]:
    """Return (the place of a list's first item, False), from after the opening bracket on.

    For an empty list, return (the place after the closing bracket, True).
    """
    i = skip_blanks(data, i)
    if data[i] == CLOSE_LIST:
        return i + 1, True
    return i, False


@nonallocating_inlined
def next_item(data: U8, i: int) -> tuple[int, bool]:
    """Return (the place of the item after one that ends at i, False).

    After the last item, return (the place after the closing bracket, True).
    """
    i, is_end = first_item(data, i)
    if not is_end:
        i = skip_blanks(data, skip_byte(data, i, COMMA))
    return i, is_end


@nonallocating_inlined
def read_ids(data: U8, i: int, limit: int, ids_out: NDArray[Any], n: int) -> tuple[int, int]:
    """Read a list of integers in [0, limit), from after its opening bracket on, into ids_out[n:].

    Return (the place after the closing bracket, the end of the integers in ids_out). The place is
    the last one if the list has anything else, or there is no room.
    """
    i, is_end = first_item(data, i)
    while not is_end:
        number, end = parse_id(data, i, limit)
        if n == len(ids_out) or end == i or number >= limit or (data[i] == ZERO and end > i + 1):
            return len(data) - 1, n
        ids_out[n] = number
        n += 1
        i, is_end = next_item(data, end)
    return i, n


@nonallocating_inlined
def read_numbers(data: U8, i: int, values_out: F32, n: int) -> tuple[int, int]:
    """Read a list of numbers, from after its opening bracket on, into values_out[n:].

    Return as `read_ids` does. Reading stops at the first item that is no number, so that the work
    is bounded by the length of the data.
    """
    i, is_end = first_item(data, i)
    while not is_end:
        if n == len(values_out):
            return len(data) - 1, n
        values_out[n], i = read_number(data, i)
        if i == len(data) - 1:
            return i, n
        n += 1
        i, is_end = next_item(data, i)
    return i, n


@nonallocating_inlined
def read_number(data: U8, i: int) -> tuple[np.float32, int]:
    """Read the number at data[i]; return (the number, the place after it).

    The place is the last one if there is no number. Negative zeros, and numbers that
    `parse_decimal` does not read itself, count as none.
    """
    if not _is_json_number(data, i):
        return np.float32(0.0), len(data) - 1
    value, end, code = parse_decimal(data, i)
    if code != EXACT or (value == 0 and data[i] == MINUS):
        return np.float32(0.0), len(data) - 1
    return value, end


@nonallocating_inlined
def _is_json_number(data: U8, i: int) -> bool:
    """Return whether a number at data[i] that `parse_decimal` accepts is valid JSON too.

    JSON requires a digit at the start and after the point, and no digit after a leading zero.
    """
    if data[i] == MINUS:
        i += 1
    if not is_digit(data[i]) or (data[i] == ZERO and is_digit(data[i + 1])):
        return False
    while is_digit(data[i]):
        i += 1
    return data[i] != DOT or is_digit(data[i + 1])


@nonallocating_inlined
def read_instance(
    data: U8, i: int, limit: int, ids_out: NDArray[Any], values_out: F32, start: int
) -> tuple[int, int]:
    """Read `{"indices": [...], "values": [...]}` into ids_out[start:] and values_out[start:].

    Return (the place after the object, the end of its features in the arrays).
    """
    i = skip_byte(data, i, OPEN)
    i = skip_byte(data, skip_key(data, i, INDICES), COLON)
    i, end = read_ids(data, skip_byte(data, i, OPEN_LIST), limit, ids_out, start)
    i = skip_byte(data, i, COMMA)
    i = skip_byte(data, skip_key(data, i, VALUES), COLON)
    i, values_end = read_numbers(data, skip_byte(data, i, OPEN_LIST), values_out, start)
    if values_end != end:
        return len(data) - 1, end
    return skip_byte(data, i, CLOSE), end
