"""The hash of names, with Python's integers."""

from __future__ import annotations


def slow_hash(data: bytes) -> int:
    """FNV-1a, then the finaliser of MurmurHash3."""
    word = (1 << 64) - 1
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & word
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & word
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & word
    return h ^ (h >> 33)
