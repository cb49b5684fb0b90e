"""Where a hash is looked for in a hash table; who fills a table and who searches it agree here."""

from __future__ import annotations

import numpy as np

from model_store.compiled.decorators import inlined

_32 = np.uint64(32)


@inlined
def slot_start(hash_32: np.uint64, n_slots: int) -> np.int64:
    """Return the slot, in [0, n_slots), at which the probing for a hash of [0, 2^32) begins."""
    return np.int64((hash_32 * np.uint64(n_slots)) >> _32)


@inlined
def slot_next(slot: np.int64, n_slots: int) -> np.int64:
    """Return the slot to probe after `slot`: one further, the first one after the last."""
    following = slot + np.int64(1)
    return following if following < n_slots else np.int64(0)
