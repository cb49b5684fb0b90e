"""Names and keys that collide in a hash table without a seed: each is compared with all others."""

import numpy as np
from numpy.typing import NDArray

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", np.uint8)
_SHARE = 64  # the hashes of all names lie in one part of the table, of this many
_WORD = np.uint64(0xFFFFFFFFFFFFFFFF)


def finalised(h: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes after the finaliser of MurmurHash3."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ (h >> np.uint64(33))) * np.uint64(factor)
    return h ^ (h >> np.uint64(33))


def fnv_hashes(names: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the hash of each row of bytes, as in a table of names."""
    h = np.full(len(names), 0xCBF29CE484222325, np.uint64)
    for column in names.T:
        h = (h ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
    return finalised(h)


def _byte_keys(names: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the hashes, without a seed, of names of eight bytes that are their own keys."""
    return finalised(np.ascontiguousarray(names).view("<u8")[:, 0])


def chosen_names(n: int, length: int = 9, *, by_bytes: bool = False) -> list[str]:
    """Return a usual word and n words of letters and digits whose hashes lie in one 64th.

    by_bytes  whether hashes are those of the names' bytes, where a name of 8 bytes is its own key
    """
    numbers = np.arange(3 * n * _SHARE // 2, dtype=np.int64)
    digits = (numbers[:, None] >> (5 * np.arange(length))) & 31
    names = _LETTERS[digits]
    hashes = _byte_keys(names) if by_bytes else fnv_hashes(names)
    chosen = names[hashes >> np.uint64(58) == 0][:n]
    assert len(chosen) == n
    return ["plainword", *(bytes(name).decode() for name in chosen)]


def chosen_keys(n: int, factor: int, word_bits: int, shift: int, size: int) -> list[int]:
    """Return n keys that multiplicative hashing puts into one 8th of `size` slots.

    The hash of a key is (key * factor mod 2^word_bits) >> shift; its slot is the hash modulo
    `size`, a power of two.
    """
    keys = np.arange(1, 16 * n, dtype=np.uint64)
    hashes = (keys * np.uint64(factor) & (_WORD >> np.uint64(64 - word_bits))) >> np.uint64(shift)
    chosen = keys[hashes % np.uint64(size) < size // 8][:n]
    assert len(chosen) == n
    return [int(key) for key in chosen]


def longest_run(is_used: NDArray[np.bool_]) -> int:
    """Return the largest number of consecutive used slots in a table, which is a ring.

    A search reads at most one slot more.
    """
    empty = np.flatnonzero(~is_used)
    assert len(empty), "a table without an empty slot"
    gaps = np.diff(np.append(empty, empty[0] + len(is_used)))
    return int(gaps.max()) - 1
