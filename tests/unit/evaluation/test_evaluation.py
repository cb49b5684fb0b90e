"""Metrics against their definitions, and against scikit-learn where it has them."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from sklearn.metrics import ndcg_score
from tests.oracles import metrics as oracle
from tests.oracles.problems import flat

from xylem.base.rows import LabelRows
from xylem.evaluation import probabilities
from xylem.evaluation.probabilities import calibration_error, fit_calibration, reliability
from xylem.evaluation.ranking import (
    PredictedRows,
    Truth,
    constants_of,
    f_measures,
    propensities,
    ranking_metrics,
)
from xylem.workflows.evaluate import evaluation_report
from xylem_store.extras import KNOTS_MAX, check_calibration

K = 9
label_sets = st.lists(st.integers(0, K - 1), unique=True, max_size=K)
cases = st.lists(st.tuples(label_sets, label_sets, st.integers(0, 3)), min_size=1, max_size=8)
counts = st.lists(st.integers(0, 500), min_size=K, max_size=K)


def ranked(rows: list[list[int]]) -> PredictedRows:
    return PredictedRows(*flat(rows))


def judged(rows: list[list[int]], unknown: list[int] | None = None, n_unknown: int = 0) -> Truth:
    """The truth of rows; `unknown`: how many more labels each has that the model does not know."""
    labels = LabelRows(*flat([sorted(row) for row in rows]), K)
    return Truth(labels, np.array(unknown or [0] * len(rows), np.int32), n_unknown)


@settings(max_examples=300)
@given(cases, counts, st.integers(1, 10_000))
@example([([0], [0], 0)], [1] * K, 1)  # of one and two rows each propensity is 1
@example([([0], [0], 0)], [1] * K, 2)
def test_ranking_is_its_definition(
    case: list[tuple[list[int], list[int], int]], label_counts: list[int], n_rows: int
) -> None:
    predicted, true, unknown = map(list, zip(*case, strict=True))
    p, p_unknown = propensities(label_counts, n_rows), float(propensities(0, n_rows))
    found = ranking_metrics(ranked(predicted), judged(true, unknown), p, p_unknown)
    slow = [oracle.propensity(count, n_rows) for count in label_counts]
    np.testing.assert_allclose(p, slow)
    expected = oracle.ranking(predicted, true, unknown, slow, oracle.propensity(0, n_rows))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert all(0 <= value <= 100 + 1e-9 for value in found.values())


@settings(max_examples=300)
@given(cases, st.sampled_from([("one", 1.0), ("zero", 0.0)]))
def test_f_measures_are_their_definition(
    case: list[tuple[list[int], list[int], int]], convention: Any
) -> None:
    empty, value = convention
    predicted, true, unknown = map(list, zip(*case, strict=True))
    found = f_measures(ranked(predicted), judged(true, unknown, max(unknown)), empty)
    expected = oracle.f_measures(predicted, true, unknown, K, value, n_unknown=max(unknown))
    np.testing.assert_allclose(found[:3], expected, rtol=1e-12)
    assert found.empty_label_convention == empty


def test_ndcg_is_scikit_learns() -> None:
    random = np.random.default_rng(3)
    true = [
        sorted(random.choice(K, random.integers(1, 6), replace=False).tolist()) for _ in range(50)
    ]
    scores = random.random((50, K))
    dense = np.zeros((50, K))
    for row, labels in enumerate(true):
        dense[row, labels] = 1
    found = ranking_metrics(ranked(np.argsort(-scores).tolist()), judged(true), np.ones(K))
    for k in (1, 3, 5):
        assert found[f"nDCG@{k}"] == pytest.approx(100 * ndcg_score(dense, scores, k=k), rel=1e-9)
        best_precision = 100 * np.mean([min(k, len(labels)) / k for labels in true])
        assert found[f"PSP@{k}"] == pytest.approx(100 * found[f"P@{k}"] / best_precision, rel=1e-9)


def test_constants_of_a_version_are_those_it_was_trained_with() -> None:
    assert constants_of({}) == (0.55, 1.5)
    assert constants_of({"propensity_a": 0.6, "propensity_b": 2.6}) == (0.6, 2.6)
    assert constants_of({"propensity_a": "x", "propensity_b": 2.6}) == (0.55, 1.5)
    top, counts = ranked([[0], [1]]), np.arange(1, K + 1)
    for constants in ((0.55, 1.5), (1.5, 0.5)):
        report = evaluation_report(
            top, top, judged([[0, 1], [0, 1]]), counts, 400, constants=constants
        )
        p = propensities(counts, 400, *constants)
        assert report["PSP@1"] == pytest.approx(100 * (1 / p[0] + 1 / p[1]) / (2 / p[0]))


def test_the_keys_of_a_report() -> None:
    predicted = ranked([[0, 1], [2]])
    report = evaluation_report(predicted, predicted, judged([[0], [3]], [0, 1]), np.arange(K), 40)
    names = [f"{metric}@{k}" for metric in ("P", "nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)]
    other = ["R@5", "macro_f", "micro_f", "instance_f", "empty_label_convention"]
    assert list(report) == ["rows", *names, *other]
    assert report["rows"] == 2 and report["P@1"] == 50.0 and report["R@5"] == 50.0
    assert report["empty_label_convention"] == "zero"
    assert report["micro_f"] == pytest.approx(100 * 2 / 6)


@pytest.mark.parametrize(("counts", "n_rows"), [(None, 40), (np.arange(K), 0)])
def test_propensity_scored_figures_need_the_training_rows(
    counts: np.ndarray | None, n_rows: int
) -> None:
    predicted = ranked([[0, 1], [2]])
    report = evaluation_report(predicted, predicted, judged([[0], [3]]), counts, n_rows)
    nothing = [name for name, value in report.items() if value is None]
    assert nothing == [f"{metric}@{k}" for metric in ("PSP", "PSnDCG") for k in (1, 3, 5)]
    assert report["P@1"] == 50.0


PAIRS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=120)


def pooled(pairs: Any) -> Any:
    """The blocks of the isotonic fit, (mean score, share of true ones) each, by exact
    arithmetic.
    """
    blocks = []
    for score, group in itertools.groupby(sorted(pairs), key=lambda pair: pair[0]):
        truths = [truth for _, truth in group]
        blocks.append([Fraction(score) * len(truths), sum(truths), len(truths)])
        while len(blocks) > 1 and Fraction(*blocks[-2][1:]) >= Fraction(*blocks[-1][1:]):
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return [(float(total / n), hits / n) for total, hits, n in blocks]


@settings(max_examples=150)
@given(pairs=PAIRS)
def test_knots_are_the_blocks_of_the_isotonic_fit(pairs: Any) -> None:
    scores = np.array([place / 40 for place, _ in pairs], np.float32)
    are_true = np.array([truth for _, truth in pairs])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probabilities, "BLOCK_MIN", 1)
        found = fit_calibration(scores, are_true)
    check_calibration(found)
    slope = probabilities.SLOPE_MIN
    expected = [
        (x, min(max(y, slope * x), 1 - slope * (1 - x)))
        for x, y in pooled(zip(scores.tolist(), are_true.tolist(), strict=True))
        if 0 < x < 1
    ]
    assert np.allclose(np.stack(found).T[1:-1], np.array(expected).reshape(-1, 2), atol=1e-6)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 3000), power=st.sampled_from([0.1, 1.0, 8.0]))
def test_every_fit_is_a_calibration(seed: int, n: int, power: Any) -> None:
    rng = np.random.default_rng(seed)
    scores = (rng.random(n) ** power).astype(np.float32)
    found = fit_calibration(scores, rng.random(n) < rng.choice([0.0, 0.3, 1.0]))
    check_calibration(found)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(probabilities.apply_calibration(found, scores[order])) >= 0).all()


def test_many_blocks_are_joined_until_their_knots_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probabilities, "BLOCK_MIN", 1)
    scores = np.linspace(0, 1, 20_000, dtype=np.float32)
    rng = np.random.default_rng(0)
    # each score sixty times, true as often as it says: more blocks than the format has knots
    scores, are_true = np.repeat(scores, 60), rng.random(60 * len(scores)) < np.repeat(scores, 60)
    found = fit_calibration(scores, are_true)
    check_calibration(found)
    assert KNOTS_MAX // 4 < len(found.x) <= KNOTS_MAX
    assert np.abs(found.x - found.y).max() < 0.05


def test_blocks_have_enough_predictions() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(5000).astype(np.float32)
    found = fit_calibration(scores, rng.random(5000) < scores**2)
    within = np.histogram(scores, np.append(found.x[:-1], 1.0))[0]
    assert within.min() >= probabilities.BLOCK_MIN // 2  # knots are at the means of blocks
    new = rng.random(50_000).astype(np.float32)
    error = calibration_error(
        reliability(probabilities.apply_calibration(found, new), rng.random(50_000) < new**2)
    )
    assert error < 0.02


@pytest.mark.parametrize(
    ("score", "n_true"), [(0.25, 40), (0.0, 0), (0.0, 100), (1.0, 0), (1.0, 100)]
)
def test_scores_all_the_same(score: Any, n_true: Any) -> None:
    found = fit_calibration(np.full(100, score, np.float32), np.arange(100) < n_true)
    check_calibration(found)
    if 0 < score < 1:
        assert (found.x.tolist(), found.y[1]) == ([0.0, score, 1.0], np.float32(n_true / 100))
