"""Figures of rows and of labels, and what follows from them: bands,
intervals, reliability and sweeps.
"""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from scipy.sparse import csr_array
from tests.oracles.problems import flat

from xylem.base.rows import LabelRows
from xylem.evaluation.bootstrap import (
    DecisionPair,
    _counts,
    _macro_f,
    compare_rows,
    ones_at,
    row_figures,
)
from xylem.evaluation.probabilities import N_BINS, ThresholdSweep, calibration_error, reliability
from xylem.evaluation.ranking import (
    EmptyConvention,
    PredictedRows,
    Truth,
    count_labels,
    f_measures,
    mark_true,
    ranking_metrics,
    ranks_of,
)
from xylem.workflows.evaluate import evaluation_report
from xylem.workflows.stored_figures import frequency_bands

K, N = 12, 60
NAMES = {
    "0": (0, 0),
    "1-9": (1, 9),
    "10-99": (10, 99),
    "100-999": (100, 999),
    "1000+": (1000, 10**9),
}


def random_rows(rng: np.random.Generator, most: int) -> list[list[int]]:
    """Up to so many labels of each row, in some order."""
    return [rng.permutation(K)[: rng.integers(0, most + 1)].tolist() for _ in range(N)]


@pytest.fixture
def decided(seed: int) -> Any:
    """Rankings of 0 to 7 labels and 0 to 6 true ones, a row each:
    as lists, and as they are measured.
    """
    rng = np.random.default_rng(seed)
    ranked, true = random_rows(rng, 7), [sorted(row) for row in random_rows(rng, 6)]
    return ranked, true, PredictedRows(*flat(ranked)), LabelRows(*flat(true), K)


def test_counts_of_labels_are_those_of_a_slow_count(decided: Any) -> None:
    ranked, true, predicted, truth = decided
    rows = list(zip(ranked, true, strict=True))
    assert mark_true(predicted, truth).tolist() == [
        label in known for top, known in rows for label in top
    ]
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
        assert 100 * count_labels(predicted, truth).f(empty).mean() == pytest.approx(
            report["macro_f"]
        )


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


def test_extreme_scores_have_bins_and_no_prediction_no_error() -> None:
    ends = reliability(np.array([0, 1], np.float32), np.array([False, True]))
    assert [(each.low, each.high, each.n) for each in ends] == [
        (0.0, 1 / N_BINS, 1),
        (14 / N_BINS, 1.0, 1),
    ]
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
    assert list(figures) == ["P@1", "P@3", "P@5", "F1@5", "nDCG@5"]
    n_predicted = np.minimum(np.diff(predicted.ptr), 5)
    n_true = np.diff(judged.labels.indptr) + judged.unknown
    assert figures.pop("F1@5") == pytest.approx(
        2 * 5 * figures["P@5"] / np.maximum(n_predicted + n_true, 1)
    )
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
    found = _macro_f(_counts(pair, np.bincount(drawn, minlength=N).astype(np.float64)), empty)
    repeated = Truth(LabelRows(*flat([true[i] for i in drawn]), K), np.zeros(N, np.int32))
    for value, side in zip(found, sides, strict=True):
        slow = f_measures(PredictedRows(*flat([side[i] for i in drawn])), repeated, empty).macro_f
        assert value == pytest.approx(slow)


def test_a_model_does_not_differ_from_itself_and_a_seed_says_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = {"P@1": rng.random(50)}, {"P@1": rng.random(50)}
    same = compare_rows(a, a, None, 100, seed, ignore)["P@1"]
    assert (same.difference, same.low, same.high, same.real) == (0.0, 0.0, 0.0, False)
    one, two, other = (
        compare_rows(a, b, None, 100, each, ignore)["P@1"] for each in (seed, seed, seed + 1)
    )
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


def test_rare_labels_do_not_move_the_difference_to_an_end(seed: int) -> None:
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


def figures_that_differ(n_rows: int, n_better: int, n_worse: int = 0) -> tuple[Any, Any]:
    """P@1 of the rows by two models, of which the second is
    better on some rows and worse on others.
    """
    a, b = np.full(n_rows, 0.0), np.full(n_rows, 0.0)
    b[:n_better] = 100.0
    a[n_better : n_better + n_worse] = 100.0
    return {"P@1": a}, {"P@1": b}


@pytest.mark.parametrize("n_rows", [1, 2, 60, 3019])
def test_one_row_that_differs_is_never_real_whatever_the_seed(n_rows: int) -> None:
    a, b = figures_that_differ(n_rows, 1)
    for seed in range(20):
        found = compare_rows(a, b, None, 1000 if seed < 5 else 100, seed, ignore)["P@1"]
        assert (found.p, found.real) == (1.0, False)
        assert found.low <= 0.0 <= found.high or n_rows == 1


