"""Write float32 numbers as JSON, with the fewest decimal digits that distinguish a number from its
neighbours.

Source: Raffaele Giulietti, "The Schubfach way to render doubles" (2020), for 32-bit floats. The
layout is orjson's: `0.25`, `1e-7`, `120.0`, `1e+13`, so that a kernel and the library write the
same text.
"""

import math
from fractions import Fraction

import numpy as np

from xylem.serving.kernels.sparse_json import DOT, MINUS, ZERO
from xylem_store import U8, nonallocating_inlined

# The most bytes with which a score is written.
TEXT_BYTES_MAX = 20

_K_MIN = -31
_K_MAX = 45
_32 = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_PLUS = 43
_SMALL_E = 101


_EXACT_POWERS = [
    Fraction(10) ** k * Fraction(2) ** (63 - (k * 1741647 >> 19)) for k in range(_K_MIN, _K_MAX + 1)
]

# The powers of ten, each times the power of two that gives it 64 bits, rounded up.
_POWERS = np.array([math.ceil(power) for power in _EXACT_POWERS], np.uint64)


@nonallocating_inlined
def _round_to_odd(power: np.uint64, factor: np.uint64) -> np.uint64:
    """Return the upper 32 bits of the 96-bit product, rounded to odd.

    The last of them is set if any of the next 32 bits, except the lowest one, is set.
    """
    upper = (power >> _32) * factor + (((power & _LOW_32) * factor) >> _32)
    odd = np.uint64(1) if upper & _LOW_32 > np.uint64(1) else np.uint64(0)
    return (upper >> _32) | odd


@nonallocating_inlined
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


@nonallocating_inlined
def _write_digits(digits: np.int64, n: int, out: U8, position: int) -> None:
    for i in range(position + n - 1, position - 1, -1):
        out[i] = ZERO + digits % 10
        digits //= 10


@nonallocating_inlined
def _length(digits: np.int64) -> int:
    n = 1
    while digits >= 10:
        digits //= 10
        n += 1
    return n


@nonallocating_inlined
def write_integer(number: np.int64, out: U8, position: int) -> int:
    """Write an integer >= 0 at out[position]; return where it ends."""
    n = _length(number)
    _write_digits(number, n, out, position)
    return position + n


@nonallocating_inlined
def _write_exponent(exponent: int, out: U8, position: int) -> int:
    out[position] = _SMALL_E
    out[position + 1] = MINUS if exponent < 0 else _PLUS
    return write_integer(np.int64(abs(exponent)), out, position + 2)


@nonallocating_inlined
def write_float32(bits: np.uint32, out: U8, position: int) -> int:
    """Write the float32 that has these bits, finite and >= 0, at out[position]; return its end."""
    if bits == 0:
        out[position] = ZERO
        out[position + 1] = DOT
        out[position + 2] = ZERO
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
            out[position + n_whole_digits] = DOT
            out[position + n_whole_digits + 1] = ZERO
            return position + n_whole_digits + 2
        _write_digits(digits, n, out, position + 1)
        for i in range(position, position + point):
            out[i] = out[i + 1]
        out[position + point] = DOT
        return position + n + 1
    if -6 < point <= 0:
        out[position] = ZERO
        out[position + 1] = DOT
        for i in range(-point):
            out[position + 2 + i] = ZERO
        _write_digits(digits, n, out, position + 2 - point)
        return position + 2 - point + n
    if n == 1:
        out[position] = ZERO + digits
        return _write_exponent(point - 1, out, position + 1)
    _write_digits(digits, n, out, position + 1)
    out[position] = out[position + 1]
    out[position + 1] = DOT
    return _write_exponent(point - 1, out, position + n + 1)
