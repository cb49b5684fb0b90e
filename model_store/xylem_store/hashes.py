"""Hashes of bytes, for stored tables and for tables in memory, and slots of hash tables."""

import secrets

import numpy as np

from xylem_store.compiled.decorators import nonallocating_inlined
from xylem_store.compiled.handles import U8

_32 = np.uint64(32)
_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_33 = np.uint64(33)
_PRIME = np.uint64((1 << 31) - 1)


@nonallocating_inlined
def slot_start(hash_32: np.uint64, n_slots: int) -> np.int64:
    """Return the slot, in [0, n_slots), at which probing begins for a hash of [0, 2^32)."""
    return np.int64((hash_32 * np.uint64(n_slots)) >> _32)


@nonallocating_inlined
def slot_next(slot: np.int64, n_slots: int) -> np.int64:
    """Return the slot to probe after `slot`; after the last one, the first."""
    following = slot + np.int64(1)
    return following if following < n_slots else np.int64(0)


@nonallocating_inlined
def hash_start() -> np.uint64:
    """Return the state of `hash_bytes` before the first byte."""
    return _FNV_OFFSET


@nonallocating_inlined
def hash_byte(h: np.uint64, byte: np.uint8) -> np.uint64:
    """Return the state after one more byte: FNV-1a."""
    return (h ^ np.uint64(byte)) * _FNV_PRIME


@nonallocating_inlined
def hash_end(h: np.uint64) -> np.uint64:
    """Return the hash of the bytes so far; more may follow. The finaliser of MurmurHash3."""
    h = (h ^ (h >> _33)) * _MIX_1
    h = (h ^ (h >> _33)) * _MIX_2
    return h ^ (h >> _33)


@nonallocating_inlined
def hash_bytes(utf8: U8, start: int, end: int) -> np.uint64:
    """Return the 64-bit hash of utf8[start:end]: FNV-1a, then the finaliser of MurmurHash3.

    It is the same on every machine and in every version: stored tables and hashed features rely on
    it.
    """
    h = hash_start()
    for i in range(start, end):
        h = hash_byte(h, utf8[i])
    return hash_end(h)


def new_seed() -> int:
    """Return an odd number below 2^30 that nobody can predict.

    It is for a hash table that is not stored: whoever chooses its keys does not know the seed. Such
    a table gives ids by first appearance, or is read in the order of its keys, so no result depends
    on its seed.

    The highest bits of a key times a seed, modulo 2^w, spread keys of w bits: two of them share one
    of n slots with a probability of about 2 / n (Dietzfelbinger et al. 1997, "A reliable randomized
    algorithm for the closest-pair problem"). The alternative of combining seed and key by xor,
    before multiplying by a public factor, lost: with one seed in five, chosen keys stayed together.
    """
    return 2 * secrets.randbits(29) + 1


@nonallocating_inlined
def seeded_hash(utf8: U8, start: int, end: int, seed: int) -> np.uint64:
    """Return a 64-bit hash of utf8[start:end].

    Source: Carter and Wegman 1979, "Universal classes of hash functions". The bytes are the
    coefficients of a polynomial modulo the prime 2^31 - 1, whose argument is the seed; then the
    finaliser of MurmurHash3. Two names of n bytes, chosen without the seed, have one hash with a
    probability of n / 2^29 at most. FNV-1a from a secret state would not do: whether two names of
    one length collide depends on the lowest 8 bits of that state alone.
    """
    h = np.uint64(1)
    x = np.uint64(seed)
    for i in range(start, end):
        h = h * x + np.uint64(utf8[i])
        h = (h & _PRIME) + (h >> np.uint64(31))  # at most 2^32, for x is below 2^30
    return hash_end(h)
