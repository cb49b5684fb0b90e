"""Reliability of scores, a threshold for all labels, and calibration of scores to probabilities.

Calibration maps a score to the probability that its label is true. The map is fitted to held-out
predictions and rises with the score.

Source of calibration: Zadrozny and Elkan 2002, "Transforming classifier scores into accurate
multiclass probability estimates", section 3: isotonic regression, by pool adjacent violators. Two
deviations: the steps are replaced by a line through the middle of each block, and no piece is flat,
so that different scores stay different.
"""

from typing import NamedTuple

import numpy as np

from xylem.engine import calibrate_scores
from xylem_store import F32, F64, I64, KNOTS_MAX, Bools, Calibration

# The fewest predictions of a block of the fit: with fewer, its share of true ones is chance.
BLOCK_MIN = 50

# The map keeps a distance from 0 and 1: this share of the score, and of 1 - the score.
SLOPE_MIN = 1e-3


def fit_calibration(scores: F32, are_true: Bools) -> Calibration:
    """Return the map from scores to the share of true labels among predictions of such scores.

    scores, are_true  float32[n] in [0, 1], bool[n]; n >= 1

    Cost: a sort. Deterministic.
    """
    distinct, place = np.unique(scores, return_inverse=True)

    n = np.bincount(place).astype(np.float64)
    hits = np.bincount(place, are_true).astype(np.float64)
    starts = _join_small_blocks(pooled(hits, n), n)
    n_block = np.add.reduceat(n, starts)
    x = np.add.reduceat(n * distinct.astype(np.float64), starts) / n_block
    y = np.add.reduceat(hits, starts) / n_block
    y = np.clip(y, SLOPE_MIN * x, 1 - SLOPE_MIN * (1 - x))
    end = y[-1] + SLOPE_MIN * (1 - x[-1])
    return _rising_knots(np.concatenate([[0.0], x, [1.0]]), np.concatenate([[0.0], y, [end]]))


def apply_calibration(calibration: Calibration, scores: F32) -> F32:
    """Return scores, float32[n] in [0, 1], calibrated as searches of a calibrated version do."""
    calibrated = np.empty(len(scores), np.float32)
    calibrate_scores((calibration.x, calibration.y), scores, calibrated)
    return calibrated


def pooled(hits: F64, n: F64) -> I64:
    """Return where the blocks of the isotonic fit to hits / n start: int64[blocks], ascending.

    hits, n  float64[places], n > 0; n are the weights of the places

    Means of blocks ascend strictly: a place whose mean does not lie above that of the block before
    joins this block (pool adjacent violators).
    """
    starts: list[int] = []
    block_hits: list[float] = []
    block_n: list[float] = []
    for place, (hit, count) in enumerate(zip(hits.tolist(), n.tolist(), strict=True)):
        start = place
        while starts and block_hits[-1] * count >= hit * block_n[-1]:
            start = starts.pop()
            hit += block_hits.pop()
            count += block_n.pop()
        starts.append(start)
        block_hits.append(hit)
        block_n.append(count)
    return np.array(starts, np.int64)


def _join_small_blocks(starts: I64, n: F64) -> I64:
    """Return where blocks start after small blocks were joined.

    starts  int64[blocks]
    n       number of predictions of each place

    Each block has at least BLOCK_MIN predictions, which is doubled until there is room for the
    blocks' knots. A block that is too small joins the next one, the last block the one before it:
    the means of neighbours still ascend.
    """
    sizes = np.add.reduceat(n, starts)
    least = BLOCK_MIN
    while True:
        kept_blocks = [0]
        size = 0.0
        for block, block_size in enumerate(sizes.tolist()):
            if size >= least:
                kept_blocks.append(block)
                size = 0.0
            size += block_size
        if size < least and len(kept_blocks) > 1:
            kept_blocks.pop()
        if len(kept_blocks) <= KNOTS_MAX - 2:
            return starts[kept_blocks]
        least *= 2


def _rising_knots(x: F64, y: F64) -> Calibration:
    """Return the knots as float32, without those that are not above their neighbour in float32.

    The first and the last stay, because they are the ends of the scale.
    """
    knots = np.stack([x, y]).astype(np.float32)
    first = knots[:, 0]
    last = knots[:, -1]
    inner_knots = []
    previous = first
    for knot in knots[:, 1:-1].T:
        if (knot > previous).all() and (knot < last).all():
            inner_knots.append(knot)
            previous = knot
    distinct_knots = np.ascontiguousarray(np.stack([first, *inner_knots, last], axis=1))
    return Calibration(distinct_knots[0].copy(), distinct_knots[1].copy())


