"""Differences of two models: against the figures of whole files, and intervals that hold what they say."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from service.base.rows import LabelRows
from service.evaluation import EmptyConvention, PredictedRows, Truth, f_measures, ranking_metrics
from service.evaluation.bootstrap import DecisionPair, _macro_f, compare_rows, ones_at, row_figures
from service.evaluation.ranking import mark_true
from tests.oracles.problems import flat

K, N = 9, 40


def random_rows(rng: np.random.Generator, most: int, n: int = N) -> list[list[int]]:
    return [rng.permutation(K)[: rng.integers(0, most + 1)].tolist() for _ in range(n)]


def decided(rows: list[list[int]], truth: LabelRows) -> tuple[csr_array, csr_array]:
    """What is true and predicted, and what is predicted."""
    predicted = PredictedRows(*flat(rows))
    row = np.repeat(np.arange(len(rows)), np.diff(predicted.ptr))
    is_true, labels, shape = mark_true(predicted, truth), predicted.labels, (K, len(rows))
    return ones_at(row[is_true], labels[is_true], shape), ones_at(row, labels, shape)


def ignore(done: int) -> None:
    """Report nothing."""


def test_figures_of_rows_have_the_means_of_the_metrics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranked = PredictedRows(*flat(random_rows(rng, 7)))
    truth = LabelRows(*flat([sorted(row) for row in random_rows(rng, 6)]), K)
    unknown = rng.integers(0, 3, N).astype(np.int32)
    judged = Truth(truth, unknown)
    whole = ranking_metrics(ranked, judged, np.ones(K))
    figures = row_figures(ranked, judged)
    assert list(figures) == ["P@1", "P@3", "P@5", "nDCG@5"]
    for name, values in figures.items():
        assert values.mean() == pytest.approx(whole[name])


@pytest.mark.parametrize("empty", ["one", "zero"])
def test_macro_f_of_a_draw_is_that_of_its_rows_written_out(seed: int, empty: EmptyConvention) -> None:
    rng = np.random.default_rng(seed)
    true = [sorted(row) for row in random_rows(rng, 4)]
    sides = [random_rows(rng, 3), random_rows(rng, 5)]
    truth = LabelRows(*flat(true), K)
    pair = DecisionPair(
        *zip(*(decided(side, truth) for side in sides), strict=True),
        ones_at(np.repeat(np.arange(N), np.diff(truth.indptr)), truth.indices, (K, N)),
        empty,
    )
    drawn = rng.integers(0, N, N)
    found = _macro_f(pair, np.bincount(drawn, minlength=N).astype(np.float64))
    repeated = Truth(LabelRows(*flat([true[i] for i in drawn]), K), np.zeros(N, np.int32))
    for value, side in zip(found, sides, strict=True):
        slow = f_measures(PredictedRows(*flat([side[i] for i in drawn])), repeated, empty).macro_f
        assert value == pytest.approx(slow)


def test_a_model_does_not_differ_from_itself_and_a_seed_says_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = {"P@1": rng.random(50)}, {"P@1": rng.random(50)}
    same = compare_rows(a, a, None, 100, seed, ignore)["P@1"]
    assert (same.difference, same.low, same.high, same.real) == (0.0, 0.0, 0.0, False)
    one, two, other = (compare_rows(a, b, None, 100, each, ignore)["P@1"] for each in (seed, seed, seed + 1))
    assert one == two != other
    assert one.difference == pytest.approx(b["P@1"].mean() - a["P@1"].mean())


def test_intervals_hold_the_true_difference_as_often_as_they_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, apart, held, found_real = 300, 0.1, 0, 0
    for _ in range(100):
        easy = rng.random(n)  # what makes a row easy for both
        a = {"P@1": (easy < 0.5).astype(np.float64)}
        b = {"P@1": (easy < 0.5 + apart).astype(np.float64)}
        found = compare_rows(a, b, None, 200, seed, ignore)["P@1"]
        held += found.low <= apart <= found.high
        found_real += found.real
    assert 88 <= held <= 100
    assert found_real == 100


def test_rare_labels_do_not_put_the_difference_at_the_end_of_its_interval(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 400  # labels of a row or two, which a third of the draws lacks
    labels = LabelRows(np.arange(n + 1), rng.integers(0, 300, n).astype(np.int32), 300)
    true, hits = labels.indices, np.flatnonzero(rng.random(n) < 0.4)
    nothing, found_by_b = (ones_at(rows, true[rows], (300, n)) for rows in (hits[:0], hits))
    figures = {"P@1": np.zeros(n)}
    all_true = ones_at(np.arange(n), true, (300, n))
    of_both = (nothing, found_by_b)
    pair = DecisionPair(of_both, of_both, all_true, "one")
    found = compare_rows(figures, figures, pair, 200, seed, ignore)["macro_f"]
    middle = (found.low + found.high) / 2
    assert abs(middle - found.difference) < (found.high - found.low) / 4
    assert found.real
