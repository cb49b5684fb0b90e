"""What kernels read of JSON: keys that are expected, lists of ids and of numbers.

It is a part of what JSON allows. The data end with END and a byte that is nothing expected, and
what is not as expected leads to that last byte: no step goes past it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.engine.kernels.text.digits import EXACT, is_digit, parse_decimal, parse_id
from xylem_store import F32, U8, inlined

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
_ZERO = 48
_MINUS = 45
_DOT = 46


@inlined
def skip_blanks(data: U8, i: int) -> int:
    """Return the place after blanks; a line's end is none."""
    while data[i] == _SPACE or data[i] == _TAB or data[i] == _RETURN:
        i += 1
    return i


@inlined
def after(data: U8, i: int, byte: int) -> int:
    """Return the place after blanks and `byte`; the last of all if it is not there."""
    i = skip_blanks(data, i)
    return i + 1 if data[i] == byte else len(data) - 1


@inlined
def after_key(data: U8, i: int, key: U8) -> int:
    """Return the place after blanks and the key; the last of all if it is not there."""
    i = skip_blanks(data, i)
    for k in range(len(key)):
        if data[i + k] != key[k]:
            return len(data) - 1
    return i + len(key)


@inlined
def first_item(data: U8, i: int) -> tuple[int, bool]:
    """Return the place of a list's first item, from after the bracket on, and False.

    Of an empty list it is the place after the other bracket, and True.
    """
    i = skip_blanks(data, i)
    if data[i] == CLOSE_LIST:
        return i + 1, True
    return i, False


@inlined
def next_item(data: U8, i: int) -> tuple[int, bool]:
    """Return the place of the item after one that ends at i, and
    False; after the last as `first_item`.
    """
    i, is_end = first_item(data, i)
    if not is_end:
        i = skip_blanks(data, after(data, i, COMMA))
    return i, is_end


@inlined
def read_ids(data: U8, i: int, limit: int, ids_out: NDArray[Any], n: int) -> tuple[int, int]:
    """Read integers from 0 to below the limit from after the bracket to
    after its fellow, into ids_out[n:].

    Returns (that place, their end); the last place of all when they are others, or there is no
    room.
    """
    i, is_end = first_item(data, i)
    while not is_end:
        number, end = parse_id(data, i, limit)
        if n == len(ids_out) or end == i or number >= limit or (data[i] == _ZERO and end > i + 1):
            return len(data) - 1, n
        ids_out[n] = number
        n += 1
        i, is_end = next_item(data, end)
    return i, n


@inlined
def read_numbers(data: U8, i: int, values_out: F32, n: int) -> tuple[int, int]:
    """Read numbers from after the bracket to after its fellow, into
    values_out[n:]; return as `read_ids`.

    At the first thing that is no number it stops: the work is bounded by the data's length.
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


@inlined
def read_number(data: U8, i: int) -> tuple[np.float32, int]:
    """Read the number at data[i]; return (it, the place after
    it), the last of all if there is none.

    A negative zero is none, nor is one that `parse_decimal` leaves to others.
    """
    if not _is_json_number(data, i):
        return np.float32(0.0), len(data) - 1
    value, end, code = parse_decimal(data, i)
    if code != EXACT or (value == 0 and data[i] == _MINUS):
        return np.float32(0.0), len(data) - 1
    return value, end


@inlined
def _is_json_number(data: U8, i: int) -> bool:
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


@inlined
def read_instance(
    data: U8, i: int, limit: int, ids_out: NDArray[Any], values_out: F32, start: int
) -> tuple[int, int]:
    """Read `{"indices": [...], "values": [...]}`; return (the place
    after it, where its features end).
    """
    i = after(data, i, OPEN)
    i = after(data, after_key(data, i, INDICES), COLON)
    i, end = read_ids(data, after(data, i, OPEN_LIST), limit, ids_out, start)
    i = after(data, i, COMMA)
    i = after(data, after_key(data, i, VALUES), COLON)
    i, values_end = read_numbers(data, after(data, i, OPEN_LIST), values_out, start)
    if values_end != end:
        return len(data) - 1, end
    return after(data, i, CLOSE), end
