"""Whether scores are probabilities, and what a threshold for all labels would give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

N_BINS = 15

STEPS = 100
"""Thresholds are tried at 1 / STEPS, 2 / STEPS and so on."""


class ReliabilityBin(NamedTuple):
    """Predictions with scores from `low` to `high`: their number, mean score and share of true ones."""

    low: float
    high: float
    n: int
    mean_score: float
    share_true: float


def reliability(scores: NDArray[np.float32], are_true: NDArray[np.bool_]) -> list[ReliabilityBin]:
    """Return the bins of equal width that hold predictions, ascending: of N_BINS at most.

    Source: Guo, Pleiss, Sun, Weinberger 2017, "On calibration of modern neural networks", section 2: a
    reliability diagram.

    scores, are_true  float32[n] in [0, 1], bool[n]: predictions and whether their label is true
    """
    bins = np.minimum((scores * N_BINS).astype(np.int64), N_BINS - 1)
    n = np.bincount(bins, minlength=N_BINS)
    sums = np.bincount(bins, scores.astype(np.float64), N_BINS)
    hits = np.bincount(bins, are_true, N_BINS)
    return [
        ReliabilityBin(i / N_BINS, (i + 1) / N_BINS, int(n[i]), float(sums[i] / n[i]), float(hits[i] / n[i]))
        for i in np.flatnonzero(n).tolist()
    ]


def calibration_error(bins: list[ReliabilityBin]) -> float | None:
    """Return the expected calibration error, 0 to 1: how far score and share of true ones are apart.

    Source: Guo et al. 2017, equation (3). None where there is no prediction.
    """
    n = sum(each.n for each in bins)
    return sum(each.n * abs(each.mean_score - each.share_true) for each in bins) / n if n else None


class ThresholdPoint(NamedTuple):
    """What one threshold for all labels gives, in percent; `precision` is None where nothing is predicted."""

    threshold: float
    precision: float | None
    recall: float


class ThresholdSweep:
    """Counts predictions by score, part by part, for the precision and recall of each threshold."""

    def __init__(self) -> None:
        self._all = np.zeros(STEPS + 1, np.int64)
        self._hits = np.zeros(STEPS + 1, np.int64)

    def add(self, scores: NDArray[np.float32], are_true: NDArray[np.bool_]) -> None:
        """Count predictions: float32[n] in [0, 1], bool[n]."""
        # thresholds as float32: a score that is one of them reaches it
        at = np.searchsorted(_thresholds(), scores, "right")
        self._all += np.bincount(at, minlength=STEPS + 1)
        self._hits += np.bincount(at[are_true], minlength=STEPS + 1)

    def points(self, n_true: int) -> list[ThresholdPoint]:
        """Return a point a threshold, ascending; n_true labels are true in all, unknown ones too."""
        n, hits = (np.cumsum(counts[::-1])[::-1][1:] for counts in (self._all, self._hits))
        return [
            ThresholdPoint(
                float(threshold),
                100.0 * h / m if m else None,
                100.0 * h / n_true if n_true else 0.0,
            )
            for threshold, m, h in zip(_thresholds().tolist(), n.tolist(), hits.tolist(), strict=True)
        ]


def _thresholds() -> NDArray[np.float32]:
    return (np.arange(1, STEPS + 1) / STEPS).astype(np.float32)


LEAST_THRESHOLD = float(_thresholds()[0])
"""The lowest threshold that is tried: predictions below it need not be counted."""
