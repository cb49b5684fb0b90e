"""Read decimal numbers out of bytes, inside kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined

EXACT, HARD, MALFORMED, NON_FINITE = 0, 1, 2, 3
"""What `parse_decimal` says: read; well formed, but for the caller to read; no number; not finite."""

_POWER_MAX = 60
_DIGITS_MAX = 19
_POWERS = np.array([float(f"1e{power}") for power in range(_POWER_MAX + 1)])
_FLOAT32_MAX = np.float64(np.finfo(np.float32).max)
_SLACK = 1e-15

_ZERO, _NINE = 48, 57
_PLUS, _MINUS, _DOT, _E, _E_SMALL = 43, 45, 46, 69, 101


@inlined
def is_digit(byte: int) -> bool:
    """Return whether a byte is an ASCII digit."""
    return _ZERO <= byte <= _NINE


@inlined
def parse_id(data: NDArray[np.uint8], i: int, limit: int) -> tuple[int, int]:
    """Read the unsigned integer at data[i]; return (it, where it ends).

    It ends at i when there is none. One at or above `limit` (below 2^40) is returned as some number that is.
    The data must end with a byte that is no digit.
    """
    number = 0
    while is_digit(data[i]):
        if number < limit:
            number = number * 10 + int(data[i]) - _ZERO
        i += 1
    return number, i


@inlined
def _digits(data: NDArray[np.uint8], i: int, whole: np.uint64, n: int) -> tuple[np.uint64, int, int, int]:
    """Read digits on from `whole`, which has n; return (whole, n, digits dropped after _DIGITS_MAX, end)."""
    dropped = 0
    while is_digit(data[i]):
        if n < _DIGITS_MAX:
            whole = whole * np.uint64(10) + np.uint64(data[i] - _ZERO)
            n += 1 if whole > np.uint64(0) else 0  # zeros in front do not count
        else:
            dropped += 1
        i += 1
    return whole, n, dropped, i


@inlined
def _exponent(data: NDArray[np.uint8], i: int) -> tuple[int, int, bool]:
    """Read what follows the `e` before data[i]; return (the exponent, its end, whether there is one)."""
    sign = -1 if data[i] == _MINUS else 1
    if data[i] == _MINUS or data[i] == _PLUS:
        i += 1
    number, end = parse_id(data, i, 1 << 20)
    return sign * number, end, end > i


@inlined
def _rounded(whole: np.uint64, power: int) -> tuple[np.float32, int]:
    """Return the float32 of whole * 10^power and EXACT, or HARD when more care is needed to round it.

    The product in double precision is off by less than 4 * 2^-53 of itself: of the 19 digits kept, of their
    rounding to a double, of the power's and of the product's. When the float32 on either side of that
    error are one number, it is the float32 of the nearest double.
    """
    if whole == np.uint64(0):
        return np.float32(0.0), EXACT
    if power > _POWER_MAX or power < -_POWER_MAX:
        return np.float32(0.0), HARD
    if power >= 0:
        about = np.float64(whole) * _POWERS[power]
    else:
        about = np.float64(whole) / _POWERS[-power]
    low, high = np.float32(about * (1.0 - _SLACK)), np.float32(about * (1.0 + _SLACK))
    if low != high:
        return low, HARD
    return low, EXACT


@inlined
def parse_decimal(data: NDArray[np.uint8], i: int) -> tuple[np.float32, int, int]:
    """Read the decimal number at data[i]; return (it, where it ends, EXACT or another of the codes above).

    The grammar is `[+-] digits [. digits] [e [+-] digits]` with digits on one side of the point at least. The
    result is float32(float(text)): the double nearest to the text, rounded to float32. It is returned for
    EXACT only; a number with code HARD is right in form, and Python's float() must read it. `nan` and `inf`
    are NON_FINITE, and so is a number that is infinite in float32. The data must end with a byte that no
    number holds. A few nanoseconds a digit.
    """
    negative = data[i] == _MINUS
    if negative or data[i] == _PLUS:
        i += 1
    start = i
    whole, n, dropped, i = _digits(data, i, np.uint64(0), 0)
    n_digits, power = i - start, dropped
    if data[i] == _DOT:
        start = i + 1
        whole, n, dropped, i = _digits(data, start, whole, n)
        n_digits += i - start
        power -= (i - start) - dropped
    if n_digits == 0:
        letter = data[start] | 32
        code = NON_FINITE if letter == 105 or letter == 110 else MALFORMED  # i, n
        return np.float32(0.0), i, code
    if data[i] == _E or data[i] == _E_SMALL:
        exponent, i, present = _exponent(data, i + 1)
        if not present:
            return np.float32(0.0), i, MALFORMED
        power += exponent
    value, code = _rounded(whole, power)
    if code == EXACT and np.isinf(value):
        code = NON_FINITE
    return (-value if negative else value), i, code
