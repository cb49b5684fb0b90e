"""Label representations: where a label lies among the features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from service.base.rows import LabelRows, SparseRows


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


def label_sums(rows: SparseRows, labels: LabelRows) -> Any:
    """Return the sum of the x of each label's rows: csr_array[n_labels, n_features], of the values' dtype.

    Features ascend within a label. Cost: the non-zeros of each row once for each of its labels; memory of the
    result. Deterministic.
    """
    x = sparse.csr_array((rows.values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_features))
    ones = np.ones(len(labels.indices), rows.values.dtype)
    y = sparse.csr_array((ones, labels.indices, labels.indptr), shape=(labels.n_rows, labels.n_labels))
    sums = (y.T.tocsr() @ x).tocsr()
    sums.sort_indices()
    return sums


def squared_lengths(values: NDArray[Any], indptr: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sum of squares of each compressed row, summed in double precision."""
    sums: NDArray[np.float64] = np.add.reduceat(np.append(values.astype(np.float64) ** 2, 0.0), indptr[:-1])
    sums[np.diff(indptr) == 0] = 0.0
    return sums


def label_representations(rows: SparseRows, labels: LabelRows) -> Representations:
    """Return the normalised sum of the x of each label's rows.

    Source: Lin, Liu and Lin 2024, section 2. Cost: that of `label_sums`. Deterministic.
    """
    sums = label_sums(rows, labels)
    indptr = sums.indptr.astype(np.int64)
    squares = squared_lengths(sums.data, indptr)
    scale = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    values = (sums.data * np.repeat(scale, np.diff(indptr))).astype(np.float32)
    return Representations(indptr, sums.indices.astype(np.int32), values, rows.n_features)