@pytest.mark.parametrize("draws", [100, 1000])
def test_of_few_rows_that_differ_p_is_that_of_the_sign_test(draws: int) -> None:
    for n_better, n_worse in ((0, 0), (1, 1), (2, 0), (5, 0), (6, 0), (5, 1), (3, 3)):
        n = n_better + n_worse
        apart = abs(n_better - n_worse)
        expected = sum(math.comb(n, k) for k in range(n + 1) if abs(2 * k - n) >= apart) / 2**n
        a, b = figures_that_differ(200, n_better, n_worse)
        for sides in ((a, b), (b, a)):
            found = compare_rows(*sides, None, draws, 0, ignore)["P@1"]
            assert found.p == pytest.approx(expected) and found.real == (expected <= 0.05)


def test_p_of_drawn_exchanges_is_near_that_of_all_of_them(seed: int) -> None:
    n_better, n_worse = 18, 6
    n = n_better + n_worse
    expected = (
        sum(math.comb(n, k) for k in range(n + 1) if abs(2 * k - n) >= n_better - n_worse) / 2**n
    )
    found = compare_rows(*figures_that_differ(300, n_better, n_worse), None, 20_000, seed, ignore)[
        "P@1"
    ]
    assert abs(found.p - expected) < 5 * math.sqrt(expected / 20_000) + 1 / 20_000


def drawn_pair(
    rng: np.random.Generator, n_rows: int, n_labels: int, better: float
) -> tuple[Any, Any, Any]:
    """Figures of rows and decisions of two models, alike but for the
    share of rows that b alone has right.
    """
    true = rng.integers(0, n_labels, n_rows)
    is_right = rng.random((2, n_rows)) < 0.7
    is_right[1] |= rng.random(n_rows) < better
    guesses = np.where(is_right, true, rng.integers(0, n_labels, (2, n_rows)))
    rows, shape = np.arange(n_rows), (n_labels, n_rows)
    hits = [ones_at(rows[guess == true], true[guess == true], shape) for guess in guesses]
    predicted = [ones_at(rows, guess, shape) for guess in guesses]
    a, b = ({"P@1": 100.0 * (guess == true)} for guess in guesses)
    return a, b, DecisionPair(hits, predicted, ones_at(rows, true, shape), "zero")


@pytest.mark.parametrize(("n_rows", "n_labels"), [(12, 4), (150, 30)])
def test_equal_versions_are_rarely_called_different(n_rows: int, n_labels: int, seed: int) -> None:
    n_samples, level = 120, 0.05
    rng = np.random.default_rng(seed)
    n_real = dict.fromkeys(("P@1", "macro_f"), 0)
    for number in range(n_samples):
        found = compare_rows(*drawn_pair(rng, n_rows, n_labels, 0.0), 100, number, ignore)
        for name, each in found.items():
            n_real[name] += each.real
    # so many or fewer in all but one of 100,000 runs, if the test keeps its level
    most = int(scipy.stats.binom.ppf(1 - 1e-5, n_samples, level))
    assert max(n_real.values()) <= most, (n_real, most)
    clear = compare_rows(*drawn_pair(rng, 400, n_labels, 0.6), 200, seed, ignore)
    assert all(each.real and each.difference > 0 for each in clear.values()), clear


@pytest.mark.parametrize("empty", ["one", "zero"])
def test_p_of_macro_f_is_that_of_all_exchanges_written_out(
    empty: EmptyConvention, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n_rows, n_labels, n_differ = 40, 6, 5
    true = [
        sorted(rng.choice(n_labels, rng.integers(0, 4), replace=False).tolist())
        for _ in range(n_rows)
    ]
    of_a = [
        sorted(rng.choice(n_labels, rng.integers(0, 4), replace=False).tolist())
        for _ in range(n_rows)
    ]
    of_b = [[label for label in range(n_labels) if label not in row] for row in of_a[:n_differ]]
    of_b += of_a[n_differ:]
    truth = LabelRows(*flat(true), n_labels)

    def apart(exchanged: int) -> float:
        sides: list[list[list[int]]] = [[], []]
        for number, pair in enumerate(zip(of_a, of_b, strict=True)):
            turned = pair[::-1] if exchanged >> number & 1 else pair
            for side, row in zip(sides, turned, strict=True):
                side.append(row)
        judged = Truth(truth, np.zeros(n_rows, np.int32))
        values = [f_measures(PredictedRows(*flat(side)), judged, empty).macro_f for side in sides]
        return values[1] - values[0]

    every = [apart(exchanged) for exchanged in range(2**n_differ)]
    expected = sum(abs(each) >= abs(every[0]) - 1e-9 for each in every) / len(every)
    hits, predicted = [], []
    for side in (of_a, of_b):
        ptr, ids = flat(side)
        rows = np.repeat(np.arange(n_rows), np.diff(ptr))
        is_true = mark_true(PredictedRows(ptr, ids), truth)
        hits.append(ones_at(rows[is_true], ids[is_true], (n_labels, n_rows)))
        predicted.append(ones_at(rows, ids, (n_labels, n_rows)))
    all_true = ones_at(
        np.repeat(np.arange(n_rows), np.diff(truth.indptr)), truth.indices, (n_labels, n_rows)
    )
    figures = {"P@1": np.zeros(n_rows)}
    pair = DecisionPair(hits, predicted, all_true, empty)
    found = compare_rows(figures, figures, pair, 100, seed, ignore)["macro_f"]
    assert found.difference == pytest.approx(every[0]) and found.p == pytest.approx(expected)
