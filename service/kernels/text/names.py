"""Named features of requests: JSON objects of numbers by name, read into rows.

It is a part of what JSON allows, as in `service.kernels.text.sparse_json`: what is not as expected leads to
the last place of the data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined
from model_store.compiled.handles import I32_1, I64_1, U8_1, handle
from model_store.names import hash_bytes, probe
from service.kernels.text.sparse_json import (
    CLOSE,
    COLON,
    COMMA,
    OPEN,
    after,
    after_key,
    read_number,
    skip_blanks,
)
from service.kernels.text.strings import QUOTE, UTF8_A_CHARACTER, encode, next_code, size_of
from service.rows import RowArrays

_FEATURES = np.frombuffer(b'"features"', np.uint8)
_SIGN_BIT = np.uint64(63)

NO_NAMES, BY_TABLE, BY_HASH = range(3)
"""How features are found by their names."""


@handle
class BodyNames(NamedTuple):
    """What a kernel needs to read the named features of a body.

    kind                  NO_NAMES, BY_TABLE or BY_HASH
    offsets, utf8, slots  of the names, a NameTable; empty but by table
    mask, signed          as `hashed_feature` takes them, by hash
    name                  uint8[..]  where a name is written to, the longest and a character
    """

    kind: int
    offsets: I64_1
    utf8: U8_1
    slots: I32_1
    mask: int
    signed: int
    name: U8_1


@inlined
def hashed_feature(
    utf8: NDArray[np.uint8], start: int, end: int, mask: int, signed: int
) -> tuple[int, np.float32]:
    """Return the feature of a name by the low bits of its hash, and the sign of its values.

    mask    features less one
    signed  0: all signs are 1

    Source: Weinberger et al. 2009, "Feature hashing for large scale multitask learning", equation 1.
    """
    h = hash_bytes(utf8, start, end)
    sign = np.float32(-1.0) if signed != 0 and (h >> _SIGN_BIT) else np.float32(1.0)
    return int(np.int64(h & np.uint64(mask))), sign


@inlined
def is_named(data: NDArray[np.uint8], i: int) -> bool:
    """Return whether an instance that begins here has named features."""
    return bool(after_key(data, after(data, i, OPEN), _FEATURES) < len(data) - 1)


@inlined
def read_named(
    data: NDArray[np.uint8], i: int, names: BodyNames, rows_out: RowArrays, n: int, n_read: int
) -> tuple[int, int, int]:
    """Read `{"features": {...}}` into indices[n:] and values[n:], names that are not known left out.

    Returns (the place after it, the end of its features, how many names of the body have been read now). They
    are neither sorted nor summed. The last place of all when it is none, no name is known, or there is no
    room.
    """
    i = after(data, after_key(data, after(data, i, OPEN), _FEATURES), COLON)
    i, end, n_read = _read_features(data, i, names, rows_out, n, n_read)
    return after(data, i, CLOSE) if end > n else len(data) - 1, end, n_read


@inlined
def _read_features(
    data: NDArray[np.uint8], i: int, names: BodyNames, rows_out: RowArrays, n: int, n_read: int
) -> tuple[int, int, int]:
    """Read an object of numbers by name; return what `read_named` does."""
    _, indices, values = rows_out
    i = skip_blanks(data, after(data, i, OPEN))
    if data[i] == CLOSE:
        return i + 1, n, n_read
    while n_read < len(indices):
        n_read += 1
        i, end = _read_name(data, i, names.name)
        value, i = read_number(data, skip_blanks(data, after(data, i, COLON)))
        feature, sign = _feature_of(names, end)
        if feature >= 0:
            indices[n], values[n] = feature, value * sign
            n += 1
        i = skip_blanks(data, i)
        if data[i] == CLOSE:
            return i + 1, n, n_read
        i = skip_blanks(data, after(data, i, COMMA))
        if i == len(data) - 1:
            break
    return len(data) - 1, n, n_read


@inlined
def _feature_of(names: BodyNames, end: int) -> tuple[int, np.float32]:
    """Return the feature whose name is name[:end], -1: it is not known; and the sign of its values."""
    if names.kind == BY_HASH:
        return hashed_feature(names.name, 0, end, names.mask, names.signed)
    slot = probe(names.offsets, names.utf8, names.slots, names.name, 0, end)
    return int(names.slots[slot]), np.float32(1.0)


@inlined
def _read_name(data: NDArray[np.uint8], i: int, name_out: NDArray[np.uint8]) -> tuple[int, int]:
    """Read a string, as UTF-8, to `name_out`; return (the place after it, where it ends there)."""
    i, at = after(data, i, QUOTE), 0
    while data[i] != QUOTE:
        i, code = next_code(data, i)
        if code < 0 or at + size_of(code) > len(name_out) - UTF8_A_CHARACTER:
            return len(data) - 1, at
        at = encode(code, name_out, at)
    return i + 1, at
