"""Names of a few bytes, each found by one read of memory: what n-grams of characters are looked up in.

A table of names is larger than a processor's near caches. To find a name in a NameTable takes three reads
that wait for each other: of its slot, its offset and its bytes. Here a slot holds the bytes, and the id.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from model_store.names import NameTable, hash_bytes, hash_end, slot_next, slot_start

SHORT_BYTES = 8
"""A name of so many bytes at most is its own key."""

SLOTS_A_NAME = 2
"""Half of the slots are empty, so that most searches end at the first one."""

_8, _32, _48 = np.uint64(8), np.uint64(32), np.uint64(48)
_NONE = np.uint64(0)
_LONG = np.uint64(0xFF << 56)
_HASH_BITS = np.uint64((1 << 48) - 1)
_LENGTH_MAX = 0xFF


@inlined
def key_and_byte(key: np.uint64, n_bytes: int, byte: np.uint8) -> np.uint64:
    """Return the key of `n_bytes` bytes, whose key this is, and one more: SHORT_BYTES in all at most.

    The key of no bytes is 0. None has it else: no name has a byte of 0.
    """
    return key | np.uint64(byte) << (_8 * np.uint64(n_bytes))


@inlined
def long_key(utf8: NDArray[np.uint8], start: int, end: int) -> np.uint64:
    """Return the key of a name of more than SHORT_BYTES bytes: its length, up to 255, and bits of its hash.

    Long names may share one, but no short one has it, as no byte of UTF-8 is 0xFF.
    """
    length = np.uint64(min(end - start, _LENGTH_MAX))
    return _LONG | length << _48 | hash_bytes(utf8, start, end) & _HASH_BITS


@inlined
def is_long(key: np.uint64) -> bool:
    """Return whether a key is one of `long_key`."""
    return bool(key >= _LONG)


@inlined
def first_slot(key: np.uint64, n_slots: int) -> np.int64:
    """Return the slot in which the search for a key begins."""
    return slot_start(hash_end(key) >> _32, n_slots)


def short_names(names: NameTable) -> NDArray[np.uint64]:
    """Return the table of these names, uint64[n_slots, 2]: a key, or 0 for none, and the id of the name.

    It takes 32 bytes a name. Linear: 10 milliseconds for 180,000 names.
    """
    return _fill(names.offsets, names.utf8)


@kernel
def _fill(offsets: NDArray[np.int64], utf8: NDArray[np.uint8]) -> NDArray[np.uint64]:
    n_names = len(offsets) - 1
    table = np.zeros((SLOTS_A_NAME * n_names + 1, 2), np.uint64)
    for name in range(n_names):
        start, end = offsets[name], offsets[name + 1]
        key = np.uint64(0)
        if end - start > SHORT_BYTES:
            key = long_key(utf8, start, end)
        else:
            for i in range(start, end):
                key = key_and_byte(key, i - start, utf8[i])
        slot = first_slot(key, len(table))
        while table[slot, 0] != _NONE:
            slot = slot_next(slot, len(table))
        table[slot, 0], table[slot, 1] = key, name
    return table


@inlined
def key_slot(table: NDArray[np.uint64], slot: np.int64, key: np.uint64) -> np.int64:
    """Return the first slot from `slot` on that holds a key, or is empty."""
    while table[slot, 0] != key and table[slot, 0] != _NONE:
        slot = slot_next(slot, len(table))
    return slot


@inlined
def long_slot(
    table: NDArray[np.uint64],
    slot: np.int64,
    offsets: NDArray[np.int64],
    utf8: NDArray[np.uint8],
    query: NDArray[np.uint8],
    start: int,
) -> np.int64:
    """Return the first slot from `slot` on that holds the name at `start` of `query`, or is empty.

    slot           holds the key of that name, which has up to 254 bytes, or is empty
    offsets, utf8  of the NameTable
    """
    key = table[slot, 0]
    while table[slot, 0] != _NONE:
        if table[slot, 0] == key:
            name = np.int64(table[slot, 1])
            i, length = 0, offsets[name + 1] - offsets[name]
            while i < length and utf8[offsets[name] + i] == query[start + i]:
                i += 1
            if i == length:
                break
        slot = slot_next(slot, len(table))
    return slot
