"""The alternation of rankings and sides against exhaustive search and dense sums."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.rows import LabelRows
from service.trainers.ranking.tree import (
    GAIN_MIN,
    ROUNDS_MAX,
    gains_of,
    split_by_ranking,
    toss_sides,
)
from tests.oracles.problems import dense_labels, random_labels, splitmix64, to_labels
from tests.oracles.ranking import alternate, best_ranking, discounted, served

DISCOUNT = 1.0 / np.log2(np.arange(40) + 2.0)
IDEAL = np.concatenate([[0.0], np.cumsum(DISCOUNT)])


def dense_gains(labels: LabelRows, weight: np.ndarray) -> np.ndarray:
    """The gain of each label in each row: float64[n, K]."""
    carried = dense_labels(labels)
    gains = carried * weight.astype(np.float64)
    n_carried = carried.sum(axis=1)
    return np.divide(gains, IDEAL[n_carried][:, None], out=np.zeros_like(gains), where=n_carried[:, None] > 0)


def split(labels: LabelRows, weight: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sides and the totals of all rounds."""
    order = np.arange(labels.n_rows, dtype=np.int32)
    seen = np.zeros(labels.n_labels, np.int32)
    gains = gains_of(labels.indptr, labels.indices, order, weight, IDEAL, seen)
    assert not seen.any(), "the workspace is left as it was"
    assert gains.used.tolist() == np.flatnonzero(dense_labels(labels).any(axis=0)).tolist()
    side, totals = side.copy(), np.full(ROUNDS_MAX, np.nan)
    rounds = split_by_ranking(gains, DISCOUNT, side, totals)
    assert np.isfinite(totals[:rounds]).all()
    assert np.isnan(totals[rounds:]).all()
    return side, totals[:rounds]


problems = st.builds(
    lambda seed, n_rows, n_labels, share, weighted: (
        random_labels(np.random.default_rng(seed), n_rows, n_labels, share),
        np.where(weighted, np.random.default_rng(seed).uniform(1, 9, n_labels), 1.0).astype(np.float32),
        np.random.default_rng(seed + 1).integers(0, 2, n_rows).astype(np.uint8),
    ),
    st.integers(0, 2**31),
    st.integers(1, 30),
    st.integers(1, 12),
    st.sampled_from([0.1, 0.4]),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(problems)
def test_the_sum_of_ndcgs_never_falls_and_is_that_of_the_best_rankings(problem):
    labels, weight, start = problem
    side, totals = split(labels, weight, start)
    gains = dense_gains(labels, weight)
    assert totals[0] == pytest.approx(served(gains, start))
    assert (np.diff(totals) >= -1e-9).all()
    assert served(gains, side) >= totals[-1] - 1e-9


@settings(max_examples=60, deadline=None)
@given(problems)
def test_sides_and_totals_of_all_rounds_are_those_of_dense_rows(problem):
    labels, weight, start = problem
    side, totals = split(labels, weight, start)
    gains = dense_gains(labels, weight)
    expected, expected_totals = alternate(gains[:, gains.any(axis=0)], start, DISCOUNT, GAIN_MIN)
    assert totals.tolist() == pytest.approx(expected_totals)
    assert side.tolist() == expected.tolist()


def test_sorting_by_gain_is_the_best_of_all_rankings():
    labels = random_labels(np.random.default_rng(3), 12, 5, 0.5)
    gains = dense_gains(labels, np.ones(5, np.float32))
    best = max(discounted(gains, list(ranking)) for ranking in permutations(range(5)))
    assert discounted(gains, best_ranking(gains)) == pytest.approx(best)
    _, totals = split(labels, np.ones(5, np.float32), np.zeros(12, np.uint8))
    assert totals[0] == pytest.approx(best)


def test_two_groups_of_rows_are_told_apart():
    carried = np.zeros((20, 4), bool)
    carried[:10, :2] = True
    carried[10:, 2:] = True
    start = np.array([0] * 8 + [1] * 2 + [1] * 7 + [0] * 3, np.uint8)
    side, _ = split(to_labels(carried), np.ones(4, np.float32), start)
    assert side.tolist() == [0] * 10 + [1] * 10


def test_a_row_that_both_sides_serve_alike_stays():
    labels = to_labels(np.ones((6, 1), bool))
    start = np.array([0, 1, 1, 0, 1, 0], np.uint8)
    side, totals = split(labels, np.ones(1, np.float32), start)
    assert side.tolist() == start.tolist()
    assert totals.tolist() == [6.0, 6.0]


def test_tossed_sides_are_the_high_bits_of_the_generator():
    side, state = np.full(50, 7, np.uint8), np.array([11], np.uint64)
    toss_sides(side, state)
    assert side.tolist() == [number >> 63 for number in splitmix64(11, 50)]
