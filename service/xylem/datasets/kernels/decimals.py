"""Read decimal numbers from bytes."""

import numpy as np

from xylem_store import U8, nonallocating_inlined

_ZERO, _NINE, _PLUS, _MINUS, _DOT, _E, _SMALL_E = b"09+-.Ee"

# The codes of `parse_decimal`.
#
# EXACT: the number has been read; HARD: it is well formed, but the caller must read it; MALFORMED:
# it is no number; NON_FINITE: it is not finite.
EXACT, HARD, MALFORMED, NON_FINITE = range(4)

_POWER_MAX = 60
_DIGITS_MAX = 19
_FLOAT_POWERS = np.array([float(f"1e{power}") for power in range(_POWER_MAX + 1)])
_SLACK = 1e-15


@nonallocating_inlined
def is_digit(byte: int) -> bool:
    """Return whether a byte is an ASCII digit."""
    return _ZERO <= byte <= _NINE


@nonallocating_inlined
def parse_id(data: U8, i: int, limit: int) -> tuple[int, int]:
    """Read the unsigned integer at data[i]; return (the integer, where it ends).

    It ends at i if there is none. For an integer at or above `limit` (which is below 2^40), some
    number at or above `limit` is returned. The data must end with a byte that is no digit.
    """
    number = 0
    while is_digit(data[i]):
        if number < limit:
            number = number * 10 + int(data[i]) - _ZERO
        i += 1
    return number, i


@nonallocating_inlined
def _digits(data: U8, i: int, significand: np.uint64, n: int) -> tuple[np.uint64, int, int, int]:
    """Append the digits at data[i] to `significand`, which has n digits so far.

    Return (significand, n, the digits dropped because there were _DIGITS_MAX already, where the
    digits end).
    """
    dropped = 0
    while is_digit(data[i]):
        if n < _DIGITS_MAX:
            significand = significand * np.uint64(10) + np.uint64(data[i] - _ZERO)
            n += 1 if significand > np.uint64(0) else 0  # leading zeros do not count
        else:
            dropped += 1
        i += 1
    return significand, n, dropped, i


@nonallocating_inlined
def _exponent(data: U8, i: int) -> tuple[int, int, bool]:
    """Read the exponent at data[i]; return (the exponent, its end, whether there is one)."""
    sign = -1 if data[i] == _MINUS else 1
    if data[i] == _MINUS or data[i] == _PLUS:
        i += 1
    number, end = parse_id(data, i, 1 << 20)
    return sign * number, end, end > i


@nonallocating_inlined
def _rounded(significand: np.uint64, power: int) -> tuple[np.float32, int]:
    """Return the float32 of significand * 10^power and EXACT; or HARD if it cannot be rounded here.

    The product in double precision has a relative error below 4 * 2^-53: from the 19 digits that
    are kept, from rounding them to a double, from the power and from the product. If the float32
    at both ends of that error are the same number, it is the float32 of the nearest double.
    """
    if significand == np.uint64(0):
        return np.float32(0.0), EXACT
    if power > _POWER_MAX or power < -_POWER_MAX:
        return np.float32(0.0), HARD
    if power >= 0:
        approximate = np.float64(significand) * _FLOAT_POWERS[power]
    else:
        approximate = np.float64(significand) / _FLOAT_POWERS[-power]
    low = np.float32(approximate * (1.0 - _SLACK))
    high = np.float32(approximate * (1.0 + _SLACK))
    if low != high:
        return low, HARD
    return low, EXACT


@nonallocating_inlined
def parse_decimal(data: U8, i: int) -> tuple[np.float32, int, int]:
    """Read the decimal number at data[i]; return (the number, where it ends, one of the codes
    above).

    The grammar is `[+-] digits [. digits] [e [+-] digits]`, with digits on at least one side of the
    point. The number is float32(float(text)): the double nearest to the text, rounded to float32.
    It is valid only if the code is EXACT. If it is HARD, the text is well formed, and Python's
    float() must read it. `nan` and `inf` are NON_FINITE, and so is a number that is infinite in
    float32. The data must end with a byte that no number contains. Cost: a few nanoseconds a digit.
    """
    negative = data[i] == _MINUS
    if negative or data[i] == _PLUS:
        i += 1
    start = i
    significand, n, dropped, i = _digits(data, i, np.uint64(0), 0)
    n_digits = i - start
    power = dropped
    if data[i] == _DOT:
        start = i + 1
        significand, n, dropped, i = _digits(data, start, significand, n)
        n_digits += i - start
        power -= (i - start) - dropped
    if n_digits == 0:
        letter = data[start] | 32
        code = NON_FINITE if letter == 105 or letter == 110 else MALFORMED  # "i" or "n"
        return np.float32(0.0), i, code
    if data[i] == _E or data[i] == _SMALL_E:
        exponent, i, present = _exponent(data, i + 1)
        if not present:
            return np.float32(0.0), i, MALFORMED
        power += exponent
    value, code = _rounded(significand, power)
    if code == EXACT and np.isinf(value):
        code = NON_FINITE
    return (-value if negative else value), i, code
