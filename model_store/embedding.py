"""Embedding arrays: what turns a row of features into the dense row that a tree with softmax nodes takes.

Source: Jernite, Choromanska and Sontag 2017, "Simultaneous Learning of Trees and Representations for Extreme
Classification and Density Estimation", sections 2 and 6; FORMAT.md says the arrays. A version whose link is
softmax has all of them, no other version has any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import at, take
from model_store.ensemble import TreeEnsemble
from model_store.errors import Corrupt

EMBEDDING = "embedding"
"""How the names of these arrays begin."""

DIM_MAX = 1024
"""Dimensions, at most: those of a group of features."""

PLACES_MAX = 16
"""Places of a window of words, at most."""

_EXPONENT = np.uint16(0x7F80)
"""Of a bfloat16: all set where it is infinite or no number."""


class Embedding(NamedTuple):
    """The dense row of a row x is the sum over its features f of x_f * turned(f), or its mean.

    u     float32[V, d]     a word's, 1 <= d <= DIM_MAX; or uint16[V, d]: as bfloat16
    r     float32[T, R, d]  feature f is word f % V at place f // V, and T * V the number of features. R = 0:
                            turned(f) is u[word] and T is 1; R = 1: r[place] times u[word], each dimension by
                            itself; R = d: the matrix r[place] times u[word]
    mean  int32[1]          1: sums are divided by the sum of |x_f| unless that is 0; 0: they are not
    """

    u: NDArray[Any]
    r: NDArray[np.float32]
    mean: NDArray[np.int32]


def has_embedding(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a version has embedding arrays, whole or not."""
    return any(name.startswith(f"{EMBEDDING}/") for name in arrays)


def assemble_embedding(n_features: int, arrays: Mapping[str, NDArray[Any]]) -> Embedding:
    """Return the embedding of a version of so many features, read-only; raise Corrupt. Reads no data."""
    stored = arrays.get(f"{EMBEDDING}/u")
    is_bfloat16 = stored is not None and stored.dtype == np.uint16
    u = take(arrays, f"{EMBEDDING}/u", "uint16" if is_bfloat16 else "float32", (None, None))
    n_words, dim = u.shape
    if not 1 <= dim <= DIM_MAX or n_words < 1:
        raise Corrupt(at(f"{EMBEDDING}/u", 0), f"words of 1 to {DIM_MAX} dimensions", str(u.shape))
    r = take(arrays, f"{EMBEDDING}/r", "float32", (None, None, dim))
    n_places, n_turned, _ = r.shape
    if not 1 <= n_places <= PLACES_MAX or n_places * n_words != n_features:
        raise Corrupt(at(f"{EMBEDDING}/r", 0), f"{n_features} features / {n_words} words", n_places)
    if n_turned not in (0, 1, dim) or (n_turned == 0 and n_places != 1):
        raise Corrupt(at(f"{EMBEDDING}/r", 0), f"1 or {dim} rows a place, or none of one place", n_turned)
    return Embedding(u, r, take(arrays, f"{EMBEDDING}/mean", "int32", (1,)))


def check_embedding(embedding: Embedding) -> None:
    """Raise Corrupt unless `mean` is 0 or 1 and bfloat16 is finite; that floats are was seen before."""
    if embedding.u.dtype == np.uint16:
        bits = embedding.u.reshape(-1)
        infinite = (bits & _EXPONENT) == _EXPONENT
        if infinite.any():
            index = int(infinite.argmax())
            raise Corrupt(at(f"{EMBEDDING}/u", index), "a finite number", f"{bits[index]:#06x}")
    if embedding.mean[0] not in (0, 1):
        raise Corrupt(at(f"{EMBEDDING}/mean", 0), "0 or 1", int(embedding.mean[0]))


def full_features(ensemble: TreeEnsemble) -> int:
    """Return how many features every chunk has a dense row for, if those are the first ones; else 0.

    Cost: nothing for an ensemble with sparse rows, else a pass over the blocks.
    """
    n_chunks = len(ensemble.directory)
    if len(ensemble.row_ptr) != n_chunks or not n_chunks:
        return 0
    first = ensemble.blocks[: ensemble.block_ptr[1], 1]
    n_features = int(np.bitwise_count(first).sum())
    return n_features if n_features and is_full(ensemble, n_features) else 0


def is_full(ensemble: TreeEnsemble, n_features: int) -> bool:
    """Return whether every chunk has a dense row for each feature, and so no sparse ones."""
    n_blocks = -(-n_features // 32)
    n_chunks = len(ensemble.directory)
    if len(ensemble.blocks) != n_blocks * n_chunks or len(ensemble.row_ptr) != n_chunks:
        return False
    every = np.full(n_blocks, 0xFFFFFFFF, np.uint32)
    if n_features % 32:
        every[-1] = (1 << n_features % 32) - 1
    blocks = ensemble.blocks.reshape(n_chunks, n_blocks, 4)
    starts = np.arange(n_chunks + 1) * n_blocks
    return bool((ensemble.block_ptr == starts).all() and (blocks[:, :, :2] == every[:, None]).all())
