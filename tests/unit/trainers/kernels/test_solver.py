"""The tiled solvers against LIBLINEAR's objective, on awkward rows,
and what they promise about lanes.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from tests.oracles.problems import (
    dense_rows,
    hinge_objective,
    logistic_objective,
    random_rows,
    to_rows,
)

from xylem.base.rows import SparseRows
from xylem.engine.features.vectors import join_tails
from xylem.trainers.kernels.problem import NO_ROOM, localise
from xylem.trainers.kernels.solver import Tile, solve_logistic, solve_one, solve_squared_hinge

OBJECTIVES = {solve_squared_hinge: hinge_objective, solve_logistic: logistic_objective}
solvers = pytest.mark.parametrize("solve", OBJECTIVES, ids=["squared_hinge", "logistic"])


def _whole(rows: Any) -> Any:
    """Return the problem of all rows."""
    rank = np.zeros(rows.n_features, np.int32)
    return localise(rows, np.arange(rows.n_rows, dtype=np.int32), rank, *NO_ROOM)


def _solve(
    solve: Any,
    rows: Any,
    y: Any,
    cost: Any,
    eps: Any,
    seed: int = 1,
    epochs_max: Any = 5000,
    stop: Any = 0,
) -> Any:
    """Return (w float64[D, C], b float64[C], epochs, the tile); y: bool[n, C]."""
    n_rows, n_children = y.shape
    problem = _whole(rows)
    positive = (y << np.arange(n_children)).sum(axis=1).astype(np.uint16)
    weights = np.zeros((len(problem.used) + 1, 16), np.float32)
    alpha = np.zeros((n_rows, 16), np.float32)
    tile = Tile(positive, weights, alpha, np.empty(n_rows, np.int32), np.empty(n_rows, np.uint16))
    costs = np.ones((1, 16), np.float32)
    costs[0, :n_children] = cost
    epochs = solve(
        problem, tile, n_children, costs, eps, epochs_max, seed, np.array([stop], np.uint8)
    )
    w = np.zeros((rows.n_features, n_children))
    w[problem.used] = weights[:-1, :n_children]
    return w, weights[-1, :n_children].astype(np.float64), epochs, tile


def _problem(seed: int, n_rows: int = 120, n_features: int = 40, n_children: int = 16) -> Any:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n_rows, n_features, 0.2)
    truth = rng.standard_normal((n_features, n_children))
    noise = 0.5 * rng.standard_normal((n_rows, n_children))
    y = dense_rows(rows) @ truth + noise > rng.standard_normal(n_children)
    y[0], y[1] = True, False
    return rows, y


def _objective(solve: Any, x: Any, y: Any, w: np.ndarray, b: float, cost: Any) -> Any:
    """Return the objective of one child; y: bool[n]."""
    return OBJECTIVES[solve](x, np.where(y, 1.0, -1.0), w, b, cost)


def _reference(solve: Any, x: Any, y: Any, cost: Any) -> Any:
    """Return the least objective that LIBLINEAR finds."""
    if solve is solve_squared_hinge:
        model = LinearSVC(C=cost, dual=True, tol=1e-6, max_iter=200_000, random_state=0)
    else:
        model = LogisticRegression(C=cost, solver="liblinear", tol=1e-8, max_iter=10_000)
    model.fit(x, y)
    return _objective(solve, x, y, model.coef_[0], model.intercept_[0], cost)


@solvers
@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0, np.geomspace(0.05, 20, 16)])
def test_objective_is_liblinears(solve: Any, cost: Any) -> None:
    rows, y = _problem(3)
    x, costs = dense_rows(rows), np.broadcast_to(cost, 16)
    w, b, epochs, _ = _solve(solve, rows, y, cost, 1e-3)
    assert 0 < epochs < 5000
    for c in (0, 7, 15):
        least = _reference(solve, x, y[:, c], costs[c])
        found = _objective(solve, x, y[:, c], w[:, c], b[c], costs[c])
        assert least - 1e-4 * abs(least) <= found <= least * (1 + 1e-3)


@solvers
def test_a_tail_is_features_as_all_others(solve: Any) -> None:
    words, y = _problem(3)
    tails = np.random.default_rng(3).normal(size=(words.n_rows, 7)).astype(np.float32)
    joined = join_tails(*words[:3], tails, words.n_features)
    rows = SparseRows(*joined, words.n_features + 7)
    x = dense_rows(rows)
    objectives = []
    for tail in (0, 7):
        w, b, _, _ = _solve(solve, rows._replace(tail=tail), y, 1.0, 1e-3)
        objectives.append([_objective(solve, x, y[:, c], w[:, c], b[c], 1.0) for c in range(16)])
        least = _reference(solve, x, y[:, 5], 1.0)
        assert objectives[-1][5] <= least * (1 + 1e-3)
    np.testing.assert_allclose(*objectives, rtol=1e-3)


@solvers
def test_a_loose_eps_takes_fewer_epochs_and_is_still_near(solve: Any) -> None:
    rows, y = _problem(4, n_rows=300)
    x = dense_rows(rows)
    tight, b_tight, many, _ = _solve(solve, rows, y, 1.0, 1e-3)
    loose, b_loose, few, _ = _solve(solve, rows, y, 1.0, 0.1)
    assert few < many
    for c in range(16):
        least = _objective(solve, x, y[:, c], tight[:, c], b_tight[c], 1.0)
        assert _objective(solve, x, y[:, c], loose[:, c], b_loose[c], 1.0) <= 1.01 * least


@solvers
def test_duplicate_and_empty_rows(solve: Any) -> None:
    dense = np.zeros((12, 3))
    dense[:4, 0] = 1
    dense[4:8, 1] = 1
    y = np.arange(12)[:, None] < 4
    w, b, _, _ = _solve(solve, to_rows(dense), y, 1.0, 1e-3)
    least = _reference(solve, dense, y[:, 0], 1.0)
    assert _objective(solve, dense, y[:, 0], w[:, 0], b[0], 1.0) == pytest.approx(least, rel=1e-3)
    assert w[0, 0] > 0 > w[1, 0] and w[2, 0] == 0


@solvers
@pytest.mark.parametrize("which", [True, False])
def test_a_child_of_one_class_is_solved_by_its_bias(solve: Any, which: Any) -> None:
    rows, _ = _problem(5, n_rows=30, n_children=1)
    y = np.full((30, 1), which)
    w, b, epochs, _ = _solve(solve, rows, y, 1.0, 1e-2)
    margin = (dense_rows(rows) @ w[:, 0] + b[0]) * (1 if which else -1)
    assert margin.min() > 0.5
    assert 0 < epochs < 5000


@solvers
def test_lanes_without_a_child_stay_zero(solve: Any) -> None:
    rows, y = _problem(6, n_children=3)
    *_, tile = _solve(solve, rows, y, 1.0, 0.1)
    assert tile.weights[:, :3].any(axis=0).all()
    if solve is solve_squared_hinge:
        assert not tile.weights[:, 3:].any()
        assert not tile.alpha[:, 3:].any()


@solvers
def test_a_child_does_not_depend_on_its_neighbours(solve: Any) -> None:
    rows, y = _problem(7)
    x = dense_rows(rows)
    w, b, _, _ = _solve(solve, rows, y, 1.0, 1e-3)
    for c in (0, 9):
        alone, b_alone, _, _ = _solve(solve, rows, y[:, c : c + 1], 1.0, 1e-3)
        together = x @ w[:, c] + b[c]
        np.testing.assert_allclose(together, x @ alone[:, 0] + b_alone[0], atol=0.02)


@solvers
def test_same_seed_same_bits(solve: Any) -> None:
    rows, y = _problem(8)
    first, same, other = (
        _solve(solve, rows, y, 1.0, 0.1, seed)[3].weights.tobytes() for seed in (5, 5, 6)
    )
    assert first == same != other


@solvers
def test_epochs_are_bounded_and_stop_is_heard(solve: Any) -> None:
    rows, y = _problem(9)
    assert _solve(solve, rows, y, 1e6, 1e-4, epochs_max=3)[2] == -0xFFFF
    assert _solve(solve, rows, y, 1e6, 1e-4, stop=1)[2] == 1


@pytest.mark.parametrize("seed", range(6))
def test_no_row_violates_the_optimum_though_rows_were_dropped(seed: int) -> None:
    rows, y = _problem(20 + seed, n_rows=600, n_features=60)
    w, b, _, tile = _solve(solve_squared_hinge, rows, y, 10.0, 0.05)
    sign = np.where(y, 1.0, -1.0)
    gradient = sign * (dense_rows(rows) @ w + b) - 1 + tile.alpha * 0.5 / 10.0
    projected = np.where(tile.alpha > 0, gradient, np.minimum(gradient, 0))
    # The last epoch saw every row within eps while the weights still moved a little.
    assert (projected.max(axis=0) - projected.min(axis=0)).max() < 2 * 0.05


def test_one_classifier_alone_is_at_the_optimum_too() -> None:
    rows, y = _problem(11, n_rows=400, n_features=30, n_children=1)
    times = 1 + np.arange(400) % 3
    cost = (0.5 * times).astype(np.float32)
    problem = _whole(rows)
    how = problem, y[:, 0].astype(np.uint16), cost, 1e-3, 5000, 1
    found = solve_one(*how, np.zeros(1, np.uint8))
    w = np.zeros(rows.n_features)
    w[problem.used] = found[:-1]
    x, y = np.repeat(dense_rows(rows), times, axis=0), np.repeat(y[:, 0], times)
    value = _objective(solve_squared_hinge, x, y, w, float(found[-1]), 0.5)
    assert value == pytest.approx(_reference(solve_squared_hinge, x, y, 0.5), rel=1e-3)
    assert found.tobytes() == solve_one(*how, np.zeros(1, np.uint8)).tobytes()
    assert found.tobytes() != solve_one(*how, np.ones(1, np.uint8)).tobytes(), "stop is heard"
