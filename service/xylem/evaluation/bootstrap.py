"""Whether one model is better than another on the same rows, or the rows happened to suit it.

How large a difference is: an interval. Source: Efron, Tibshirani 1993, "An introduction to the
bootstrap", chapter 13. The rows are drawn anew, with replacement, as often as asked; each draw
measures both models on the same rows (a paired bootstrap): what both find easy or hard cancels out.
Deviation: percentiles of macro-F are those of the draws about their own mean, laid about the
difference on all rows. Macro-F of a draw lacks the rare labels of the third of the rows that are
not in it: the difference would lie at the end of its interval.

Whether there is one: a paired randomisation test. If neither model is better, each row could as
well have had the answers of the two exchanged. p is the share of all exchanges whose difference is
at least as large as the one on the rows, of either sign. Source: Fisher 1935, "The design of
experiments", section 21; for measures that are no means of rows, as macro-F, Yeh 2000, "More
accurate tests for the statistical significance of result differences" (COLING). Where there are
more exchanges than draws, these are drawn, and p = (b + 1) / (m + 1) of m draws, b of them as
large: Phipson, Smyth 2010, "Permutation p-values should never be zero". At most a share p of all
samples without a difference has so small a p, however few rows differ. The interval says less
there: percentiles of draws of a few rows take few values.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xylem.evaluation.ranking import KS, EmptyConvention, PredictedRows, Truth, f_scores, row_sums
from xylem_store import F64, I64, Bools

NDCG_K = 5
RESAMPLES = 1000
RESAMPLES_MIN = 100
RESAMPLES_MAX = 100_000
LEVEL = 0.95
MACRO_F = "macro_f"

TIE = 1e-9
"""Differences, in percent, that are closer are equal: sums in
another order differ in their last bits.
"""


class Difference(NamedTuple):
    """A figure of two models, in percent, and the interval that LEVEL of all draws of rows lie in.

    difference  b - a
    low, high   of the difference
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
        """Return whether a difference so large is rare where there is none: p is at
        most 1 - LEVEL.
        """
        return self.p <= 1.0 - LEVEL + TIE


class DecisionPair(NamedTuple):
    """What two models decided of the same K labels and n rows, as `ones_at` has it.

    hits       of each model where a label is true and predicted
    predicted  of each where it is predicted; true: where it is true
    """

    hits: Sequence[csr_array]
    predicted: Sequence[csr_array]
    true: csr_array
    empty: EmptyConvention


def ones_at(rows: I64, labels: I64, shape: tuple[int, int]) -> csr_array:
    """Return a matrix of labels and rows with a one, float64, at each
    of these places, none of them twice.
    """
    return csr_array((np.ones(len(rows)), (labels, rows)), shape)


def row_figures(ranked: PredictedRows, truth: Truth) -> dict[str, F64]:
    """Return P@1, P@3, P@5 and nDCG@5 of each row in percent, float64[n] each.

    They are those of `ranking_metrics`, whose figures are their means.
    """
    sums, _ = row_sums(ranked, truth.labels, truth.unknown, max(*KS, NDCG_K))
    figures = {f"P@{k}": sums.hits[:, k - 1] * (100.0 / k) for k in KS}
    figures[f"nDCG@{NDCG_K}"] = 100.0 * (sums.gain / sums.ideal)[:, NDCG_K - 1]
    return figures


def compare_rows(
    a: Mapping[str, F64],
    b: Mapping[str, F64],
    decisions: DecisionPair | None,
    resamples: int,
    seed: int,
    on_progress: Callable[[int], None],
) -> dict[str, Difference]:
    """Return for each figure how two models differ: the means of a and b, and MACRO_F of decisions.

    a, b         float64[n] a figure, of the same n rows
    on_progress  is told how many draws are done

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
        of_a, of_b = _macro_f(_counts(decisions, np.ones(n_rows)), decisions.empty).tolist()
        overall.append((of_a, of_b))
        resampled[:, -1] += of_b - of_a - resampled[:, -1].mean()
        exchanges.append(_exchange_decisions(decisions))
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    intervals = np.percentile(resampled, [tail, 100.0 - tail], axis=0).T
    return {
        name: Difference(
            a=of_a,
            b=of_b,
            difference=of_b - of_a,
            low=float(low),
            high=float(high),
            p=randomisation_test(of_b - of_a, exchange, resamples, random),
        )
        for name, (of_a, of_b), (low, high), exchange in zip(
            names, overall, intervals, exchanges, strict=True
        )
    }


class Exchange(NamedTuple):
    """What exchanging the answers of two models on some rows does to a difference.

    n_rows      rows on which their answers differ
    difference  of a figure, in percent, when those of these rows are exchanged, bool[n_rows]
    """

    n_rows: int
    difference: Callable[[Bools], float]


def randomisation_test(
    observed: float, exchange: Exchange, draws: int, random: np.random.Generator
) -> float:
    """Return the two-sided p of a difference by the paired
    randomisation test (see the module's text).

    draws  so many exchanges are drawn, unless all of them are no more
    """
    n_rows = exchange.n_rows
    is_exact = n_rows < draws.bit_length()
    if is_exact:
        swaps = ((number >> np.arange(n_rows)) & 1 == 1 for number in range(1 << n_rows))
    else:
        swaps = (random.random(n_rows) < 0.5 for _ in range(draws))
    n_as_large = sum(abs(exchange.difference(swapped)) >= abs(observed) - TIE for swapped in swaps)
    return n_as_large / (1 << n_rows) if is_exact else (n_as_large + 1) / (draws + 1)


def _exchange_means(differences: F64) -> Exchange:
    """Return what exchanges do to the mean of the differences of rows, float64[n]."""
    differing = differences[np.abs(differences) > TIE]
    return Exchange(
        len(differing),
        lambda swapped: float(np.where(swapped, -differing, differing).sum()) / len(differences),
    )


def _exchange_decisions(pair: DecisionPair) -> Exchange:
    """Return what exchanges do to the difference of macro-F."""
    rows = np.flatnonzero(abs(pair.predicted[0] - pair.predicted[1]).sum(axis=0))
    differences = [(parts[0] - parts[1])[:, rows] for parts in (pair.hits, pair.predicted)]
    counts = _counts(pair, np.ones(pair.true.shape[1]))

    def difference(swapped: Bools) -> float:
        moved = np.stack([part @ swapped for part in differences], axis=1)
        return float(np.diff(_macro_f([counts[0] - moved, counts[1] + moved], pair.empty))[0])

    return Exchange(len(rows), difference)


def _counts(pair: DecisionPair, weights: F64) -> list[F64]:
    """Return the hits of each label, and how often it is true and
    predicted, of both models, float64[K, 2].

    weights  float64[n], whole numbers: how often each row counts
    """
    return [
        np.stack([hits @ weights, pair.true @ weights + predicted @ weights], axis=1)
        for hits, predicted in zip(pair.hits, pair.predicted, strict=True)
    ]


def _macro_f(counts: Sequence[F64], empty: EmptyConvention) -> F64:
    """Return macro-F of the counts of both models in percent, float64[2]."""
    return np.array(
        [100.0 * f_scores(of_model.astype(np.int64), empty).mean() for of_model in counts]
    )
