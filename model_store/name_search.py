"""Names that have a part, in capitals or not: a pass over the bytes of all, without a string for any."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel

_FOLDED_BELOW = 0x20000
"""No code point from here on has another in lower case; a test looks at all of them."""

_BLOCK = 64

_LONGEST = 3
"""Code points that one becomes, at most."""


def names_with(offsets: NDArray[np.int64], utf8: NDArray[np.uint8], part: str) -> NDArray[np.bool_]:
    """Return bool[n]: which of n texts, utf8[offsets[i]:offsets[i + 1]], have a part.

    Both are compared by `str.casefold`. All texts are UTF-8 (the caller's duty). 2 to 3 nanoseconds a byte.
    """
    wanted = np.array([ord(character) for character in part.casefold()], np.int32)
    found = np.ones(len(offsets) - 1, np.bool_)
    if len(wanted):
        _search(offsets, utf8, wanted, _fallbacks(wanted), _folded(), found)
    return found


@functools.cache
def _folded() -> NDArray[np.int32]:
    """Return int32[c, 3]: what `str.casefold` makes of each code point, 0 where it makes fewer."""
    table = np.zeros((_FOLDED_BELOW, _LONGEST), np.int32)
    table[:, 0] = np.arange(_FOLDED_BELOW)
    every = np.arange(_FOLDED_BELOW, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for first in range(0, _FOLDED_BELOW, _BLOCK):
        block = every[first : first + _BLOCK]
        if block.casefold() == block:  # most are
            continue
        for code, character in enumerate(block, first):
            folded = character.casefold()
            table[code, : len(folded)] = [ord(each) for each in folded]
    return table


def _fallbacks(wanted: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return int32[m]: how much of the part's first i + 1 points begins it anew when the next does not fit.

    Source: Knuth, Morris and Pratt, "Fast pattern matching in strings", 1977.
    """
    fallback = np.zeros(len(wanted), np.int32)
    n = 0
    for i in range(1, len(wanted)):
        while n and wanted[i] != wanted[n]:
            n = int(fallback[n - 1])
        n += int(wanted[i] == wanted[n])
        fallback[i] = n
    return fallback


@inlined
def _decoded(utf8: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return the code point at a place, which is not ASCII, and how many bytes it has."""
    byte = np.int64(utf8[at])
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | (utf8[at + 1] & 0x3F), 2
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | (np.int64(utf8[at + 1]) & 0x3F) << 6 | (utf8[at + 2] & 0x3F), 3
    high = (byte & 0x07) << 18 | (np.int64(utf8[at + 1]) & 0x3F) << 12
    return high | (np.int64(utf8[at + 2]) & 0x3F) << 6 | (utf8[at + 3] & 0x3F), 4


@inlined
def _after(n: int, code: int, wanted: NDArray[np.int32], fallback: NDArray[np.int32]) -> int:
    """Return how many points of the part fit after one more code point, where n of them did before."""
    while n > 0 and wanted[n] != code:
        n = fallback[n - 1]
    return n + 1 if wanted[n] == code else n


@kernel
def _search(
    offsets: NDArray[np.int64],
    utf8: NDArray[np.uint8],
    wanted: NDArray[np.int32],
    fallback: NDArray[np.int32],
    folded: NDArray[np.int32],
    found_out: NDArray[np.bool_],
) -> None:
    for i in range(len(found_out)):
        at, end, n = offsets[i], offsets[i + 1], 0
        while at < end and n < len(wanted):
            byte, length = int(utf8[at]), 1
            if byte < 0x80:
                lower = byte + 32 if 65 <= byte <= 90 else byte
                n = _after(n, lower, wanted, fallback)
            else:
                code, length = _decoded(utf8, at)
                if code >= len(folded):
                    n = _after(n, code, wanted, fallback)
                else:
                    k = 0
                    while k < folded.shape[1] and folded[code, k] != 0 and n < len(wanted):
                        n = _after(n, folded[code, k], wanted, fallback)
                        k += 1
            at += length
        found_out[i] = n == len(wanted)
