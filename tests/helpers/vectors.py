"""Vectors for texts: sums of random vectors of their words."""

import zlib
from collections.abc import Sequence

import numpy as np

from xylem_store.compiled.handles import F32

NUMBERS = 24


def vectors_of(texts: Sequence[str], n_numbers: int = NUMBERS) -> F32:
    """Return float32[n, n_numbers]; texts with the same words have the same vector."""
    table = np.random.default_rng(0).normal(size=(512, n_numbers))
    rows = [[zlib.crc32(word.encode()) % 512 for word in text.split()] for text in texts]
    return np.array([table[words].sum(0) for words in rows], np.float32)