N_BINS = 15

# The thresholds that are tried are 1 / STEPS, 2 / STEPS and so on.
STEPS = 100


class ReliabilityBin(NamedTuple):
    """The predictions with scores from `low` to `high`.

    `n` is their number; the others are their mean score and their share of true ones.
    """

    low: float
    high: float
    n: int
    mean_score: float
    share_true: float


def reliability(scores: F32, are_true: Bools, weights: F64 | None = None) -> list[ReliabilityBin]:
    """Return the bins of equal width that have predictions, ascending; at most N_BINS.

    Source: Guo, Pleiss, Sun, Weinberger 2017, "On calibration of modern neural networks", section
    2: a reliability diagram.

    scores, are_true  float32[n] in [0, 1], bool[n]: predictions, and whether their label is true
    weights           float64[n], of the rows of the predictions; None: all are 1
    """
    weights = np.ones(len(scores)) if weights is None else weights
    bins = np.minimum((scores * N_BINS).astype(np.int64), N_BINS - 1)
    n = np.bincount(bins, weights, N_BINS)
    sums = np.bincount(bins, weights * scores, N_BINS)
    hits = np.bincount(bins, weights * are_true, N_BINS)
    return [
        ReliabilityBin(
            i / N_BINS, (i + 1) / N_BINS, round(n[i]), float(sums[i] / n[i]), float(hits[i] / n[i])
        )
        for i in np.flatnonzero(n).tolist()
    ]


def calibration_error(bins: list[ReliabilityBin]) -> float | None:
    """Return the expected calibration error, from 0 to 1; None without any prediction.

    It is the mean distance between the score and the share of true ones. Source: Guo et al. 2017,
    equation (3).
    """
    n = sum(reliability_bin.n for reliability_bin in bins)
    return (
        sum(
            reliability_bin.n * abs(reliability_bin.mean_score - reliability_bin.share_true)
            for reliability_bin in bins
        )
        / n
        if n
        else None
    )


class ThresholdPoint(NamedTuple):
    """Precision and recall of one threshold for all labels, in percent.

    `precision` is None if nothing is predicted.
    """

    threshold: float
    precision: float | None
    recall: float


class ThresholdSweep:
    """Counts predictions by score, part by part, for the precision and recall of each threshold."""

    def __init__(self) -> None:
        self._all = np.zeros(STEPS + 1, np.int64)
        self._hits = np.zeros(STEPS + 1, np.int64)

    def add(self, scores: F32, are_true: Bools) -> None:
        """Count predictions: float32[n] in [0, 1], bool[n]."""
        # thresholds are float32 as scores are, so that a score equal to one reaches it
        n_reached = np.searchsorted(_thresholds(), scores, "right")
        self._all += np.bincount(n_reached, minlength=STEPS + 1)
        self._hits += np.bincount(n_reached[are_true], minlength=STEPS + 1)

    def points(self, n_true: int) -> list[ThresholdPoint]:
        """Return a point for each threshold, ascending.

        n_true  number of labels that are true in all rows, those too that the model does not know
        """
        n, hits = self._counts_reaching().tolist()
        return [
            ThresholdPoint(
                threshold, 100.0 * h / m if m else None, 100.0 * h / n_true if n_true else 0.0
            )
            for threshold, m, h in zip(_thresholds().tolist(), n, hits, strict=True)
        ]

    def best(self, n_true: int) -> float:
        """Return the threshold with the most micro-F, the highest one among equals.

        n_true  as in `points`
        """
        n, hits = self._counts_reaching()
        return (STEPS - int(np.argmax((2.0 * hits / np.maximum(n + n_true, 1))[::-1]))) / STEPS

    def _counts_reaching(self) -> I64:
        """Return the predictions, and the true ones, that reach each threshold, int64[2, STEPS]."""
        return np.cumsum(np.stack([self._all, self._hits])[:, ::-1], axis=1)[:, ::-1][:, 1:]


def _thresholds() -> F32:
    return (np.arange(1, STEPS + 1) / STEPS).astype(np.float32)


# The lowest threshold that is tried: predictions below it need not be counted.
LEAST_THRESHOLD = float(_thresholds()[0])
