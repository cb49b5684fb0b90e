"""Sparse rows: what readers and features produce and engines and trainers consume."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

RowArrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]
"""indptr, indices and values of rows, as kernels take and return them."""


class SparseRows(NamedTuple):
    """Instances as compressed sparse rows.

    indptr      int64[n + 1]
    indices     int32[nnz]    features, strictly ascending within a row, in [0, n_features)
    values      float32[nnz]  finite
    n_features  int
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    n_features: int

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1


class LabelRows(NamedTuple):
    """The true labels of instances as compressed sparse rows of ids.

    indptr    int64[n + 1]
    indices   int32[nnz]   labels, strictly ascending within a row, in [0, n_labels)
    n_labels  int
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    n_labels: int

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1


def offsets_of(sizes: Iterable[int]) -> NDArray[np.int64]:
    """Return int64[n + 1]: where things of these sizes begin, one after the other, and where the last ends.

    numpy's cumsum of a list takes five times as long for the few things of a request.
    """
    return np.array([0, *accumulate(sizes)], np.int64)
