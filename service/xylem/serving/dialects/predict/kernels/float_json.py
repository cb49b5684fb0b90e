"""Write float32 numbers as JSON, with the fewest decimal digits that distinguish a number from its
neighbours; and read decimal numbers from bytes.

Source: Raffaele Giulietti, "The Schubfach way to render doubles" (2020), for 32-bit floats. The
layout is orjson's: `0.25`, `1e-7`, `120.0`, `1e+13`, so that a kernel and the library write the
same text.
"""

import math
from fractions import Fraction

import numpy as np

from xylem_store import U8, inlined

TEXT_BYTES_MAX = 20
"""The most bytes with which a score is written."""

_K_MIN = -31
_K_MAX = 45
_32 = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ZERO = 48
_NINE = 57
_PLUS = 43
_MINUS = 45
_DOT = 46
_E = 69
_SMALL_E = 101


_EXACT_POWERS = [
    Fraction(10) ** k * Fraction(2) ** (63 - (k * 1741647 >> 19)) for k in range(_K_MIN, _K_MAX + 1)
]
_POWERS = np.array([math.ceil(power) for power in _EXACT_POWERS], np.uint64)
"""The powers of ten, each times the power of two that gives it 64 bits, rounded up."""


@inlined
def _round_to_odd(power: np.uint64, factor: np.uint64) -> np.uint64:
    """Return the upper 32 bits of the 96-bit product, rounded to odd.

    The last of them is set if any of the next 32 bits, except the lowest one, is set.
    """
    upper = (power >> _32) * factor + (((power & _LOW_32) * factor) >> _32)
    odd = np.uint64(1) if upper & _LOW_32 > np.uint64(1) else np.uint64(0)
    return (upper >> _32) | odd


@inlined
def shortest(bits: np.uint32) -> tuple[np.int64, np.int64]:
    """Return (digits, exponent) of the positive finite float32 that has these bits.

    Reading digits * 10^exponent gives the same float32. Of all such decimal numbers it has the
    fewest digits, and of those with as many it is the nearest. The digits may end in zeros.
    """
    fraction = np.int64(bits) & 0x7FFFFF
    biased = np.int64(bits) >> 23
    mantissa, q = (fraction | 0x800000, biased - 150) if biased else (fraction, np.int64(-149))
    if -24 < q <= 0 and mantissa & ((1 << -q) - 1) == 0:
        return mantissa >> -q, np.int64(0)
    closer_below = fraction == 0 and biased > 1
    k = (q * 1262611 - (524031 if closer_below else 0)) >> 22
    shift = np.uint64(q + ((-k * 1741647) >> 19) + 1)
    power = _POWERS[-k - _K_MIN]
    odd = mantissa & 1
    lower = np.int64(
        _round_to_odd(power, np.uint64(4 * mantissa - (1 if closer_below else 2)) << shift)
    )
    scaled = np.int64(_round_to_odd(power, np.uint64(4 * mantissa) << shift))
    upper = np.int64(_round_to_odd(power, np.uint64(4 * mantissa + 2) << shift))
    lower = lower + odd  # ties go to even: an odd mantissa's interval does not include its ends
    upper = upper - odd
    digits = scaled >> 2
    if digits >= 10:
        tens = digits // 10
        below_fits = lower <= 40 * tens
        above_fits = 40 * tens + 40 <= upper
        if below_fits != above_fits:
            return tens + (1 if above_fits else 0), k + 1
    below_fits = lower <= 4 * digits
    above_fits = 4 * digits + 4 <= upper
    if below_fits != above_fits:
        return digits + (1 if above_fits else 0), k
    middle = 4 * digits + 2
    rounds_up = scaled > middle or (scaled == middle and digits & 1)
    return digits + (1 if rounds_up else 0), k


@inlined
def _write_digits(digits: np.int64, n: int, out: U8, position: int) -> None:
    for i in range(position + n - 1, position - 1, -1):
        out[i] = _ZERO + digits % 10
        digits //= 10


@inlined
def _length(digits: np.int64) -> int:
    n = 1
    while digits >= 10:
        digits //= 10
        n += 1
    return n


@inlined
def write_integer(number: np.int64, out: U8, position: int) -> int:
    """Write an integer >= 0 at out[position]; return where it ends."""
    n = _length(number)
    _write_digits(number, n, out, position)
    return position + n


@inlined
def _write_exponent(exponent: int, out: U8, position: int) -> int:
    out[position] = _SMALL_E
    out[position + 1] = _MINUS if exponent < 0 else _PLUS
    return write_integer(np.int64(abs(exponent)), out, position + 2)


@inlined
def write_float32(bits: np.uint32, out: U8, position: int) -> int:
    """Write the float32 that has these bits, finite and >= 0, at out[position]; return its end."""
    if bits == 0:
        out[position] = _ZERO
        out[position + 1] = _DOT
        out[position + 2] = _ZERO
        return position + 3
    digits, exponent = shortest(bits)
    while digits % 10 == 0:
        digits //= 10
        exponent += 1
    n = _length(digits)
    point = n + int(exponent)  # the number of digits before the point
    if 0 < point <= 13:
        n_whole_digits = max(n, point)
        for _ in range(exponent):
            digits *= 10
        if exponent >= 0:
            _write_digits(digits, n_whole_digits, out, position)
            out[position + n_whole_digits] = _DOT
            out[position + n_whole_digits + 1] = _ZERO
            return position + n_whole_digits + 2
        _write_digits(digits, n, out, position + 1)
        for i in range(position, position + point):
            out[i] = out[i + 1]
        out[position + point] = _DOT
        return position + n + 1
    if -6 < point <= 0:
        out[position] = _ZERO
        out[position + 1] = _DOT
        for i in range(-point):
            out[position + 2 + i] = _ZERO
        _write_digits(digits, n, out, position + 2 - point)
        return position + 2 - point + n
    if n == 1:
        out[position] = _ZERO + digits
        return _write_exponent(point - 1, out, position + 1)
    _write_digits(digits, n, out, position + 1)
    out[position] = out[position + 1]
    out[position + 1] = _DOT
    return _write_exponent(point - 1, out, position + n + 1)


EXACT = 0
HARD = 1
MALFORMED = 2
NON_FINITE = 3
"""The codes of `parse_decimal`.

EXACT: the number has been read; HARD: it is well formed, but the caller must read it; MALFORMED: it
is no number; NON_FINITE: it is not finite.
"""

_POWER_MAX = 60
_DIGITS_MAX = 19
_FLOAT_POWERS = np.array([float(f"1e{power}") for power in range(_POWER_MAX + 1)])
_FLOAT32_MAX = np.float64(np.finfo(np.float32).max)
_SLACK = 1e-15


@inlined
def is_digit(byte: int) -> bool:
    """Return whether a byte is an ASCII digit."""
    return _ZERO <= byte <= _NINE


@inlined
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


@inlined
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


@inlined
def _exponent(data: U8, i: int) -> tuple[int, int, bool]:
    """Read the exponent at data[i]; return (the exponent, its end, whether there is one)."""
    sign = -1 if data[i] == _MINUS else 1
    if data[i] == _MINUS or data[i] == _PLUS:
        i += 1
    number, end = parse_id(data, i, 1 << 20)
    return sign * number, end, end > i


@inlined
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


@inlined
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
