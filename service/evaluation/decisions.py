"""Which predictions are true, and what that comes to for each label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.base.rows import LabelRows
from service.evaluation.fmeasure import EmptyConvention, f_scores
from service.evaluation.report import PredictedRows


class LabelCounts(NamedTuple):
    """What was decided of each label, int64[K] each.

    support    rows in which it is true
    hits       rows in which it is true and predicted
    predicted  rows in which it is predicted
    """

    support: NDArray[np.int64]
    hits: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def f(self, empty: EmptyConvention) -> NDArray[np.float64]:
        """Return F of each label in [0, 1], float64[K]."""
        return f_scores(np.stack([self.hits, self.support + self.predicted], axis=1), empty)


def mark_true(predicted: PredictedRows, truth: LabelRows) -> NDArray[np.bool_]:
    """Return for each prediction whether its label is true in its row, bool[..].

    Raises ValueError when the numbers of rows differ. Cost: O(m log n), without a kernel to compile.
    """
    n_rows = len(predicted.ptr) - 1
    if n_rows != truth.n_rows:
        raise ValueError(f"expected predictions for {truth.n_rows} rows, found {n_rows}")
    # true labels ascend within a row, and so do these numbers over all rows
    true = _places(truth.indptr, truth.indices, truth.n_labels)
    if not len(true):
        return np.zeros(len(predicted.labels), np.bool_)
    asked = _places(predicted.ptr, predicted.labels, truth.n_labels)
    at = np.minimum(np.searchsorted(true, asked), len(true) - 1)
    found: NDArray[np.bool_] = true[at] == asked
    return found


def count_labels(decided: PredictedRows, truth: LabelRows) -> LabelCounts:
    """Return the counts of each label. Raises ValueError when the numbers of rows differ."""
    is_true = mark_true(decided, truth)
    k = truth.n_labels
    return LabelCounts(
        np.bincount(truth.indices, minlength=k),
        np.bincount(decided.labels[is_true], minlength=k),
        np.bincount(decided.labels, minlength=k),
    )


def ranks_of(ranked: PredictedRows) -> NDArray[np.int64]:
    """Return the rank of each prediction in its row, from 0, int64[..]."""
    return np.arange(len(ranked.labels)) - np.repeat(ranked.ptr[:-1], np.diff(ranked.ptr))


def _places(ptr: NDArray[np.int64], labels: NDArray[np.int32], n_labels: int) -> NDArray[np.int64]:
    """Return row * n_labels + label of each entry."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr)) * n_labels + labels
