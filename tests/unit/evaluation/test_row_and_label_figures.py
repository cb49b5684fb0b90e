"""Figures of rows and of labels, and what follows from them: bands, intervals, reliability and sweeps."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from service.base.rows import LabelRows
from service.evaluation import (
    EmptyConvention,
    PredictedRows,
    Truth,
    evaluation_report,
    f_measures,
    ranking_metrics,
)
from service.evaluation.bootstrap import DecisionPair, _macro_f, compare_rows, ones_at, row_figures
from service.evaluation.kept_figures import frequency_bands
from service.evaluation.probabilities import N_BINS, ThresholdSweep, calibration_error, reliability
from service.evaluation.ranking import count_labels, mark_true, ranks_of
from tests.oracles.problems import flat

K, N = 12, 60
NAMES = {"0": (0, 0), "1-9": (1, 9), "10-99": (10, 99), "100-999": (100, 999), "1000+": (1000, 10**9)}


def random_rows(rng: np.random.Generator, most: int) -> list[list[int]]:
    """Up to so many labels of each row, in some order."""
    return [rng.permutation(K)[: rng.integers(0, most + 1)].tolist() for _ in range(N)]


@pytest.fixture
def decided(seed: int) -> Any:
    """Rankings of 0 to 7 labels and 0 to 6 true ones, a row each: as lists, and as they are measured."""
    rng = np.random.default_rng(seed)
    ranked, true = random_rows(rng, 7), [sorted(row) for row in random_rows(rng, 6)]
    return ranked, true, PredictedRows(*flat(ranked)), LabelRows(*flat(true), K)


def test_counts_of_labels_are_those_of_a_slow_count(decided: Any) -> None:
    ranked, true, predicted, truth = decided
    rows = list(zip(ranked, true, strict=True))
    assert mark_true(predicted, truth).tolist() == [label in known for top, known in rows for label in top]
    assert ranks_of(predicted.ptr).tolist() == [rank for top in ranked for rank in range(len(top))]
    counts = count_labels(predicted, truth)
    for label in range(K):
        assert counts.support[label] == sum(label in known for _, known in rows)
        assert counts.predicted[label] == sum(label in top for top, _ in rows)
        assert counts.hits[label] == sum(label in top and label in known for top, known in rows)


def test_f_of_labels_has_the_mean_that_the_report_tells(decided: Any) -> None:
    _, _, predicted, truth = decided
    judged = Truth(truth, np.zeros(N, np.int32))
    for empty in ("one", "zero"):
        report = evaluation_report(predicted, predicted, judged, None, 0, empty=empty)
        assert 100 * count_labels(predicted, truth).f(empty).mean() == pytest.approx(report["macro_f"])


def test_bands_are_those_of_a_slow_count(decided: Any) -> None:
    ranked, true, predicted, truth = decided
    rows = list(zip(ranked, true, strict=True))
    training = np.array([0, 0, 1, 9, 9, 10, 99, 99, 100, 1000, 1001, 5000])
    counts = count_labels(predicted, truth)
    bands = frequency_bands(predicted, counts, truth, training, "one")
    assert [band["band"] for band in bands] == list(NAMES)
    for band in bands:
        low, high = NAMES[str(band["band"])]
        members = {label for label in range(K) if low <= training[label] <= high}
        assert band["labels"] == len(members)
        assert band["support"] == sum(len(members & set(known)) for known in true)
        for k in (1, 3, 5):
            hits = [label in known for top, known in rows for label in top[:k] if label in members]
            assert band[f"P@{k}"] == pytest.approx(100 * np.mean(hits))
        found = sum(len(members & set(top[:5]) & set(known)) for top, known in rows)
        assert band["R@5"] == pytest.approx(100 * found / int(band["support"] or 1))
        assert band["macro_f"] == pytest.approx(100 * counts.f("one")[sorted(members)].mean())


def test_a_band_that_is_never_predicted_nor_true_has_no_shares() -> None:
    nothing = PredictedRows(*flat([[0], [0]]))
    truth = LabelRows(*flat([[0], []]), 2)
    counts = count_labels(nothing, truth)
    known, never = frequency_bands(nothing, counts, truth, np.array([5, 20]), "zero")
    assert (known["P@1"], known["R@5"]) == (50.0, 100.0)
    assert (never["P@1"], never["R@5"], never["macro_f"]) == (None, None, 0.0)


def test_without_true_labels_nothing_is_true() -> None:
    predicted = PredictedRows(*flat([[1, 0], []]))
    assert not mark_true(predicted, LabelRows(*flat([[], []]), 2)).any()
    with pytest.raises(ValueError, match="expected predictions for 1 rows, found 2"):
        mark_true(predicted, LabelRows(*flat([[]]), 2))


def test_scores_that_are_probabilities_have_no_calibration_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random(200_000).astype(np.float32)
    fair = reliability(scores, rng.random(len(scores)) < scores)
    assert len(fair) == N_BINS and sum(each.n for each in fair) == len(scores)
    error = calibration_error(fair)
    assert error is not None and error < 0.01
    squared = calibration_error(reliability(scores**2, rng.random(len(scores)) < scores))
    assert squared == pytest.approx(1 / 6, abs=0.01)  # the mean of s - s^2


def test_the_ends_of_scores_have_bins_and_nothing_predicted_has_no_error() -> None:
    ends = reliability(np.array([0, 1], np.float32), np.array([False, True]))
    assert [(each.low, each.high, each.n) for each in ends] == [(0.0, 1 / N_BINS, 1), (14 / N_BINS, 1.0, 1)]
    assert calibration_error(ends) == 0
    assert calibration_error(reliability(np.empty(0, np.float32), np.empty(0, np.bool_))) is None


def test_a_sweep_counts_what_reaches_each_threshold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.random(300).astype(np.float32), np.float32([0.0, 0.5, 0.07, 1.0])])
    are_true = rng.random(len(scores)) < 0.4
    sweep = ThresholdSweep()
    for part in np.array_split(np.arange(len(scores)), 3):
        sweep.add(scores[part], are_true[part])
    for point in sweep.points(n_true=500):
        reaches = scores >= np.float32(point.threshold)
        assert point.recall == pytest.approx(100 * (reaches & are_true).sum() / 500)
        assert point.precision == pytest.approx(100 * are_true[reaches].mean())
    assert [point.precision for point in ThresholdSweep().points(0)] == [None] * 100


def decisions(rows: list[list[int]], truth: LabelRows) -> tuple[csr_array, csr_array]:
    """What is true and predicted, and what is predicted."""
    predicted = PredictedRows(*flat(rows))
    row = np.repeat(np.arange(len(rows)), np.diff(predicted.ptr))
    is_true, labels, shape = mark_true(predicted, truth), predicted.labels, (K, len(rows))
    return ones_at(row[is_true], labels[is_true], shape), ones_at(row, labels, shape)


def ignore(done: int) -> None:
    """Report nothing."""


def test_figures_of_rows_have_the_means_of_the_metrics(decided: Any, seed: int) -> None:
    _, _, predicted, truth = decided
    judged = Truth(truth, np.random.default_rng(seed).integers(0, 3, N).astype(np.int32))
    whole = ranking_metrics(predicted, judged, np.ones(K))
    figures = row_figures(predicted, judged)
    assert list(figures) == ["P@1", "P@3", "P@5", "nDCG@5"]
    for name, values in figures.items():
        assert values.mean() == pytest.approx(whole[name])


@pytest.mark.parametrize("empty", ["one", "zero"])
def test_macro_f_of_a_draw_is_that_of_its_rows_written_out(
    decided: Any, seed: int, empty: EmptyConvention
) -> None:
    rng = np.random.default_rng(seed + 1)
    ranked, true, _, truth = decided
    sides = [random_rows(rng, 3), ranked]
    pair = DecisionPair(
        *zip(*(decisions(side, truth) for side in sides), strict=True),
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
