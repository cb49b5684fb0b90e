"""A node of a ranking tree: its sides and its separator, on awkward rows too."""

from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression
from tests.oracles import problems
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows, to_rows

from xylem.base.rows import NO_ROWS, LabelRows, SparseRows
from xylem.trainers.ranking.separator import columns_of, solve_separator
from xylem.trainers.ranking.tree import (
    GAIN_MIN,
    ROUNDS_MAX,
    TrainingRows,
    gains_of,
    split_by_ranking,
)
from xylem.trainers.source import MemorySource

DISCOUNT = 1.0 / np.log2(np.arange(40) + 2.0)
IDEAL = np.concatenate([[0.0], np.cumsum(DISCOUNT)])


def dense_gains(labels: LabelRows, weight: np.ndarray) -> np.ndarray:
    """The gain of each label in each row: float64[n, K]."""
    carried = dense_labels(labels)
    gains = carried * weight.astype(np.float64)
    n_carried = carried.sum(axis=1)
    return np.divide(
        gains, IDEAL[n_carried][:, None], out=np.zeros_like(gains), where=n_carried[:, None] > 0
    )


def split(labels: LabelRows, weight: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sides and the totals of all rounds."""
    order = np.arange(labels.n_rows, dtype=np.int32)
    seen = np.zeros(labels.n_labels, np.int32)
    gains = gains_of(TrainingRows(NO_ROWS, labels, weight, DISCOUNT, IDEAL), order, seen)
    assert not seen.any(), "the workspace is left as it was"
    assert gains.used.tolist() == np.flatnonzero(dense_labels(labels).any(axis=0)).tolist()
    side, totals = side.copy(), np.full(ROUNDS_MAX, np.nan)
    rounds = split_by_ranking(gains, DISCOUNT, side, totals)
    assert np.isfinite(totals[:rounds]).all()
    assert np.isnan(totals[rounds:]).all()
    return side, totals[:rounds]


@settings(max_examples=160)
@given(
    st.integers(0, 2**31),
    st.integers(1, 30),
    st.integers(1, 12),
    st.sampled_from([0.1, 0.4]),
    st.booleans(),
)
def test_rounds_are_those_of_dense_rows_and_totals_never_fall(
    seed: int, n_rows: int, n_labels: int, share: Any, is_weighted: Any
) -> None:
    rng = np.random.default_rng(seed)
    labels, start = (
        random_labels(rng, n_rows, n_labels, share),
        rng.integers(0, 2, n_rows).astype(np.uint8),
    )
    weight = (rng.uniform(1, 9, n_labels) if is_weighted else np.ones(n_labels)).astype(np.float32)
    side, totals = split(labels, weight, start)
    gains = dense_gains(labels, weight)
    expected, expected_totals = problems.alternate(
        gains[:, gains.any(axis=0)], start, DISCOUNT, GAIN_MIN
    )
    assert totals.tolist() == pytest.approx(expected_totals)
    assert side.tolist() == expected.tolist()
    assert totals[0] == pytest.approx(problems.served(gains, start))
    assert (np.diff(totals) >= -1e-9).all()
    assert problems.served(gains, side) >= totals[-1] - 1e-9


def test_sorting_by_gain_is_the_best_of_all_rankings() -> None:
    labels = random_labels(np.random.default_rng(3), 12, 5, 0.5)
    gains = dense_gains(labels, np.ones(5, np.float32))
    best = max(problems.discounted(gains, list(ranking)) for ranking in permutations(range(5)))
    assert problems.discounted(gains, problems.best_ranking(gains)) == pytest.approx(best)
    _, totals = split(labels, np.ones(5, np.float32), np.zeros(12, np.uint8))
    assert totals[0] == pytest.approx(best)


NEVER = np.zeros(1, np.uint8)


def solve(
    rows: SparseRows,
    side: Any,
    cost: Any,
    eps: Any = 1e-4,
    steps: Any = 100,
    stop: Any = NEVER,
    seed: int = 5,
) -> Any:
    """Return (w float64[D + 1], Newton steps)."""
    counts = np.zeros(rows.n_features, np.int32)
    columns = columns_of(rows, np.arange(rows.n_rows, dtype=np.int32), counts)
    assert not counts.any(), "the workspace is left as it was"
    found, taken = solve_separator(
        columns, side, np.asarray(cost, np.float64), eps, steps, np.array([seed], np.uint64), stop
    )
    w = np.zeros(rows.n_features + 1)
    w[columns.feature[:-1]] = found[:-1]
    w[-1] = found[-1]
    return w, taken


def problem(seed: int, n_rows: int = 150, n_features: int = 60) -> MemorySource:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n_rows, n_features, 0.2)
    side = (
        dense_rows(rows) @ rng.standard_normal(n_features) + 0.3 * rng.standard_normal(n_rows) > 0
    )
    side[:2] = [True, False]
    return rows, side.astype(np.uint8)


def objective(rows: Any, side: Any, w: np.ndarray, cost: Any) -> float:
    return problems.separator_objective(dense_rows(rows), side, w, np.asarray(cost))


def liblinear(rows: Any, side: Any, cost: Any) -> Any:
    """The weights and the least objective that LIBLINEAR's L1 solver
    finds; it penalises the constant too.
    """
    model = LogisticRegression(
        C=1.0,
        l1_ratio=1.0,
        solver="liblinear",
        tol=1e-7,
        max_iter=5000,
        class_weight=dict(enumerate(cost)),
    ).fit(dense_rows(rows), side)
    w = np.append(model.coef_[0], model.intercept_[0])
    return w, objective(rows, side, w, cost)


@pytest.mark.parametrize("cost", [(0.5, 0.5), (3.0, 5.0), (100.0, 60.0)])
@pytest.mark.parametrize("seed", [0, 1])
def test_objective_is_liblinears(cost: Any, seed: int) -> None:
    rows, side = problem(seed)
    expected, least = liblinear(rows, side, cost)
    w, taken = solve(rows, side, cost)
    assert taken < 100
    assert least * (1 - 1e-6) <= objective(rows, side, w, cost) <= least * (1 + 5e-4)
    assert abs(np.count_nonzero(w) - np.count_nonzero(expected)) <= 2


def test_a_loose_eps_takes_fewer_steps_and_is_near() -> None:
    rows, side = problem(2)
    tight, many = solve(rows, side, (5.0, 5.0))
    loose, few = solve(rows, side, (5.0, 5.0), eps=0.01)
    assert few < many
    least = objective(rows, side, tight, (5.0, 5.0))
    assert least <= objective(rows, side, loose, (5.0, 5.0)) <= 1.02 * least


def test_steps_are_bounded_and_each_lowers_the_objective() -> None:
    rows, side = problem(3)
    found = [
        (np.zeros(61), 0),
        *(solve(rows, side, (50.0, 50.0), steps=steps) for steps in range(1, 7)),
    ]
    assert [taken for _, taken in found] == list(range(7))
    assert (np.diff([objective(rows, side, w, (50.0, 50.0)) for w, _ in found]) < 0).all()


def test_stop_ends_it() -> None:
    w, taken = solve(*problem(5), (5.0, 5.0), stop=np.ones(1, np.uint8))
    assert taken == 0
    assert not w.any()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e6, 1e30])
def test_rows_of_any_scale_give_finite_weights(scale: Any) -> None:
    rows, side = problem(6, n_rows=30, n_features=8)
    rows = rows._replace(values=(rows.values * scale).astype(np.float32))
    w, _ = solve(rows, side, (5.0, 5.0), steps=20)
    assert np.isfinite(w).all()


def test_duplicate_and_empty_rows_and_an_unused_feature() -> None:
    dense = np.zeros((12, 3))
    dense[:4, 0] = 1
    dense[4:8, 1] = 1
    side = np.array([1] * 4 + [0] * 8, np.uint8)
    rows = to_rows(dense)
    w, _ = solve(rows, side, (5.0, 5.0))
    _, least = liblinear(rows, side, (5.0, 5.0))
    assert objective(rows, side, w, (5.0, 5.0)) == pytest.approx(least, rel=1e-4)
    assert w[0] > 0 >= w[1]
    assert w[2] == 0


def test_columns_are_the_rows_transposed() -> None:
    rows = random_rows(np.random.default_rng(7), 20, 9, 0.3)
    chosen = np.array([1, 4, 5, 17], np.int32)
    columns = columns_of(rows, chosen, np.zeros(9, np.int32))
    x = dense_rows(rows)[chosen]
    used = np.flatnonzero(x.any(axis=0))
    assert columns.feature.tolist() == [*used, -1]
    transposed = SparseRows(columns.ptr, columns.row, columns.value, 4)
    assert np.array_equal(dense_rows(transposed), np.vstack([x[:, used].T, np.ones(4)]))
    for first, last in pairwise(columns.ptr):
        assert (np.diff(columns.row[first:last]) > 0).all()
