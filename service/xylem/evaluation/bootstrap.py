"""Test whether one model is better than another, or the rows only happened to suit it.

Both models are measured on the same rows.

An interval says how large the difference is. Source: Efron, Tibshirani 1993, "An introduction to
the bootstrap", chapter 13. The rows are drawn with replacement, `resamples` times; each draw
measures both models on the same rows (a paired bootstrap), so that rows which are easy or hard for
both cancel out. Deviation for macro-F: all draws are shifted so that their mean is the difference
on all rows. A draw lacks about a third of the rows, and the rare labels that only these rows have,
so its macro-F differs systematically from that of all rows. Without the shift the difference would
lie at the end of its interval.

A paired randomisation test says whether there is a difference. If neither model is better, the
answers of the two models could as well have been exchanged on each row. p is the share of all
exchanges whose difference is at least as large as the one on the rows, of either sign. Source:
Fisher 1935, "The design of experiments", section 21; for measures that are no means of rows, as
macro-F, Yeh 2000, "More accurate tests for the statistical significance of result differences"
(COLING). If there are more exchanges than draws, exchanges are drawn, and p = (b + 1) / (m + 1) for
m draws, of which b have so large a difference: Phipson, Smyth 2010, "Permutation p-values should
never be zero". If neither model is better, at most a share p of all samples of rows has so small a
p, however few rows differ. If few rows differ, the interval says less than p: the percentiles of
such draws take few values.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from xylem.base import BadParameter
from xylem.evaluation.ranking import (
    KS,
    EmptyConvention,
    PredictedRows,
    Truth,
    f_scores,
    mark_true,
    row_sums,
    rows_of,
)
from xylem_store import F64, I64, Bools

NDCG_K = 5
RESAMPLES = 1000
RESAMPLES_MIN = 100
RESAMPLES_MAX = 100_000
LEVEL = 0.95
MACRO_F = "macro_f"

# Differences, in percent, that are closer than this are equal.
#
# Sums in another order differ in their last bits.
TIE = 1e-9


class Difference(NamedTuple):
    """A figure of two models, in percent, with the interval of their difference.

    a, b        the figure of each model
    difference  b - a
    low, high   the interval that a share LEVEL of the differences of all draws lies in
    p           of the paired randomisation test, above 0 and at most 1
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float

    @property
    def real(self) -> bool:
        """Return whether so large a difference is rare without a cause: p is at most 1 - LEVEL."""
        return self.p <= 1.0 - LEVEL + TIE


class ModelAnswers(NamedTuple):
    """The answers of a model on n rows whose labels are known.

    ranked     the labels of each row, the best first
    truth      the true labels of the rows
    decided    the labels that the model's thresholds predict; None: it has none
    joint_ids  the ids of the model's labels among the labels of both models, int64[K]
    """

    ranked: PredictedRows
    truth: Truth
    decided: PredictedRows | None
    joint_ids: I64


class DecisionPair(NamedTuple):
    """The decisions of two models on the same K labels and n rows, in the form of `ones_at`.

    hits       for each model, where a label is true and predicted
    predicted  for each model, where a label is predicted
    true       where a label is true
    empty      what F is if nothing is true and nothing is predicted
    """

    hits: Sequence[csr_array]
    predicted: Sequence[csr_array]
    true: csr_array
    empty: EmptyConvention


def ones_at(rows: I64, labels: I64, shape: tuple[int, int]) -> csr_array:
    """Return a float64 matrix of labels and rows with a one at each of these places.

    No place may occur twice.
    """
    return csr_array((np.ones(len(rows)), (labels, rows)), shape)


