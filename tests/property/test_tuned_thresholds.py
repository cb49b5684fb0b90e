"""STO, FTA, and OFO's replay against oracles that try everything, on dense scores."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.forests import draw_forests
from tests.oracles.metrics import best_f, label_f, ofo_thresholds
from tests.oracles.problems import to_labels

from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.kernels.search.calibrated import NO_KNOTS
from xylem.engine.kernels.search.subtrees import greatest_below, move_thresholds, set_logs
from xylem.thresholds.methods.estimates import EstimateKeeper, count_at, fit_power, mark_hits
from xylem.thresholds.methods.fta import GRID, SUPPORT, fta, sto
from xylem.thresholds.methods.ofo import Start
from xylem.thresholds.methods.starts import choose_start, replay
from xylem_store.ensemble import TreeEnsemble

K = 6
EMPTY = {"one": 1.0, "zero": 0.0}

empties = st.sampled_from(["one", "zero"])


def dense(seed: int, n_rows: int, n_values: Any, share: Any) -> np.ndarray:
    """Scores, many of them equal where there are few values, and truth that goes with them."""
    rng = np.random.default_rng(seed)
    values = (rng.random(n_values) ** 2).astype(np.float32)
    scores = rng.choice(values, (n_rows, K))
    return scores, (rng.random((n_rows, K)) < share) | (rng.random((n_rows, K)) < share * scores)


cases = st.builds(
    dense,
    seed=st.integers(0, 2**31),
    n_rows=st.integers(1, 60),
    n_values=st.sampled_from([2, 7, 10_000]),
    share=st.sampled_from([0.0, 0.05, 0.4]),
)


def sparse(scores: Any, truth: Any, floor: Any) -> Any:
    keeper = EstimateKeeper(floor)
    for row in scores:
        labels = np.flatnonzero(row >= floor).astype(np.int32)
        keeper.add(np.array([0, len(labels)]), labels, row[labels])
    return keeper.all(), to_labels(truth)


def f_at(scores: Any, truth: Any, thresholds: Any, empty: Any) -> Any:
    """F of each label at its threshold."""
    return np.array(
        [label_f(scores[:, j], truth[:, j], thresholds[j], EMPTY[empty]) for j in range(K)]
    )


@settings(max_examples=80)
@given(cases, empties)
def test_sto_is_the_best_of_all_cuts(case: Any, empty: Any) -> None:
    scores, truth = case
    floor = np.linspace(0.001, 0.2, K).astype(np.float32)
    one = np.maximum(floor, np.float32(0.3))
    found = sto(*sparse(scores, truth, floor), floor, one, empty)
    assert np.all((found >= floor) & (found <= 1.0))
    best = [best_f(scores[:, j], truth[:, j], float(floor[j]), EMPTY[empty]) for j in range(K)]
    assert f_at(scores, truth, found, empty) == pytest.approx(best)
    is_best = f_at(scores, truth, one, empty) == best
    assert found[is_best].tolist() == one[is_best].tolist()


@settings(max_examples=60)
@given(cases, empties, st.sampled_from([0.5, 1.0, 2.0]))
def test_fta_is_the_best_of_the_grid(case: Any, empty: Any, power: Any) -> None:
    scores, truth = case
    bounds = np.linspace(0.01, 0.3, K).astype(np.float32)
    floor = (bounds.astype(float) ** (1 / power)).astype(np.float32)
    own, one = fta(*sparse(scores, truth, floor), bounds, Start(power=power), empty)
    grid = np.maximum(np.array(GRID)[:, None], bounds).astype(float) ** (1 / power)
    grid = grid.astype(np.float32)
    of_grid = np.array([f_at(scores, truth, thresholds, empty) for thresholds in grid])
    assert f_at(scores, truth, one, empty).mean() == pytest.approx(of_grid.mean(axis=1).max())
    assert one.tolist() in grid.tolist()
    own_f, is_rare = f_at(scores, truth, own, empty), truth.sum(axis=0) < SUPPORT
    assert own[is_rare].tolist() == one[is_rare].tolist()
    assert own_f[~is_rare] == pytest.approx(of_grid.max(axis=0)[~is_rare])


@settings(max_examples=40)
@given(cases, st.sampled_from([0.5, 1.0]))
def test_the_replay_is_the_papers_loop(case: Any, power: Any) -> None:
    scores, truth = case
    bounds = np.linspace(0.01, 0.3, K).astype(np.float32)
    estimates, labels = sparse(scores, truth, (bounds * 0.5) ** np.float32(1 / power))
    start = Start(2.0, 5.0, power)
    expected, _, _ = ofo_thresholds(scores, truth, *start, bounds)
    np.testing.assert_allclose(replay(estimates, labels, bounds, start), expected, rtol=2e-7)


@pytest.mark.parametrize(
    ("n_rows", "most"), [(40, 100), (999, 200), (1000, 1000), (10_000, 10_000)]
)
@pytest.mark.parametrize(
    ("seed", "share", "empty"), [(6, 0.05, "one"), (13, 0.3, "one"), (10, 0.3, "zero")]
)
def test_start_values_are_the_best_of_the_grid(
    n_rows: int, most: Any, seed: int, share: Any, empty: Any
) -> None:
    """Rows beyond 40 have neither estimates nor true labels: the slow loop need not see them."""
    scores, truth = dense(seed, 40, 10_000, share)
    bounds = np.full(K, 0.01, np.float32)
    estimates, labels = sparse(scores, truth, bounds)
    ptr, indptr = (
        np.append(of, np.full(n_rows - 40, of[-1])) for of in (estimates.ptr, labels.indptr)
    )
    many = estimates._replace(ptr=ptr), labels._replace(indptr=indptr)
    found = choose_start(*many, bounds, Start(), empty)
    slow = {}
    for a in (1, 2, 3, 4, 5, 7, 10, 20, 50, 100, 200, 1000, 10_000):
        for c in (2, 3, 4, 5, 7, 10, 20, 50, 100):
            if a <= most:
                after, _, _ = ofo_thresholds(scores, truth, a, a * c, 1.0, 1.0, bounds)
                slow[a, a * c] = round(float(f_at(scores, truth, after, empty).mean()), 12)
    assert min(slow.values()) < max(slow.values())
    assert found == (*max(slow, key=slow.__getitem__), 1.0, 1.0)


def test_counts_are_those_of_every_decision() -> None:
    scores, truth = dense(3, 50, 10_000, 0.3)
    floor, thresholds = np.full(K, 0.1, np.float32), np.linspace(0.1, 0.9, K).astype(np.float32)
    estimates, labels = sparse(scores, truth, floor)
    found = count_at(estimates, labels, thresholds)
    predicted = scores >= thresholds
    assert found.hits.tolist() == (predicted & truth).sum(axis=0).tolist()
    assert found.marks.tolist() == (predicted.sum(axis=0) + truth.sum(axis=0)).tolist()
    assert found.hits.sum() > 0
    rows = np.repeat(np.arange(50), np.diff(estimates.ptr))
    assert (
        mark_hits(estimates, labels).tolist() == truth[rows, estimates.labels].astype(int).tolist()
    )


@pytest.mark.parametrize("estimates_max", [1, 40, 139, 140])
def test_estimates_are_bounded_in_number_and_above_the_floor(
    estimates_max: Any,
) -> None:
    rng = np.random.default_rng(0)
    scores = rng.permutation(np.arange(1, 141, dtype=np.float32) / 140).reshape(70, 2)
    keeper = EstimateKeeper(np.zeros(2, np.float32), estimates_max)
    for first in range(0, 70, 7):
        part = scores[first : first + 7]
        kept = part >= keeper.floor
        ptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        keeper.add(ptr, np.nonzero(kept)[1].astype(np.int32), part[kept])
    found = keeper.all()
    assert len(found.labels) <= estimates_max
    assert np.diff(found.ptr).tolist() == (scores >= found.floor).sum(axis=1).tolist()
    assert found.scores.tolist() == scores[scores >= found.floor].tolist()
    assert (estimates_max == 140) == (found.floor.max() == 0)
    assert estimates_max == 1 or len(found.labels) > estimates_max / 4


def test_equal_scores_that_are_too_many_all_go() -> None:
    keeper = EstimateKeeper(np.zeros(1, np.float32), 3)
    keeper.add(np.arange(5), np.zeros(4, np.int32), np.full(4, 0.5, np.float32))
    assert keeper.all().ptr.tolist() == [0] * 5
    assert keeper.floor[0] > 0.5


@pytest.mark.parametrize("power", [0.3, 0.55, 1.0, 2.5])
def test_the_power_that_scores_were_made_with_is_found(power: Any) -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(200_000).astype(np.float32)
    hits = (rng.random(200_000) < scores.astype(float) ** power).astype(np.uint8)
    assert fit_power(scores, hits, 1.0) == pytest.approx(power, rel=0.02)


@pytest.mark.parametrize("hits", [[0, 0], [1, 1], []])
def test_without_hits_or_misses_the_power_is_the_usual_one(hits: Any) -> None:
    assert fit_power(np.full(len(hits), 0.5, np.float32), np.array(hits, np.uint8), 0.55) == 0.55


def test_the_power_stays_in_its_range() -> None:
    certain = np.full(50, 1.0, np.float32), np.array([1] + [0] * 49, np.uint8)
    never = np.full(50, 1e-30, np.float32), np.array([0] + [1] * 49, np.uint8)
    assert 0.1 <= fit_power(*never, 1.0) < 0.2
    assert 9 < fit_power(*certain, 1.0) <= 10.0


def made(ensemble: TreeEnsemble, thresholds: Any) -> tuple[SparseRows, LabelRows]:
    logs = np.empty(len(thresholds), np.float32)
    set_logs(NO_KNOTS, thresholds, logs)
    return -greatest_below(ensemble, -logs, -np.inf)


@settings(max_examples=80)
@given(draw_forests(["label-tree"], 3, 300, [3], [2, 5, 100]), st.sampled_from([2, 5, 1000]))
def test_moved_thresholds_are_those_made_anew(forest: Any, n_values: Any) -> None:
    ensemble, n_labels, rng = forest.ensemble, forest.n_labels, np.random.default_rng(forest.seed)
    values = np.append(0.0, rng.random(n_values)).astype(np.float32)
    thresholds = rng.choice(values, n_labels)
    nodes = made(ensemble, thresholds)
    for _ in range(20):
        labels = rng.choice(n_labels, rng.integers(1, min(n_labels, 8) + 1), replace=False).astype(
            np.int32
        )
        thresholds[labels] = rng.choice(values, len(labels))
        paths = ensemble.child_ptr, ensemble.parent, ensemble.label_leaf
        move_thresholds(*paths, NO_KNOTS, labels, thresholds, nodes)
        assert nodes.tobytes() == made(ensemble, thresholds).tobytes()


@pytest.mark.parametrize("threshold", [0.0, 1e-4, 0.25, 1 / 3, 0.5, 1.0])
def test_logarithms_are_those_of_numpy_in_double(threshold: Any) -> None:
    found = np.empty(1, np.float32)
    set_logs(NO_KNOTS, np.float32([threshold]), found)
    with np.errstate(divide="ignore"):
        assert found[0] == np.float32(np.log(np.float64(np.float32(threshold))))
