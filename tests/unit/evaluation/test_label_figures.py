"""Counts of labels, bands, reliability and sweeps of thresholds: against slow counts of random decisions."""

import numpy as np
import pytest

from service.base.rows import LabelRows
from service.evaluation import PredictedRows, Truth, evaluation_report
from service.evaluation.kept_figures import frequency_bands
from service.evaluation.probabilities import N_BINS, ThresholdSweep, calibration_error, reliability
from service.evaluation.ranking import count_labels, mark_true, ranks_of
from tests.oracles.problems import flat

K, N = 12, 60
NAMES = {"0": (0, 0), "1-9": (1, 9), "10-99": (10, 99), "100-999": (100, 999), "1000+": (1000, 10**9)}


Decided = tuple[list[list[int]], list[list[int]], PredictedRows, LabelRows]


@pytest.fixture
def decided(seed: int) -> Decided:
    """Rankings of 0 to 7 labels and 0 to 4 true ones, a row each: as lists, and as they are measured."""
    rng = np.random.default_rng(seed)
    ranked = [rng.permutation(K)[: rng.integers(0, 8)].tolist() for _ in range(N)]
    true = [sorted(rng.permutation(K)[: rng.integers(0, 5)].tolist()) for _ in range(N)]
    return ranked, true, PredictedRows(*flat(ranked)), LabelRows(*flat(true), K)


def test_counts_of_labels_are_those_of_a_slow_count(decided: Decided) -> None:
    ranked, true, predicted, truth = decided
    flat = [label in known for top, known in zip(ranked, true, strict=True) for label in top]
    assert mark_true(predicted, truth).tolist() == flat
    assert ranks_of(predicted.ptr).tolist() == [rank for top in ranked for rank in range(len(top))]
    counts = count_labels(predicted, truth)
    for label in range(K):
        rows = [(label in top, label in known) for top, known in zip(ranked, true, strict=True)]
        assert counts.support[label] == sum(known for _, known in rows)
        assert counts.predicted[label] == sum(top for top, _ in rows)
        assert counts.hits[label] == sum(top and known for top, known in rows)


def test_f_of_labels_has_the_mean_that_the_report_tells(decided: Decided) -> None:
    _, _, predicted, truth = decided
    for empty in ("one", "zero"):
        report = evaluation_report(
            predicted, predicted, Truth(truth, np.zeros(N, np.int32)), None, 0, empty=empty
        )
        f = count_labels(predicted, truth).f(empty)
        assert 100 * f.mean() == pytest.approx(report["macro_f"])


def test_bands_are_those_of_a_slow_count(decided: Decided) -> None:
    ranked, true, predicted, truth = decided
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
            hits = [
                label in known
                for top, known in zip(ranked, true, strict=True)
                for label in top[:k]
                if label in members
            ]
            assert band[f"P@{k}"] == pytest.approx(100 * np.mean(hits))
        found = sum(len(members & set(top[:5]) & set(known)) for top, known in zip(ranked, true, strict=True))
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
