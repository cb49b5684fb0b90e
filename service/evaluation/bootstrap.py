"""Whether one model is better than another on the same rows, or the rows happened to suit it.

Source: Efron, Tibshirani 1993, "An introduction to the bootstrap", chapter 13. The rows are drawn anew, with
replacement, as often as asked; each draw measures both models on the same rows (a paired bootstrap): what
both find easy or hard cancels out. Deviation: the percentiles are those of the draws about their own mean,
laid about the difference on all rows. For means of rows that is the same. Macro-F of a draw lacks the rare
labels of the third of the rows that are not in it: the difference would lie at the end of its interval.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from model_store.compiled.handles import F64, I64
from service.evaluation.ranking import KS, EmptyConvention, PredictedRows, Truth, f_scores, row_sums

NDCG_K = 5
RESAMPLES = 1000
RESAMPLES_MIN, RESAMPLES_MAX = 100, 100_000
LEVEL = 0.95
MACRO_F = "macro_f"


class Difference(NamedTuple):
    """A figure of two models, in percent, and the interval that LEVEL of all draws of rows lie in.

    difference  b - a
    low, high   of the difference
    """

    a: float
    b: float
    difference: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Return whether the interval leaves out 0."""
        return not self.low <= 0.0 <= self.high


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
    """Return a matrix of labels and rows with a one, float64, at each of these places, none of them twice."""
    return csr_array((np.ones(len(rows)), (labels, rows)), shape)


def row_figures(ranked: PredictedRows, truth: Truth) -> dict[str, F64]:
    """Return P@1, P@3, P@5 and nDCG@5 of each row in percent, float64[n] each.

    They are those of `ranking_metrics`, whose figures are their means.
    """
    sums, _ = row_sums(ranked, truth.labels, truth.unknown, max(*KS, NDCG_K))
    found = {f"P@{k}": sums.hits[:, k - 1] * (100.0 / k) for k in KS}
    found[f"nDCG@{NDCG_K}"] = 100.0 * (sums.gain / sums.ideal)[:, NDCG_K - 1]
    return found


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
    apart = np.stack([b[name] - a[name] for name in names], axis=1)
    random = np.random.default_rng(seed)
    drawn = np.empty((resamples, len(names) + (decisions is not None)))
    for i in range(resamples):
        on_progress(i)
        weights = np.bincount(random.integers(0, n_rows, n_rows), minlength=n_rows).astype(np.float64)
        drawn[i, : len(names)] = weights @ apart / n_rows
        if decisions is not None:
            drawn[i, -1] = np.diff(_macro_f(decisions, weights))[0]
    on_progress(resamples)
    whole = [(float(a[name].mean()), float(b[name].mean())) for name in names]
    if decisions is not None:
        names.append(MACRO_F)
        of_a, of_b = _macro_f(decisions, np.ones(n_rows)).tolist()
        whole.append((of_a, of_b))
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    spread = np.percentile(drawn - drawn.mean(axis=0), [tail, 100.0 - tail], axis=0).T
    return {
        name: Difference(of_a, of_b, of_b - of_a, of_b - of_a + float(low), of_b - of_a + float(high))
        for name, (of_a, of_b), (low, high) in zip(names, whole, spread, strict=True)
    }


def _macro_f(pair: DecisionPair, weights: F64) -> F64:
    """Return macro-F of both models in percent, float64[2].

    weights  float64[n], whole numbers: how often each row counts
    """
    support = pair.true @ weights
    found = np.empty(2)
    for i, (hits, predicted) in enumerate(zip(pair.hits, pair.predicted, strict=True)):
        counts = np.stack([hits @ weights, support + predicted @ weights], axis=1).astype(np.int64)
        found[i] = 100.0 * f_scores(counts, pair.empty).mean()
    return found
