"""Make dense rows of sparse rows, by the embedding of a model (`xylem_store.extras`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.engine.kernels.search.scorer import number_of
from xylem_store import F32, I32, I64, inlined, kernel


@inlined
def _add_embedded(u: NDArray[Any], r: F32, feature: int, value: np.float32, out: F32) -> None:
    """Add value times the vector of a feature to `out`, float32[d]."""
    n_words, dim = u.shape
    word = feature % n_words
    place = feature // n_words
    if r.shape[1] == 0:
        for f in range(dim):
            out[f] += value * number_of(np.uint32(u[word, f]), u.itemsize)
    elif r.shape[1] == 1:
        for f in range(dim):
            out[f] += value * (r[place, 0, f] * number_of(np.uint32(u[word, f]), u.itemsize))
    else:
        for f in range(dim):
            total = np.float32(0.0)
            for g in range(dim):
                total += r[place, f, g] * number_of(np.uint32(u[word, g]), u.itemsize)
            out[f] += value * total


@kernel
def embed_rows(indptr: I64, indices: I32, values: F32, u: NDArray[Any], r: F32, mean: I32) -> F32:
    """Return the dense row of each row, float32[n, d]; zeros for a row without features.

    u, r, mean  the fields of `xylem_store.extras.Embedding`, but u as bits: uint32[V, d] for
                float32

    Cost: d operations for a feature, or d^2 with matrices. A row depends only on its own features.
    """
    n_rows = len(indptr) - 1
    dim = u.shape[1]
    out = np.zeros((n_rows, dim), np.float32)
    for row in range(n_rows):
        total = np.float32(0.0)
        for e in range(indptr[row], indptr[row + 1]):
            _add_embedded(u, r, indices[e], values[e], out[row])
            total += abs(values[e])
        if mean[0] == 1 and total > 0:
            scale = np.float32(1.0) / total
            for f in range(dim):
                out[row, f] *= scale
    return out
