"""Metrics against their definitions, and against scikit-learn where it has them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from sklearn.metrics import f1_score, ndcg_score

from model_store.extras import KNOTS_MAX, check_calibration
from service.base.rows import LabelRows
from service.evaluation import (
    PredictedRows,
    Truth,
    evaluation_report,
    f_measures,
    probabilities,
    propensities,
    ranking_metrics,
)
from service.evaluation.probabilities import (
    apply_calibration,
    calibration_error,
    fit_calibration,
    reliability,
)
from service.evaluation.ranking import constants_of
from tests.oracles import metrics as oracle
from tests.oracles.problems import flat

K = 9
label_sets = st.lists(st.integers(0, K - 1), unique=True, max_size=K)
cases = st.lists(st.tuples(label_sets, label_sets, st.integers(0, 3)), min_size=1, max_size=8)
counts = st.lists(st.integers(0, 500), min_size=K, max_size=K)


def truth(rows: list[list[int]]) -> LabelRows:
    return LabelRows(*flat([sorted(row) for row in rows]), K)


def truth_alone(rows: list[list[int]]) -> Truth:
    """The truth of rows without labels that the model does not know."""
    return Truth(truth(rows), np.zeros(len(rows), np.int32))


def split(case: list[tuple[list[int], list[int], int]]) -> tuple[list[list[int]], list[list[int]], list[int]]:
    return [p for p, _, _ in case], [t for _, t, _ in case], [u for _, _, u in case]


@settings(max_examples=300)
@given(cases, counts, st.integers(1, 10_000))
def test_ranking_is_its_definition(
    case: list[tuple[list[int], list[int], int]], label_counts: list[int], n_rows: int
) -> None:
    predicted, true, unknown = split(case)
    p = propensities(label_counts, n_rows)
    p_unknown = float(propensities(0, n_rows))
    judged = Truth(truth(true), np.array(unknown, np.int32))
    found = ranking_metrics(PredictedRows(*flat(predicted)), judged, p, p_unknown)
    slow = [oracle.propensity(count, n_rows) for count in label_counts]
    np.testing.assert_allclose(p, slow)
    expected = oracle.ranking(predicted, true, unknown, slow, oracle.propensity(0, n_rows))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-9), name
        assert 0 <= found[name] <= 100 + 1e-9


@settings(max_examples=300)
@given(cases, st.sampled_from(["one", "zero"]))
def test_f_measures_are_their_definition(case: list[tuple[list[int], list[int], int]], empty: str) -> None:
    predicted, true, unknown = split(case)
    judged = Truth(truth(true), np.array(unknown, np.int32), max(unknown))
    found = f_measures(PredictedRows(*flat(predicted)), judged, empty)  # type: ignore[arg-type]
    value = 1.0 if empty == "one" else 0.0
    expected = oracle.f_measures(predicted, true, unknown, K, value, n_unknown=max(unknown))
    np.testing.assert_allclose(found[:3], expected, rtol=1e-12)
    assert found.empty_label_convention == empty


@settings(max_examples=100)
@given(st.lists(st.tuples(label_sets, label_sets), min_size=1, max_size=8))
def test_f_measures_are_scikit_learns(case: list[tuple[list[int], list[int]]]) -> None:
    dense = np.zeros((2, len(case), K), np.int8)
    for row, (predicted, true) in enumerate(case):
        dense[0, row, predicted] = dense[1, row, true] = 1
    for empty, value in (("one", 1.0), ("zero", 0.0)):
        judged = truth_alone([t for _, t in case])
        found = f_measures(PredictedRows(*flat([p for p, _ in case])), judged, empty)  # type: ignore[arg-type]
        for name, average in (("macro_f", "macro"), ("micro_f", "micro"), ("instance_f", "samples")):
            expected = 100 * f1_score(dense[1], dense[0], average=average, zero_division=value)
            assert math.isclose(getattr(found, name), expected, rel_tol=1e-12), name


def test_ndcg_is_scikit_learns() -> None:
    random = np.random.default_rng(3)
    true = [sorted(random.choice(K, random.integers(1, 6), replace=False).tolist()) for _ in range(50)]
    scores = random.random((50, K))
    order = np.argsort(-scores)
    dense = np.zeros((50, K))
    for row, labels in enumerate(true):
        dense[row, labels] = 1
    found = ranking_metrics(PredictedRows(*flat(order.tolist())), truth_alone(true), np.ones(K))
    for k in (1, 3, 5):
        assert math.isclose(found[f"nDCG@{k}"], 100 * ndcg_score(dense, scores, k=k), rel_tol=1e-9)
        assert math.isclose(found[f"PSP@{k}"], 100 * found[f"P@{k}"] / best_precision(true, k), rel_tol=1e-9)


def best_precision(true: list[list[int]], k: int) -> float:
    return 100 * float(np.mean([min(k, len(labels)) / k for labels in true]))


def test_what_the_best_ranking_scores() -> None:
    true = [[0, 1, 2, 3, 4, 5], [7], []]
    p = propensities([1, 5, 9, 20, 50, 99, 3, 2, 1], 1000)
    best = [sorted(row, key=lambda label: p[label]) for row in true]
    found = ranking_metrics(PredictedRows(*flat(best)), truth_alone(true), p)
    for k in (1, 3, 5):
        assert math.isclose(found[f"PSP@{k}"], 100) and math.isclose(found[f"PSnDCG@{k}"], 100)
    # the row without labels counts as 0
    assert math.isclose(found["P@1"], 200 / 3) and math.isclose(found["nDCG@5"], 200 / 3)
    assert math.isclose(found["R@5"], 100 * (5 / 6 + 1) / 3)


def test_propensities_of_one_and_two_rows_are_one() -> None:
    assert propensities([0, 1], 1).tolist() == [1.0, 1.0]
    assert propensities([0, 1], 2).tolist() == [1.0, 1.0]
    rare, common = propensities([1, 100], 1000)
    assert 0 < rare < common < 1


def test_constants_of_a_version_are_those_it_was_trained_with() -> None:
    assert constants_of({}) == (0.55, 1.5)
    assert constants_of({"propensity_a": 0.6, "propensity_b": 2.6}) == (0.6, 2.6)
    assert constants_of({"propensity_a": "x", "propensity_b": 2.6}) == (0.55, 1.5)
    ranked = PredictedRows(*flat([[0], [1]]))
    judged, counts = Truth(truth([[0, 1], [0, 1]]), np.zeros(2, np.int32)), np.arange(1, K + 1)
    for constants in (constants_of({}), constants_of({"propensity_a": 1.5, "propensity_b": 0.5})):
        report = evaluation_report(ranked, ranked, judged, counts, 400, constants=constants)
        p = propensities(counts, 400, *constants)
        expected = 100 * (1 / p[0] + 1 / p[1]) / (2 / p[0])
        assert report["PSP@1"] == pytest.approx(expected)


def test_the_keys_of_a_report() -> None:
    predicted = PredictedRows(*flat([[0, 1], [2]]))
    report = evaluation_report(
        predicted, predicted, Truth(truth([[0], [3]]), np.array([0, 1], np.int32)), np.arange(K), 40
    )
    names = [f"{metric}@{k}" for metric in ("P", "nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)]
    other = ["R@5", "macro_f", "micro_f", "instance_f", "empty_label_convention"]
    assert list(report) == ["rows", *names, *other]
    assert report["rows"] == 2 and report["P@1"] == 50.0 and report["R@5"] == 50.0
    assert report["empty_label_convention"] == "zero"
    assert report["micro_f"] == pytest.approx(100 * 2 / 6)


@pytest.mark.parametrize(("counts", "n_rows"), [(None, 40), (np.arange(K), 0)])
def test_without_the_training_rows_propensity_scored_figures_are_none(
    counts: np.ndarray | None, n_rows: int
) -> None:
    predicted = PredictedRows(*flat([[0, 1], [2]]))
    judged = Truth(truth([[0], [3]]), np.zeros(2, np.int32))
    report = evaluation_report(predicted, predicted, judged, counts, n_rows)
    assert {name for name, value in report.items() if value is None} == {
        f"{metric}@{k}" for metric in ("PSP", "PSnDCG") for k in (1, 3, 5)
    }
    assert report["P@1"] == 50.0


PAIRS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=120)


def pooled(scores, are_true):
    """The blocks of the isotonic fit, (mean score, share of true ones) each, by exact arithmetic."""
    blocks = []
    for score, group in itertools.groupby(
        sorted(zip(scores, are_true, strict=True)), key=lambda pair: pair[0]
    ):
        truths = [bool(truth) for _, truth in group]
        blocks.append([Fraction(float(score)) * len(truths), sum(truths), len(truths)])
        while len(blocks) > 1 and Fraction(*blocks[-2][1:]) >= Fraction(*blocks[-1][1:]):
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return [(float(total / n), hits / n) for total, hits, n in blocks]


@settings(max_examples=150)
@given(pairs=PAIRS)
def test_knots_are_the_blocks_of_the_isotonic_fit(pairs):
    scores = np.array([place / 40 for place, _ in pairs], np.float32)
    are_true = np.array([truth for _, truth in pairs])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probabilities, "BLOCK_MIN", 1)
        found = fit_calibration(scores, are_true)
    check_calibration(found)
    blocks = [(x, y) for x, y in pooled(scores, are_true) if 0 < x < 1]
    slope = probabilities.SLOPE_MIN
    expected = [(x, min(max(y, slope * x), 1 - slope * (1 - x))) for x, y in blocks]
    assert np.allclose(np.stack(found).T[1:-1], np.array(expected).reshape(-1, 2), atol=1e-6)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 3000), power=st.sampled_from([0.1, 1.0, 8.0]))
def test_every_fit_is_a_calibration(seed, n, power):
    rng = np.random.default_rng(seed)
    scores = (rng.random(n) ** power).astype(np.float32)
    found = fit_calibration(scores, rng.random(n) < rng.choice([0.0, 0.3, 1.0]))
    check_calibration(found)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(apply_calibration(found, scores[order])) >= 0).all()


def test_many_blocks_are_joined_until_their_knots_fit(monkeypatch):
    monkeypatch.setattr(probabilities, "BLOCK_MIN", 1)
    scores = np.linspace(0, 1, 20_000, dtype=np.float32)
    rng = np.random.default_rng(0)
    # each score sixty times, true as often as it says: more blocks than the format has knots
    scores, are_true = np.repeat(scores, 60), rng.random(60 * len(scores)) < np.repeat(scores, 60)
    found = fit_calibration(scores, are_true)
    check_calibration(found)
    assert KNOTS_MAX // 4 < len(found.x) <= KNOTS_MAX
    assert np.abs(found.x - found.y).max() < 0.05


def test_blocks_have_enough_predictions():
    rng = np.random.default_rng(0)
    scores = rng.random(5000).astype(np.float32)
    found = fit_calibration(scores, rng.random(5000) < scores**2)
    within = np.histogram(scores, np.append(found.x[:-1], 1.0))[0]
    assert within.min() >= probabilities.BLOCK_MIN // 2  # knots are at the means of blocks
    new = rng.random(50_000).astype(np.float32)
    error = calibration_error(reliability(apply_calibration(found, new), rng.random(50_000) < new**2))
    assert error < 0.02


def test_scores_all_the_same():
    scores = np.full(100, 0.25, np.float32)
    found = fit_calibration(scores, np.arange(100) < 40)
    assert found.x.tolist() == [0.0, 0.25, 1.0]
    assert found.y[1] == np.float32(0.4)
    check_calibration(found)


@pytest.mark.parametrize("score", [0.0, 1.0])
@pytest.mark.parametrize("truth", [False, True])
def test_scores_at_an_end(score, truth):
    found = fit_calibration(np.full(100, score, np.float32), np.full(100, truth))
    check_calibration(found)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=60))
def test_blocks_are_those_of_scipy(places):
    n = np.array([count for count, _ in places], np.float64)
    hits = np.array([min(hit, count) for count, hit in places], np.float64)
    starts = probabilities.pooled(hits, n)
    means = np.add.reduceat(hits, starts) / np.add.reduceat(n, starts)
    sizes = np.diff(np.append(starts, len(n)))
    assert np.allclose(np.repeat(means, sizes), isotonic_regression(hits / n, weights=n).x)
    assert (np.diff(means) > 0).all()
