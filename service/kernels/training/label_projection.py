"""Label vectors of few dimensions, summed up in one pass over rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.base.rows import LabelRows, SparseRows

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@kernel
def add_projected(rows: SparseRows, labels: LabelRows, sums_out: NDArray[np.float32]) -> None:
    """Add each row to the sums of its labels, features hashed to the dimensions of the sums.

    Source: Weinberger et al. 2009, equation 1: feature f counts up or down in dimension h(f), which keeps
    inner products in expectation. When there are no more features than dimensions, each has its own, and
    counts up. Cost: the non-zeros of each row once for each of its labels.

    sums_out  float32[K, P], P a power of two
    """
    n_dimensions = sums_out.shape[1]
    for row in range(len(rows.indptr) - 1):
        for e in range(rows.indptr[row], rows.indptr[row + 1]):
            at, value = np.int64(rows.indices[e]), rows.values[e]
            if rows.n_features > n_dimensions:
                h = (np.uint64(rows.indices[e]) + np.uint64(1)) * _GOLDEN
                h = (h ^ (h >> np.uint64(30))) * _MIX
                at = np.int64(h >> np.uint64(20)) & (n_dimensions - 1)
                if h >> np.uint64(63):
                    value = -value
            for k in range(labels.indptr[row], labels.indptr[row + 1]):
                sums_out[labels.indices[k], at] += value


@kernel
def add_embedded(
    rows: SparseRows, labels: LabelRows, embedding: NDArray[np.float32], sums_out: NDArray[np.float64]
) -> None:
    """Add the sum of each row's embeddings, weighted by its values, to the sums of its labels.

    Cost: d times the non-zeros of each row once for each of its labels.

    embedding  float32[V, d], V the features of the rows
    sums_out   float64[K, d]
    """
    for row in range(len(rows.indptr) - 1):
        for e in range(rows.indptr[row], rows.indptr[row + 1]):
            value, vector = rows.values[e], embedding[rows.indices[e]]
            for k in range(labels.indptr[row], labels.indptr[row + 1]):
                for f in range(len(vector)):
                    sums_out[labels.indices[k], f] += value * vector[f]
