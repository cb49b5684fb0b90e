"""Label representations: where a label lies among the features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from service.rows import LabelRows, SparseRows


class Representations(NamedTuple):
    """One sparse vector a label, of length 1; empty where no row with features carries the label.

    indptr      int64[n_labels + 1]
    indices     int32[nnz]   ascending within a label
    values      float32[nnz]
    n_features  int
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    n_features: int


def label_representations(rows: SparseRows, labels: LabelRows) -> Representations:
    """Return the normalised sum of the x of each label's rows.

    Source: tree-model-size, section 2. Cost: the non-zeros of each row once for each of its labels; memory of
    the result. Deterministic.
    """
    x = sparse.csr_array((rows.values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_features))
    ones = np.ones(len(labels.indices), np.float32)
    y = sparse.csr_array((ones, labels.indices, labels.indptr), shape=(labels.n_rows, labels.n_labels))
    sums = (y.T.tocsr() @ x).tocsr()
    sums.sort_indices()
    indptr = sums.indptr.astype(np.int64)
    squares = np.add.reduceat(np.append(sums.data.astype(np.float64) ** 2, 0.0), indptr[:-1])
    squares[np.diff(indptr) == 0] = 0.0
    scale = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    values = (sums.data * np.repeat(scale, np.diff(indptr))).astype(np.float32)
    return Representations(indptr, sums.indices.astype(np.int32), values, rows.n_features)