def row_figures(ranked: PredictedRows, truth: Truth) -> dict[str, F64]:
    """Return P@1, P@3, P@5, F1@5 and nDCG@5 of each row in percent, float64[n] each.

    The figures of `ranking_metrics` are the means of these; F1@5 is that of `annif eval`.
    """
    sums, _ = row_sums(ranked, truth.labels, truth.unknown, max(*KS, NDCG_K))
    figures = {f"P@{k}": sums.hits[:, k - 1] * (100.0 / k) for k in KS}
    n_both = np.minimum(np.diff(ranked.ptr), 5) + np.diff(truth.labels.indptr) + truth.unknown
    figures["F1@5"] = 200.0 * sums.hits[:, 4] / np.maximum(n_both, 1)
    figures[f"nDCG@{NDCG_K}"] = 100.0 * (sums.gain / sums.ideal)[:, NDCG_K - 1]
    return figures


def check_resamples(resamples: int) -> None:
    """Raise BadParameter for a number of draws that `compare_answers` does not allow."""
    if not RESAMPLES_MIN <= resamples <= RESAMPLES_MAX:
        raise BadParameter(
            f"resamples: expected {RESAMPLES_MIN} to {RESAMPLES_MAX}, found {resamples}"
        )


def compare_answers(
    a: ModelAnswers,
    b: ModelAnswers,
    empty: EmptyConvention,
    resamples: int,
    seed: int,
    on_progress: Callable[[int], None],
) -> dict[str, Difference]:
    """Return the difference of two models on the same rows in each figure of `row_figures`.

    If both models decide, the difference in MACRO_F is included: the mean over the labels of both.

    empty        what F is if nothing is true and nothing is predicted
    resamples    number of draws
    on_progress  called with the number of draws that are done
    """
    of_a, of_b = (row_figures(answers.ranked, answers.truth) for answers in (a, b))
    return compare_rows(of_a, of_b, _decisions(a, b, empty), resamples, seed, on_progress)


def _decisions(a: ModelAnswers, b: ModelAnswers, empty: EmptyConvention) -> DecisionPair | None:
    """Return the decisions of both models; None unless both decide."""
    n_labels = int(max(a.joint_ids.max(initial=-1), b.joint_ids.max(initial=-1))) + 1
    hits = []
    predicted = []
    true = []
    for answers in (a, b):
        if answers.decided is None:
            return None
        labels = answers.truth.labels
        shape = (n_labels, len(labels.indptr) - 1)
        is_true = mark_true(answers.decided, labels)
        rows = rows_of(answers.decided.ptr)
        decided_ids = answers.joint_ids[answers.decided.labels]
        hits.append(ones_at(rows[is_true], decided_ids[is_true], shape))
        predicted.append(ones_at(rows, decided_ids, shape))
        true.append(ones_at(rows_of(labels.indptr), answers.joint_ids[labels.indices], shape))
    return DecisionPair(hits=hits, predicted=predicted, true=true[0].maximum(true[1]), empty=empty)


def compare_rows(
    a: Mapping[str, F64],
    b: Mapping[str, F64],
    decisions: DecisionPair | None,
    resamples: int,
    seed: int,
    on_progress: Callable[[int], None],
) -> dict[str, Difference]:
    """Return the difference of two models in each figure: the means of a and b, and MACRO_F.

    a, b         the figures of each model by name, float64[n] each, of the same n rows
    decisions    what MACRO_F is computed from; None: it is left out
    resamples    number of draws
    on_progress  called with the number of draws that are done

    Deterministic by the seed. Cost: resamples * (n + pairs + labels).
    """
    names = list(a)
    n_rows = len(a[names[0]])
    differences = np.stack([b[name] - a[name] for name in names], axis=1)
    random = np.random.default_rng(seed)
    resampled = np.empty((resamples, len(names) + (decisions is not None)))
    for i in range(resamples):
        on_progress(i)
        weights = np.bincount(random.integers(0, n_rows, n_rows), minlength=n_rows).astype(
            np.float64
        )
        resampled[i, : len(names)] = weights @ differences / n_rows
        if decisions is not None:
            resampled[i, -1] = np.diff(_macro_f(_counts(decisions, weights), decisions.empty))[0]
    on_progress(resamples)
    overall = [(float(a[name].mean()), float(b[name].mean())) for name in names]
    exchanges = [_exchange_means(column) for column in differences.T]
    if decisions is not None:
        names.append(MACRO_F)
        figure_a, figure_b = _macro_f(_counts(decisions, np.ones(n_rows)), decisions.empty).tolist()
        overall.append((figure_a, figure_b))
        # centred on the difference on all rows: the module's text says why
        resampled[:, -1] += figure_b - figure_a - resampled[:, -1].mean()
        exchanges.append(_exchange_decisions(decisions))
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    intervals = np.percentile(resampled, [tail, 100.0 - tail], axis=0).T
    return {
        name: Difference(
            a=figure_a,
            b=figure_b,
            difference=figure_b - figure_a,
            low=float(low),
            high=float(high),
            p=randomisation_test(figure_b - figure_a, exchange, resamples, random),
        )
        for name, (figure_a, figure_b), (low, high), exchange in zip(
            names, overall, intervals, exchanges, strict=True
        )
    }


