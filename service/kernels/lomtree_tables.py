"""Many small hash tables, one a node, in one pool of slots of fixed size.

A table takes a block of 2^b slots of the pool and moves to one of twice the size when three quarters of its
slots are used; blocks left behind serve other tables. So memory is bounded by the pool, whatever the number
of tables, keys and releases. Keys are int32 >= 0, found by linear probing. A pool that has no room refuses
new keys and counts them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model_store.jit import borrowing_inlined as inlined
from model_store.jit import borrowing_kernel as kernel
from service.kernels.simd import prefetch

Integer = int | np.int64

_NONE = -1
_BITS_MIN = 3
_SIZES = 32
SLOTS_MAX = (1 << 31) - 1
"""The most slots of a pool: the start of a block stands in a key."""

_TAKEN, _REFUSED = 0, 1


class Pool(NamedTuple):
    """The tables of n nodes.

    start   int64[n]      the first slot of the node's block, another whenever the table moves; -1: none
    bits    int8[n]       log2 of the slots of its block; -1: the table is empty and has none
    used    int64[n]      keys in the table
    free    int64[32]     the first free block of 2^i slots, -1: none; its first key says where the next
                          one starts
    counts  int64[2]      slots of the pool given out so far, and keys refused since the pool was made
    key     int32[P]      -1: the slot is free; of slots not given out, anything
    value   float[P, V]   what belongs to the key
    """

    start: NDArray[np.int64]
    bits: NDArray[np.int8]
    used: NDArray[np.int64]
    free: NDArray[np.int64]
    counts: NDArray[np.int64]
    key: NDArray[np.int32]
    value: NDArray[Any]


def make_pool(n_tables: int, n_slots: int, n_values: int, dtype: DTypeLike) -> Pool:
    """Return empty tables over so many slots, at most SLOTS_MAX; memory is touched only as slots are used."""
    return Pool(
        start=np.full(n_tables, _NONE, np.int64),
        bits=np.full(n_tables, _NONE, np.int8),
        used=np.zeros(n_tables, np.int64),
        free=np.full(_SIZES, _NONE, np.int64),
        counts=np.zeros(2, np.int64),
        key=np.empty(n_slots, np.int32),
        value=np.empty((n_slots, n_values), dtype),
    )


def n_refused(pool: Pool) -> int:
    """Return how many times a key found no room."""
    return int(pool.counts[_REFUSED])


def slots_taken(pool: Pool) -> int:
    """Return how many slots of the pool have been used at some time."""
    return int(pool.counts[_TAKEN])


@inlined
def _place(key: Integer, bits: Integer) -> Any:
    """Return where in a block of 2^bits slots the search for a key begins (multiplicative hashing)."""
    mixed = (np.uint64(key) * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    return np.int64(mixed >> np.uint64(32 - bits))


@inlined
def fetch(pool: Pool, table: Integer, key: Integer) -> None:
    """Ask for the cache lines at which the search for a key begins, before many of them are searched for."""
    bits = np.int64(pool.bits[table])
    if bits >= 0:
        at = pool.start[table] + _place(key, bits)
        prefetch(pool.key, at)
        prefetch(pool.value, at * pool.value.shape[1])


@inlined
def find(pool: Pool, table: Integer, key: Integer) -> Any:
    """Return the slot of a key, -1 when the table does not have it."""
    bits = np.int64(pool.bits[table])
    if bits < 0:
        return np.int64(_NONE)
    start, mask = pool.start[table], (np.int64(1) << bits) - 1
    at = _place(key, bits)
    while pool.key[start + at] != key:
        if pool.key[start + at] == _NONE:
            return np.int64(_NONE)
        at = (at + 1) & mask
    return start + at


@kernel
def _take_block(pool: Pool, bits: Integer) -> Any:
    """Return the start of an empty block of 2^bits slots, -1 when the pool has none."""
    size = np.int64(1) << bits
    start = np.int64(pool.free[bits])
    if start != _NONE:
        pool.free[bits] = pool.key[start]
    else:
        start = np.int64(pool.counts[_TAKEN])
        if start + size > len(pool.key):
            return _NONE
        pool.counts[_TAKEN] = start + size
    for slot in range(start, start + size):
        pool.key[slot] = _NONE
    return start


@kernel
def _give_block(pool: Pool, start: Integer, bits: Integer) -> None:
    pool.key[start] = pool.free[bits]
    pool.free[bits] = start


@kernel
def _widen(pool: Pool, table: Integer) -> bool:
    """Move a table to a block of twice the size; return whether there was room."""
    old_bits, old_start = np.int64(pool.bits[table]), pool.start[table]
    bits = np.int64(_BITS_MIN) if old_bits < 0 else old_bits + 1
    if bits >= _SIZES:
        return False
    start = _take_block(pool, bits)
    if start < 0:
        return False
    if old_bits >= 0:
        mask = (np.int64(1) << bits) - 1
        for slot in range(old_start, old_start + (np.int64(1) << old_bits)):
            key = pool.key[slot]
            if key != _NONE:
                at = _place(np.int64(key), bits)
                while pool.key[start + at] != _NONE:
                    at = (at + 1) & mask
                pool.key[start + at] = key
                for i in range(pool.value.shape[1]):
                    pool.value[start + at, i] = pool.value[slot, i]
        _give_block(pool, old_start, old_bits)
    pool.start[table] = start
    pool.bits[table] = bits
    return True


@inlined
def insert(pool: Pool, table: Integer, key: Integer) -> Any:
    """Return the slot of a key, a new one having the values 0; -1 when the pool has no room for it."""
    slot = find(pool, table, key)
    if slot >= 0:
        return slot
    bits = np.int64(pool.bits[table])
    # bits -1: 3 << -1 is not defined, and a table without a block is full
    if (bits < 0 or 4 * (pool.used[table] + 1) > np.int64(3) << bits) and not _widen(pool, table):
        pool.counts[_REFUSED] += 1
        return np.int64(_NONE)
    bits, start = np.int64(pool.bits[table]), pool.start[table]
    mask = (np.int64(1) << bits) - 1
    at = _place(key, bits)
    while pool.key[start + at] != _NONE:
        at = (at + 1) & mask
    pool.key[start + at] = key
    for i in range(pool.value.shape[1]):
        pool.value[start + at, i] = 0.0
    pool.used[table] += 1
    return start + at


@kernel
def release(pool: Pool, table: Integer) -> None:
    """Empty a table; its block serves others."""
    if pool.bits[table] >= 0:
        _give_block(pool, pool.start[table], np.int64(pool.bits[table]))
    pool.start[table] = _NONE
    pool.bits[table] = _NONE
    pool.used[table] = 0


def items(pool: Pool, table: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return (keys ascending, their values) of a table, copied."""
    if pool.bits[table] < 0:
        return np.empty(0, np.int32), np.empty((0, pool.value.shape[1]), pool.value.dtype)
    block = slice(int(pool.start[table]), int(pool.start[table]) + (1 << int(pool.bits[table])))
    keys = pool.key[block]
    here = np.flatnonzero(keys >= 0)
    here = here[np.argsort(keys[here])]
    return keys[here], pool.value[block][here]
