"""Sparse estimates: for each row, the labels whose score is high enough to matter.

`fit_power` fits how scores are read as probabilities.
"""

from typing import NamedTuple

import numpy as np

from xylem.base import NO_ROWS, LabelRows, SparseRows, offsets
from xylem.thresholds.methods.ofo import POWER_MAX, POWER_MIN, Counters, no_counts
from xylem_store import F32, I32, I64, U8, kernel

# The most estimates that are kept, at 8 bytes each; tuning takes three times that memory.
ESTIMATES_MAX = 1 << 26


class Estimates(NamedTuple):
    """The predictions of a model for n rows, without labels of low scores.

    ptr     int64[n + 1]: row i has labels[ptr[i] : ptr[i + 1]], without repeats, and their scores
    labels  int32[..]
    scores  float32[..]
    floor   float32[K]: every label whose score is at least its floor is included, in no particular
            order
    """

    ptr: I64
    labels: I32
    scores: F32
    floor: F32


class EstimateKeeper:
    """Collects the estimates of one part of the rows after another, up to a limit.

    If there are too many, the half with the lower scores is dropped, and the floor of every label
    is raised above the median score: estimates of later rows must reach it.

    floor  float32[K], the score that the estimates of each label must reach
    """

    def __init__(self, floor: F32, estimates_max: int = ESTIMATES_MAX) -> None:
        self.floor = floor
        self._max = estimates_max
        # The labels and scores of the rows so far.
        self._parts = [NO_ROWS]

    def add(self, ptr: I64, labels: I32, scores: F32) -> None:
        """Add the estimates of further rows: all labels whose score reaches the present `floor`."""
        self._parts.append(SparseRows(ptr, labels, scores, 1))
        while sum(len(part.values) for part in self._parts) > self._max:
            cut = np.nextafter(
                np.median(np.concatenate([part.values for part in self._parts])),
                np.float32(np.inf),
                dtype=np.float32,
            )
            self.floor = np.maximum(self.floor, cut)
            for i, part in enumerate(self._parts):
                passes = part.values >= cut
                self._parts[i] = SparseRows(
                    offsets(passes)[part.indptr], part.indices[passes], part.values[passes], 1
                )

    def all(self) -> Estimates:
        """Return the estimates of all rows."""
        return Estimates(*SparseRows.join(self._parts)[:3], self.floor)


def mark_hits(estimates: Estimates, truth: LabelRows) -> U8:
    """Return for each estimate whether its label is true, uint8[..]."""
    hits = np.zeros(len(estimates.labels), np.uint8)
    _mark_hits(
        estimates.ptr,
        estimates.labels,
        truth.indptr,
        truth.indices,
        np.full(truth.n_labels, -1, np.int64),
        hits,
    )
    return hits


def count_at(estimates: Estimates, truth: LabelRows, thresholds: F32) -> Counters:
    """Return the counts of every label with thresholds float32[K], none of them below the floor."""
    passes = estimates.scores >= thresholds[estimates.labels]
    labels = estimates.labels[passes]
    counters = no_counts(truth.n_labels)
    counters.marks[:] = np.bincount(labels, minlength=truth.n_labels)
    counters.marks[:] += np.bincount(truth.indices, minlength=truth.n_labels)
    is_hit = mark_hits(estimates, truth)[passes] > 0
    counters.hits[:] = np.bincount(labels[is_hit], minlength=truth.n_labels)
    return counters


@kernel
def _mark_hits(
    ptr: I64, labels: I32, true_ptr: I64, true_labels: I32, last_row: I64, hits_out: U8
) -> None:
    for row in range(len(ptr) - 1):
        for i in range(true_ptr[row], true_ptr[row + 1]):
            last_row[true_labels[i]] = row
        for i in range(ptr[row], ptr[row + 1]):
            hits_out[i] = last_row[labels[i]] == row


_BINS_A_UNIT = 64
_LOG_MAX = 64.0
_STEPS = 60
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


def fit_power(scores: F32, hits: U8, default: float) -> float:
    """Return the power p in [POWER_MIN, POWER_MAX] that makes score ** p fit the hits best.

    Maximum likelihood: sum of log(s ** p) over the hits and of log(1 - s ** p) over the others,
    which is concave in p. It is found by golden-section search, with the logarithms of the scores
    in bins of 1/64. Scaling log-scores by a factor is temperature scaling (Guo et al. 2017, "On
    calibration of modern neural networks") of a score that is a product. It keeps the order of
    scores: if a score reaches a threshold, score ** p reaches threshold ** p.

    scores, hits  float32[n] in [0, 1], uint8[n]: estimates, and whether their label is true
    default       returned if all estimates are hits, or no estimate is a hit

    Cost: O(n). Deterministic.
    """
    is_hit = hits > 0
    if is_hit.all() or not is_hit.any():
        return default
    with np.errstate(divide="ignore"):
        depth = np.minimum(-np.log(scores), _LOG_MAX)
    bins = (depth * _BINS_A_UNIT).astype(np.int64)
    n_bins = int(_LOG_MAX) * _BINS_A_UNIT + 1
    n_all = np.bincount(bins, minlength=n_bins)
    n_hits = np.bincount(bins[is_hit], minlength=n_bins)
    middle = (np.arange(n_bins) + 0.5) / _BINS_A_UNIT

    def loss(log_power: float) -> float:
        exponent = np.exp(log_power) * middle
        return float(np.sum(n_hits * exponent - (n_all - n_hits) * np.log(-np.expm1(-exponent))))

    low = np.log(POWER_MIN)
    high = np.log(POWER_MAX)
    for _ in range(_STEPS):
        left = high - _GOLDEN * (high - low)
        right = low + _GOLDEN * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return float(np.clip(np.exp((low + high) / 2.0), POWER_MIN, POWER_MAX))
