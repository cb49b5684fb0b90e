"""Many small hash tables, one for each node, in one pool of slots of fixed size.

A table uses a block of 2^b slots of the pool, and moves to a block of twice the size when three
quarters of its slots are used; blocks that become free are used by other tables. Memory is bounded
by the pool, whatever the number of tables, keys and releases. Keys are int32 >= 0, found by linear
probing. A pool that has no room refuses new keys and counts them.

A slot holds a key and its three values side by side, and lies within a cache line: finding a key
costs one cache miss, and `fetch` prefetches it.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xylem.base import ranges
from xylem_store import (
    I32,
    I64,
    U8,
    new_seed,
    nonallocating_inlined,
    nonallocating_kernel,
    prefetch,
)

Integer = int | np.int64

# The fields of a table in a pool: see `Pool`.
TABLE = np.dtype([("start", np.int64), ("used", np.int32), ("bits", np.int32)])

# Number of values of a key.
N_VALUES = 3

LINE_BYTES = 64

_SLOT = N_VALUES + 1
_NONE = -1

# A table has 2^BITS_MIN slots at least, and fewer than 2^SIZES.
BITS_MIN = 3
SIZES = 32

_ALLOCATED = 0
_REFUSED = 1
_FACTOR = 2


class Pool(NamedTuple):
    """The tables of n nodes.

    start   int64[n]      the first slot of the node's block, which changes when the table moves;
                          -1: no block
    used    int32[n]      number of keys in the table
    bits    int32[n]      log2 of the number of slots of its block; -1: the table is empty and has
                          no block
    free    int64[32]     start of the first free block of 2^i slots, -1: none; the first key of a
                          free block is the start of the next one
    counts  int64[3]      number of slots that blocks have used so far; number of keys refused since
                          the pool was made; the factor of the hash function, which differs from run
                          to run
    key     int32[P]      -1: the slot is free; undefined for slots outside blocks
    value   float[P, 4]   the values of the key; `key` is a view of the last column
    """

    start: I64
    used: I32
    bits: I32
    free: I64
    counts: I64
    key: I32
    value: NDArray[Any]


def aligned(n_bytes: int) -> U8:
    """Return uninitialised memory that begins on a cache line."""
    raw = np.empty(n_bytes + LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % LINE_BYTES
    return raw[start : start + n_bytes]


def make_pool(tables: NDArray[Any], n_slots: int, dtype: DTypeLike) -> Pool:
    """Return a pool of n_slots slots with empty tables.

    The operating system assigns memory only as slots are used.

    tables   TABLE[n]; the pool refers to it and writes it
    n_slots  below 2^31, because a free block stores a start in an int32 key
    """
    tables["start"] = _NONE
    tables["used"] = 0
    tables["bits"] = _NONE
    value = aligned(n_slots * _SLOT * np.dtype(dtype).itemsize).view(dtype).reshape(n_slots, _SLOT)
    return Pool(
        start=tables["start"],
        used=tables["used"],
        bits=tables["bits"],
        free=np.full(SIZES, _NONE, np.int64),
        counts=np.array([0, 0, new_seed() * 0x9E3779B1 & 0xFFFFFFFF]),
        key=value.view(np.int32)[:, N_VALUES * (np.dtype(dtype).itemsize // 4)],
        value=value,
    )


def n_refused(pool: Pool) -> int:
    """Return the number of times that a key was refused."""
    return int(pool.counts[_REFUSED])


def contents(pool: Pool, tables: I64) -> tuple[I64, I64]:
    """Return the slots of all keys of some tables, sorted by table and key.

    Returns (int64[..], the position in `tables` of each key's table; int64[..], its slot).
    """
    has = np.flatnonzero(pool.bits[tables] >= 0)
    sizes = np.int64(1) << pool.bits[tables[has]].astype(np.int64)
    slots = ranges(pool.start[tables[has]], sizes)
    table = np.repeat(has, sizes)
    used = pool.key[slots] >= 0
    slots = slots[used]
    table = table[used]
    order = np.argsort(table << 32 | pool.key[slots])
    return table[order], slots[order]


@nonallocating_inlined
def _place(pool: Pool, key: Integer, bits: Integer) -> Any:
    """Return the position in a block of 2^bits slots at which the search for a key begins.

    It comes from multiplicative hashing.
    """
    mixed = (np.uint64(key) * np.uint64(pool.counts[_FACTOR])) & np.uint64(0xFFFFFFFF)
    return np.int64(mixed >> np.uint64(32 - bits))


@nonallocating_inlined
def fetch(pool: Pool, table: Integer, keys: I32, first: Integer, last: Integer) -> None:
    """Prefetch the cache lines at which the search for keys[first:last] begins."""
    bits = np.int64(pool.bits[table])
    start = pool.start[table]
    if bits >= 0:
        for i in range(first, last):
            prefetch(pool.value, (start + _place(pool, np.int64(keys[i]), bits)) * _SLOT)


@nonallocating_inlined
def _search(pool: Pool, start: Integer, bits: Integer, key: Integer) -> Any:
    """Return the slot of a key in a block, or the free slot into which it would be inserted."""
    mask = (np.int64(1) << bits) - 1
    offset = _place(pool, key, bits)
    while pool.key[start + offset] != key and pool.key[start + offset] != _NONE:
        offset = (offset + 1) & mask
    return start + offset


@nonallocating_inlined
def find(pool: Pool, table: Integer, key: Integer) -> Any:
    """Return the slot of a key; -1 if the table does not have it."""
    bits = np.int64(pool.bits[table])
    if bits < 0:
        return np.int64(_NONE)
    slot = _search(pool, pool.start[table], bits, key)
    return slot if pool.key[slot] == key else np.int64(_NONE)


@nonallocating_kernel
def _take_block(pool: Pool, bits: Integer) -> Any:
    """Return the start of an empty block of 2^bits slots; -1 if the pool has no room for one."""
    size = np.int64(1) << bits
    start = np.int64(pool.free[bits])
    if start != _NONE:
        pool.free[bits] = pool.key[start]
    else:
        start = np.int64(pool.counts[_ALLOCATED])
        if start + size > len(pool.key):
            return _NONE
        pool.counts[_ALLOCATED] = start + size
    for slot in range(start, start + size):
        pool.key[slot] = _NONE
    return start


@nonallocating_kernel
def _give_block(pool: Pool, start: Integer, bits: Integer) -> None:
    pool.key[start] = pool.free[bits]
    pool.free[bits] = start


@nonallocating_kernel
def _move(pool: Pool, table: Integer, bits: Integer) -> bool:
    """Move a table to a larger block of 2^bits slots; return whether there was room for it."""
    old_bits = np.int64(pool.bits[table])
    old_start = pool.start[table]
    if bits >= SIZES:
        return False
    start = _take_block(pool, bits)
    if start < 0:
        return False
    if old_bits >= 0:
        for slot in range(old_start, old_start + (np.int64(1) << old_bits)):
            key = pool.key[slot]
            if key != _NONE:
                target = _search(pool, start, bits, np.int64(key))
                pool.key[target] = key
                for i in range(N_VALUES):
                    pool.value[target, i] = pool.value[slot, i]
        _give_block(pool, old_start, old_bits)
    pool.start[table] = start
    pool.bits[table] = bits
    return True


@nonallocating_kernel
def reserve(pool: Pool, table: Integer, n_keys: Integer) -> None:
    """Give a table without a block one in which n_keys keys fit, if the pool has room for it."""
    bits = np.int64(BITS_MIN)
    while bits < SIZES and 4 * n_keys > np.int64(3) << bits:
        bits += 1
    _move(pool, table, bits)


@nonallocating_kernel
def _add(pool: Pool, table: Integer, key: Integer) -> Any:
    """Insert a key that the table does not have; return as `insert` does."""
    bits = np.int64(pool.bits[table])
    # bits -1: 3 << -1 is not defined, and a table without a block is full
    if bits < 0 or 4 * (np.int64(pool.used[table]) + 1) > np.int64(3) << bits:
        bits = max(bits + 1, np.int64(BITS_MIN))
        if not _move(pool, table, bits):
            pool.counts[_REFUSED] += 1
            return np.int64(_NONE)
    slot = _search(pool, pool.start[table], bits, key)
    pool.key[slot] = key
    for i in range(N_VALUES):
        pool.value[slot, i] = 0.0
    pool.used[table] += 1
    return slot


@nonallocating_inlined
def insert(pool: Pool, table: Integer, key: Integer) -> Any:
    """Return the slot of a key, which is inserted with the values 0 if the table does not have it.

    Returns -1 if the pool has no room for it.
    """
    slot = find(pool, table, key)
    return slot if slot >= 0 else _add(pool, table, key)


@nonallocating_kernel
def release(pool: Pool, table: Integer) -> None:
    """Empty a table, and free its block for other tables."""
    if pool.bits[table] >= 0:
        _give_block(pool, pool.start[table], np.int64(pool.bits[table]))
    pool.start[table] = _NONE
    pool.bits[table] = _NONE
    pool.used[table] = 0


@nonallocating_kernel
def fill(pool: Pool, ptr: I64, keys: I32, values: NDArray[Any]) -> None:
    """Insert keys[ptr[i] : ptr[i + 1]] and their values into table i, for each i.

    The blocks of the tables must have room for them.
    """
    for table in range(len(ptr) - 1):
        for k in range(ptr[table], ptr[table + 1]):
            slot = insert(pool, table, np.int64(keys[k]))
            if slot >= 0:
                for i in range(N_VALUES):
                    pool.value[slot, i] = values[k, i]
