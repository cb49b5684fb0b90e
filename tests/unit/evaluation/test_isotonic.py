"""The fit of a calibration: equal to a slow oracle of pool adjacent violators, and always a good map."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from model_store.extras import KNOTS_MAX, check_calibration
from service.evaluation import probabilities
from service.evaluation.probabilities import (
    apply_calibration,
    calibration_error,
    fit_calibration,
    reliability,
)

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


@settings(deadline=None, max_examples=150)
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


@settings(deadline=None, max_examples=60)
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
