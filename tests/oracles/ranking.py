"""Slow and obvious: rankings of labels, how well sides are served by them, and the separator's objective."""

from __future__ import annotations

import numpy as np


def discounted(gains: np.ndarray, ranking: list[int]) -> float:
    """The sum of nDCGs of rows (gains float64[n, k] over the ideal DCG) under one ranking of the labels."""
    return float(sum(gains[:, label].sum() / np.log2(place + 2) for place, label in enumerate(ranking)))


def best_ranking(gains: np.ndarray) -> list[int]:
    """The labels by falling summed gain, equal ones by number."""
    sums = in_turn(gains.T)
    return sorted(range(gains.shape[1]), key=lambda label: (-sums[label], label))


def served(gains: np.ndarray, side: np.ndarray) -> float:
    """The sum of nDCGs when each side has its best ranking."""
    return sum(discounted(gains[side == s], best_ranking(gains[side == s])) for s in (0, 1))


def alternate(
    gains: np.ndarray, side: np.ndarray, discount: np.ndarray, gain_min: float
) -> tuple[np.ndarray, list[float]]:
    """Rankings for sides and sides for rankings in turn; the sides at the end, each round's sum of nDCGs.

    Every label must have a gain. Sums are taken from the first to the last, so that what a kernel finds equal
    is equal here.
    """
    n_rows, n_labels = gains.shape
    totals: list[float] = []
    while len(totals) < 2 or totals[-1] - totals[-2] >= gain_min * n_rows:
        totals.append(served(gains, side))
        lead = np.zeros(n_labels)
        for sign, s in ((-1.0, 0), (1.0, 1)):
            for place, label in enumerate(best_ranking(gains[side == s])):
                lead[label] += sign * discount[place]
        more = in_turn(gains * lead)
        side = np.where(more == 0, side, more > 0).astype(np.uint8)
    return side, totals


def in_turn(rows: np.ndarray) -> np.ndarray:
    """The sum of each row, added from its first element to its last."""
    return np.cumsum(rows, axis=1)[:, -1] if rows.shape[1] else np.zeros(len(rows))


def separator_objective(x: np.ndarray, side: np.ndarray, w: np.ndarray, cost: np.ndarray) -> float:
    """|w|_1 + sum of cost of the side * logistic loss; the last of w is the constant term."""
    margin = np.where(side == 1, 1.0, -1.0) * (x @ w[:-1] + w[-1])
    return float(np.abs(w).sum() + (cost[side] * np.logaddexp(0, -margin)).sum())
