"""Weights in their stored types: what they are as numbers, resolved when a kernel is compiled."""

import numpy as np

from model_store.compiled.decorators import nonallocating_inlined as inlined

_16 = np.uint32(16)


@inlined
def number_of(bits: np.uint32, n_bytes: int) -> np.float32:
    """Return the number that has these bits in so many bytes: a float32, a bfloat16, or an int8."""
    if n_bytes == 4:
        return np.float32(np.uint32(bits).view(np.float32))
    if n_bytes == 2:
        return np.float32(np.uint32(bits << _16).view(np.float32))
    return np.float32(np.int8(bits))