# The effect on a difference of exchanging the answers of two models on some rows: the number of
# rows on which their answers differ, and a function from bool[n], the rows whose answers are
# exchanged, to the difference of a figure, in percent.
Exchange: TypeAlias = tuple[int, Callable[[Bools], float]]


def randomisation_test(
    observed: float, exchange: Exchange, draws: int, random: np.random.Generator
) -> float:
    """Return the two-sided p of a difference by the paired randomisation test.

    The module's text describes the test.

    observed  the difference on the rows
    draws     number of exchanges that are drawn; if there are no more exchanges than this, all of
              them are tried instead
    """
    n_rows, difference = exchange
    is_exact = n_rows < draws.bit_length()
    swaps = (
        ((number >> np.arange(n_rows)) & 1 == 1 for number in range(1 << n_rows))
        if is_exact
        else (random.random(n_rows) < 0.5 for _ in range(draws))
    )
    n_as_large = sum(abs(difference(swapped)) >= abs(observed) - TIE for swapped in swaps)
    return n_as_large / (1 << n_rows) if is_exact else (n_as_large + 1) / (draws + 1)


def _exchange_means(differences: F64) -> Exchange:
    """Return the effect of exchanges on the mean of the rows' differences, float64[n]."""
    differing = differences[np.abs(differences) > TIE]
    return len(
        differing
    ), lambda swapped: float(np.where(swapped, -differing, differing).sum()) / len(differences)


def _exchange_decisions(pair: DecisionPair) -> Exchange:
    """Return the effect of exchanges on the difference in macro-F."""
    rows = np.flatnonzero(abs(pair.predicted[0] - pair.predicted[1]).sum(axis=0))
    differences = [(parts[0] - parts[1])[:, rows] for parts in (pair.hits, pair.predicted)]
    counts = _counts(pair, np.ones(pair.true.shape[1]))

    def difference(swapped: Bools) -> float:
        moved = np.stack([part @ swapped for part in differences], axis=1)
        return float(np.diff(_macro_f([counts[0] - moved, counts[1] + moved], pair.empty))[0])

    return len(rows), difference


def _counts(pair: DecisionPair, weights: F64) -> list[F64]:
    """Return the counts that F of each label needs, for each of two models, float64[K, 2].

    The columns are the hits, and the number of times the label is true plus those it is predicted.

    weights  float64[n], whole numbers: how often each row counts
    """
    return [
        np.stack([hits @ weights, pair.true @ weights + predicted @ weights], axis=1)
        for hits, predicted in zip(pair.hits, pair.predicted, strict=True)
    ]


def _macro_f(counts: Sequence[F64], empty: EmptyConvention) -> F64:
    """Return macro-F of the counts of each of two models in percent, float64[2]."""
    return np.array(
        [100.0 * f_scores(of_model.astype(np.int64), empty).mean() for of_model in counts]
    )
