"""OFO's counters and thresholds: the paper's loop, sums in any order, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.small_models import random_calibration, random_rerank
from tests.oracles.metrics import label_f, ofo_thresholds
from tests.oracles.problems import dense_labels, to_labels

from xylem.base.errors import BadParameter
from xylem.base.rows import LabelRows
from xylem.thresholds.live.threshold_counters import ALL_COUNT, count_event
from xylem.thresholds.methods import ofo
from xylem.thresholds.methods.estimates import Estimates
from xylem.thresholds.methods.starts import C_GRID, choose_kappa
from xylem_store.arrays import group_of
from xylem_store.checks import LABEL_COUNTS
from xylem_store.ensemble import LINK_CODES
from xylem_store.manifest import CALIBRATION

K, ROWS = 7, 40


def count(
    counters: Any,
    start: Any,
    label_counts: Any,
    thresholds: Any,
    true: list[int],
    predicted: list[int],
) -> None:
    journal, before = np.full((3, 2 * K), -1, np.int32), np.empty(2 * K, np.float32)
    labels = np.int32(true), np.int32(predicted)
    counted = *counters, thresholds, start[:], label_counts, ROWS
    n = count_event(counted, *labels, 0, (journal, before), ALL_COUNT)
    return journal[0, :n].tolist()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    start=st.sampled_from(
        [
            (1.0, 2.0, 1.0, 1.0),
            (1.0, 7.0, 0.5, 3.7),
            (0.5, 10000.0, 2.0, 1.0),
            (300.0, 20000.0, 1.0, 2.0),
        ]
    ),
)
def test_events_leave_what_the_papers_loop_leaves(seed: int, start: Any) -> None:
    rng = np.random.default_rng(seed)
    scores, truth = rng.random((40, K)).astype(np.float32) ** 3, rng.random((40, K)) < 0.3
    label_counts = rng.integers(0, 41, K)
    bounds = ofo.lower_bounds(label_counts, ROWS, K)
    counters = ofo.no_counts(K)
    thresholds = ofo.thresholds_of(counters, ofo.Start(*start), bounds)
    for row in range(40):
        true, predicted = np.flatnonzero(truth[row]), np.flatnonzero(scores[row] >= thresholds)
        before = thresholds.copy()
        touched = count(counters, start, label_counts, thresholds, true, predicted)
        assert touched == sorted({*true.tolist(), *predicted.tolist()})
        assert not np.any(np.delete(thresholds != before, touched))
    expected, hits, marks = ofo_thresholds(scores, truth, *start, bounds)
    assert counters.hits.tolist() == hits.tolist()
    assert counters.marks.tolist() == marks.tolist()
    np.testing.assert_allclose(thresholds, expected, rtol=2e-7)
    assert thresholds.tobytes() == ofo.thresholds_of(counters, ofo.Start(*start), bounds).tobytes()
    probabilities = (thresholds.astype(float) * start[3]) ** start[2]
    assert np.all((probabilities >= bounds * (1 - 1e-6)) & (probabilities <= 0.5 + 1e-6))


def test_events_add_up_the_same_in_any_order() -> None:
    rng = np.random.default_rng(0)
    events = [
        (np.flatnonzero(rng.random(K) < 0.4), np.flatnonzero(rng.random(K) < 0.4))
        for _ in range(30)
    ]
    uncounted = np.empty(0, np.int64)
    ends = []
    for order in (range(30), reversed(range(30)), rng.permutation(30)):
        counters, thresholds = ofo.no_counts(K), np.empty(K, np.float32)
        for i in order:
            count(counters, ofo.Start(1.0, 4.0), uncounted, thresholds, *events[i])
        ends.append((counters.hits.tolist(), counters.marks.tolist(), thresholds.tobytes()))
    assert ends[0] == ends[1] == ends[2]
    assert sum(ends[0][0]) > 0


def test_a_bound_is_the_priors_and_never_below_the_least() -> None:
    bounds = ofo.lower_bounds(np.array([0, 5, 50, 100]), 100, 4)
    assert bounds.dtype == np.float32
    np.testing.assert_allclose(bounds, [ofo.LEAST, 5 / 105, 1 / 3, 0.5], rtol=1e-6)
    assert (
        ofo.lower_bounds(None, 100, 3).tolist()
        == ofo.lower_bounds(np.array([5, 5, 5]), 0, 3).tolist()
    )
    assert ofo.lower_bounds(None, 100, 3).tolist() == [np.float32(ofo.LEAST)] * 3
    counted = {LABEL_COUNTS: np.arange(6)}
    assert ofo.counts_that_bound(counted) is counted[LABEL_COUNTS]
    assert ofo.counts_that_bound({}) is None
    assert ofo.counts_that_bound(counted | random_rerank(1, 6, 40)) is None


SHAPES = r"expected 0 < a and 2 a <= b, finite, found a = .*, b = "
POWER = r"power of scores: expected a number from 0.1 to 10.0, found"


@pytest.mark.parametrize(
    ("start", "fault"),
    [
        *((start, SHAPES) for start in ((0, 4), (-1, 4), (1, 0), (3, 5), (1, np.inf), (np.nan, 4))),
        *((start, SHAPES) for start in ((1, np.nan), (np.inf, np.inf))),
        *(((1, 4, power), POWER) for power in (0.0, 0.09, 10.1, -1.0, np.nan, np.inf)),
        *(
            ((1, 4, 1, scale), r"scale of scores: .* from 1 to 1000000.0, found")
            for scale in (0.9, np.nan)
        ),
    ],
)
def test_start_values_out_of_their_range_are_refused(start: Any, fault: str) -> None:
    with pytest.raises(BadParameter, match=fault):
        ofo.check_start(ofo.Start(*start))


def test_every_link_has_a_power_to_start_with() -> Any:
    def powers(arrays):
        return {ofo.check_start(ofo.start_for(link, arrays, ROWS)).power for link in ofo.POWERS}

    reranked = random_rerank(0, 3, 4)
    calibrated = {**reranked, **group_of(CALIBRATION, random_calibration(0))}
    assert set(ofo.POWERS) == set(LINK_CODES)
    assert (powers({}), powers(reranked), powers(calibrated)) == (
        {0.55, 1.0},
        {ofo.RERANKED_POWER},
        {1.0},
    )
    assert ofo.check_start(ofo.Start(2, 4, 0.1)) == ofo.Start(2, 4, 0.1)
    assert ofo.counts_that_bound({**calibrated, "labels/counts": np.ones(3, np.int64)}) is not None


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
    scores[np.repeat(np.arange(len(scores)), np.diff(estimates.ptr)), estimates.labels] = (
        estimates.scores
    )
    return scores


def mean_score(scores: np.ndarray, truth: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """A method that looks at its rows: half the mean score of a label
    where it is true, if that is more.
    """
    found = [
        0.5 * scores[truth[:, j], j].mean() if truth[:, j].any() else 0.0 for j in range(N_LABELS)
    ]
    return np.maximum(bounds, np.array(found, np.float32))


def slow_choice(scores: np.ndarray, truth: np.ndarray, empty: float, seed: int) -> float:
    """Every kappa of the grid, both halves, every label and row."""
    dealt = np.random.default_rng(seed).permutation(len(scores)) % 2 == 0
    found = {}
    for c in C_GRID:
        total = 0.0
        for half in (dealt, ~dealt):
            bounds = np.maximum(FLOOR, np.float32(1 / c))
            thresholds, others = mean_score(scores[half], truth[half], bounds), ~half
            of_labels = [
                label_f(scores[others, j], truth[others, j], thresholds[j], empty)
                for j in range(N_LABELS)
            ]
            total += sum(of_labels) / N_LABELS
        found[1 / c] = round(total, 9)
    return max(sorted(found), key=found.__getitem__)


@pytest.mark.parametrize("n_rows", [2, 9, 60, 400])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_kappa_is_the_slow_ones(n_rows: int, seed: int) -> None:
    scores, truth = drawn(seed, n_rows)

    def find(estimates: Estimates, labels: LabelRows, bounds: np.ndarray) -> np.ndarray:
        return mean_score(dense_of(estimates), dense_labels(labels), bounds)

    for empty, value in (("one", 1.0), ("zero", 0.0)):
        found = choose_kappa(estimates_of(scores), to_labels(truth), FLOOR, find, empty, seed)
        assert found == slow_choice(scores * (scores >= 0.01), truth, value, seed)


def test_of_equals_the_lowest_is_chosen() -> None:
    nothing = estimates_of(np.zeros((8, N_LABELS), np.float32))
    carried = to_labels(np.ones((8, N_LABELS), bool))
    assert (
        choose_kappa(nothing, carried, FLOOR, lambda _, __, bounds: bounds, "one") == 1 / C_GRID[0]
    )
