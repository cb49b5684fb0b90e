"""The choice of kappa against a slow one, row by row and label by label."""

from __future__ import annotations

import numpy as np
import pytest

from service.base.rows import LabelRows
from service.thresholds.methods.estimates import Estimates
from service.thresholds.methods.starts import C_GRID, choose_kappa
from tests.oracles.problems import to_labels
from tests.oracles.thresholds import f_score

N_LABELS = 6
FLOOR = np.full(N_LABELS, 0.01, np.float32)


def drawn(seed: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and truth, float32 and bool [n_rows, N_LABELS]; scores of 0 are no estimates."""
    rng = np.random.default_rng(seed)
    scores = rng.random((n_rows, N_LABELS)) ** 3
    scores[rng.random(scores.shape) < 0.3] = 0
    return scores.astype(np.float32), rng.random(scores.shape) < scores * rng.uniform(0.2, 1.0)


def estimates_of(scores: np.ndarray) -> Estimates:
    kept = scores >= 0.01
    rows, labels = np.nonzero(kept)
    ptr = np.searchsorted(rows, np.arange(len(scores) + 1)).astype(np.int64)
    return Estimates(ptr, labels.astype(np.int32), scores[kept], FLOOR)


def dense_of(estimates: Estimates) -> np.ndarray:
    scores = np.zeros((len(estimates.ptr) - 1, N_LABELS), np.float32)
    scores[np.repeat(np.arange(len(scores)), np.diff(estimates.ptr)), estimates.labels] = estimates.scores
    return scores


def mean_score(scores: np.ndarray, truth: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """A method that looks at its rows: half the mean score of a label where it is true, if that is more."""
    found = [0.5 * scores[truth[:, j], j].mean() if truth[:, j].any() else 0.0 for j in range(N_LABELS)]
    return np.maximum(bounds, np.array(found, np.float32))


def slow_choice(scores: np.ndarray, truth: np.ndarray, empty: float, seed: int) -> float:
    """Every kappa of the grid, both halves, every label and row."""
    dealt = np.random.default_rng(seed).permutation(len(scores)) % 2 == 0
    found = {}
    for c in C_GRID:
        total = 0.0
        for half in (dealt, ~dealt):
            bounds = np.maximum(FLOOR, np.float32(1 / c))
            thresholds = mean_score(scores[half], truth[half], bounds)
            of_labels = []
            for j in range(N_LABELS):
                says = scores[~half, j] >= thresholds[j]
                true = truth[~half, j]
                of_labels.append(f_score(int((says & true).sum()), int(says.sum() + true.sum()), empty))
            total += sum(of_labels) / N_LABELS
        found[1 / c] = round(total, 9)
    return max(sorted(found), key=found.__getitem__)


@pytest.mark.parametrize("n_rows", [2, 9, 60, 400])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_kappa_is_the_slow_ones(n_rows: int, seed: int) -> None:
    scores, truth = drawn(seed, n_rows)

    def find(estimates: Estimates, labels: LabelRows, bounds: np.ndarray) -> np.ndarray:
        carried = np.zeros((labels.n_rows, N_LABELS), bool)
        carried[np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr)), labels.indices] = True
        return mean_score(dense_of(estimates), carried, bounds)

    for empty, value in (("one", 1.0), ("zero", 0.0)):
        found = choose_kappa(estimates_of(scores), to_labels(truth), FLOOR, find, empty, seed)
        assert found == slow_choice(scores * (scores >= 0.01), truth, value, seed)


def test_of_equals_the_lowest_is_chosen() -> None:
    nothing = estimates_of(np.zeros((8, N_LABELS), np.float32))
    carried = to_labels(np.ones((8, N_LABELS), bool))
    assert choose_kappa(nothing, carried, FLOOR, lambda _, __, bounds: bounds, "one") == 1 / C_GRID[0]
