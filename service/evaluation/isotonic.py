"""Calibration fitted to held-out predictions: the probability that a label is true, rising with its score.

Source: Zadrozny and Elkan 2002, "Transforming classifier scores into accurate multiclass probability
estimates", section 3: isotonic regression, by pool adjacent violators. Two deviations: the steps
become a line through the middle of each block, and no piece is flat, so that no two scores become one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.calibration import KNOTS_MAX, Calibration
from service.kernels.search.calibrated import calibrate_scores

BLOCK_MIN = 50
"""Predictions that a block of the fit has, at least: with fewer, its share of true ones is an accident."""

SLOPE_MIN = 1e-3
"""How far the map keeps from the constants 0 and 1: by this much of a score, and of what it lacks to 1."""


def fit_calibration(scores: NDArray[np.float32], are_true: NDArray[np.bool_]) -> Calibration:
    """Return the map from scores to the share of true labels among predictions of such scores.

    scores, are_true  float32[n] in [0, 1], bool[n]; n >= 1
    Cost: a sort. Deterministic.
    """
    values, n, hits = _by_score(scores, are_true)
    starts = _joined(pooled(hits, n), n)
    n_block = np.add.reduceat(n, starts)
    x = np.add.reduceat(n * values, starts) / n_block
    y = np.add.reduceat(hits, starts) / n_block
    y = np.clip(y, SLOPE_MIN * x, 1 - SLOPE_MIN * (1 - x))
    end = y[-1] + SLOPE_MIN * (1 - x[-1])
    return _rising(np.concatenate([[0.0], x, [1.0]]), np.concatenate([[0.0], y, [end]]))


def apply_calibration(calibration: Calibration, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what becomes of scores, float32[n] in [0, 1], as searches of a calibrated version have it."""
    found = np.empty(len(scores), np.float32)
    calibrate_scores((calibration.x, calibration.y), scores, found)
    return found


def _by_score(
    scores: NDArray[np.float32], are_true: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct scores, ascending, and of each how many predictions and true ones there are."""
    values, place = np.unique(scores, return_inverse=True)
    n, hits = np.bincount(place).astype(np.float64), np.bincount(place, are_true).astype(np.float64)
    return values.astype(np.float64), n, hits


def pooled(hits: NDArray[np.float64], n: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return where the blocks of the isotonic fit to hits / n start, weighed by n: int64[blocks], ascending.

    hits, n  float64[places]; n > 0
    Means of blocks ascend strictly: places that would not join the block before (pool adjacent violators).
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


def _joined(starts: NDArray[np.int64], n: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return where blocks start once each has BLOCK_MIN predictions, and there is room for their knots.

    starts  int64[blocks]; n: how many predictions each place counts
    A block that is too small joins the next one, the last the one before: means of neighbours still ascend.
    """
    sizes, least = np.add.reduceat(n, starts), BLOCK_MIN
    while True:
        taken, size = [0], 0.0
        for block, more in enumerate(sizes.tolist()):
            if size >= least:
                taken.append(block)
                size = 0.0
            size += more
        if size < least and len(taken) > 1:
            taken.pop()
        if len(taken) <= KNOTS_MAX - 2:
            return starts[taken]
        least *= 2


def _rising(x: NDArray[np.float64], y: NDArray[np.float64]) -> Calibration:
    """Return the knots as float32, without those that float32 does not tell from a neighbour.

    The first and the last stay: they are the ends of the scale.
    """
    knots = np.stack([x, y]).astype(np.float32)
    first, last, kept = knots[:, 0], knots[:, -1], []
    before = first
    for knot in knots[:, 1:-1].T:
        if (knot > before).all() and (knot < last).all():
            kept.append(knot)
            before = knot
    found = np.ascontiguousarray(np.stack([first, *kept, last], axis=1))
    return Calibration(found[0].copy(), found[1].copy())
