"""Which predictions are true, and the figures of one evaluation, as `xylem evaluate --json` names them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.base.rows import LabelRows
from service.evaluation.fmeasure import USUAL_EMPTY, EmptyConvention, f_measures, f_scores
from service.evaluation.propensity import USUAL_CONSTANTS, PropensityConstants, propensities
from service.evaluation.ranking import ranking_metrics

Report = dict[str, float | int | str | None]
"""Figures by name; None for one that cannot be had."""


class PredictedRows(NamedTuple):
    """Labels predicted for n rows: int64[n + 1] and int32[..]; a ranking goes from best to worst."""

    ptr: NDArray[np.int64]
    labels: NDArray[np.int32]


class Truth(NamedTuple):
    """What is true.

    labels     those that the model knows
    unknown    int32[n], how many more each row has that the model does not know
    n_unknown  how many labels these are
    """

    labels: LabelRows
    unknown: NDArray[np.int32]
    n_unknown: int = 0


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


def evaluation_report(
    ranked: PredictedRows,
    decided: PredictedRows,
    truth: Truth,
    label_counts: NDArray[np.int64] | None,
    n_training_rows: int,
    *,
    empty: EmptyConvention = USUAL_EMPTY,
    constants: PropensityConstants = USUAL_CONSTANTS,
) -> Report:
    """Return every figure of an evaluation: percentages, `rows`, `empty_label_convention`.

    ranked        the first labels of each row (five at least, if so many exist)
    decided       the labels of each row at the thresholds that are to be judged
    truth         the true labels
    label_counts  int64[K], training rows of each label, for the propensities; None where nobody knows (models
                  of other libraries): then the propensity-scored figures are None
    constants     of the propensities

    Raises ValueError when the numbers of rows or labels differ.
    """
    is_known = label_counts is not None and n_training_rows > 0
    if label_counts is None or not is_known:
        label_counts, n_training_rows = np.zeros(truth.labels.n_labels, np.int64), 1
    known = propensities(label_counts, n_training_rows, *constants)
    ranking = ranking_metrics(
        *ranked,
        truth.labels,
        known,
        unknown_labels=truth.unknown,
        unknown_propensity=float(propensities(0, n_training_rows, *constants)),
    )
    scored: Report = {
        name: None if name.startswith("PS") and not is_known else value for name, value in ranking.items()
    }
    f = f_measures(
        *decided, truth.labels, empty=empty, unknown_labels=truth.unknown, n_unknown=truth.n_unknown
    )
    return {"rows": truth.labels.n_rows, **scored, **f._asdict()}
