"""Where a feature's row is looked for in a chunk's hash table; the builder and the kernels agree here."""

from __future__ import annotations

import numpy as np

from model_store.jit import inlined

_GOLDEN = np.uint64(0x9E3779B1)
_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@inlined
def spread(feature: int) -> np.uint64:
    """Return the hash of a feature, in [0, 2^32) (Fibonacci hashing: feature times golden ratio)."""
    return (np.uint64(feature) * _GOLDEN) & _LOW_32


@inlined
def slot_start(spread_feature: np.uint64, n_slots: int) -> np.int64:
    """Return the slot, in [0, n_slots), at which the probing for a spread feature begins."""
    return np.int64((spread_feature * np.uint64(n_slots)) >> _32)


@inlined
def slot_next(slot: np.int64, n_slots: int) -> np.int64:
    """Return the slot to probe after `slot`: one further, the first one after the last."""
    following = slot + np.int64(1)
    return following if following < n_slots else np.int64(0)
