"""Which predictions are true, and metrics of the first k of a ranking, as the Extreme Classification
Repository defines them.
"""

from typing import NamedTuple

import numpy as np

from model_store.compiled.handles import F64, I32, I64, Bools
from service.base.rows import LabelRows

KS = (1, 3, 5)
RECALL_K = 5


class PredictedRows(NamedTuple):
    """Labels predicted for n rows: int64[n + 1] and int32[..]; a ranking goes from best to worst."""

    ptr: I64
    labels: I32


class Truth(NamedTuple):
    """What is true.

    labels     those that the model knows
    unknown    int32[n], how many more each row has that the model does not know: no prediction can hit them
    n_unknown  how many labels these are
    """

    labels: LabelRows
    unknown: I32
    n_unknown: int = 0


class RowSums(NamedTuple):
    """Sums over the first 1 .. k labels of each row's ranking, float64[n, k] each.

    hits   true labels
    gain   1 / log2(rank + 1) of true labels, ranks from 1
    ideal  the same of a ranking that begins with all true labels of the row; at least 1
    """

    hits: F64
    gain: F64
    ideal: F64


def mark_true(predicted: PredictedRows, truth: LabelRows) -> Bools:
    """Return for each prediction whether its label is true in its row, bool[..].

    Raises ValueError when the numbers of rows differ. Cost: O(m log n), without a kernel to compile.
    """
    n_rows = len(predicted.ptr) - 1
    if n_rows != truth.n_rows:
        raise ValueError(f"expected predictions for {truth.n_rows} rows, found {n_rows}")
    # true labels ascend within a row, and so do these numbers over all rows
    true = _places(truth.indptr, truth.indices, truth.n_labels)
    if not len(true):
        return np.zeros(len(predicted.labels), np.bool_)
    asked = _places(predicted.ptr, predicted.labels, truth.n_labels)
    at = np.minimum(np.searchsorted(true, asked), len(true) - 1)
    found: Bools = true[at] == asked
    return found


def ranks_of(ptr: I64) -> I64:
    """Return the rank of each entry in its row, from 0, int64[..]."""
    return np.arange(ptr[-1]) - np.repeat(ptr[:-1], np.diff(ptr))


def rows_of(ptr: I64) -> I64:
    """Return the row of each entry, int64[..]."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def _places(ptr: I64, labels: I32, n_labels: int) -> I64:
    """Return row * n_labels + label of each entry."""
    return rows_of(ptr) * n_labels + labels


def row_sums(ranked: PredictedRows, labels: LabelRows, unknown: I32, k: int) -> tuple[RowSums, Bools]:
    """Return the sums of each row, and which predictions are true.

    unknown  int32[n], true labels of each row that no prediction can hit
    """
    is_true = mark_true(ranked, labels)
    row, rank = rows_of(ranked.ptr), ranks_of(ranked.ptr)
    gains = _discounts(k)
    hit = is_true & (rank < k)
    n_true = np.diff(labels.indptr) + unknown
    best = np.cumsum(gains)[np.minimum(np.arange(k), np.maximum(n_true, 1)[:, None] - 1)]
    cells = row[hit], rank[hit]
    sums = RowSums(_running(cells, 1.0, best.shape), _running(cells, gains[rank[hit]], best.shape), best)
    return sums, is_true


def ranking_metrics(
    ranked: PredictedRows, truth: Truth, propensities: F64, unknown_propensity: float = 1.0
) -> dict[str, float]:
    """Return P@k, nDCG@k, PSP@k and PSnDCG@k for each k of KS, and R@5, in percent.

    Source: the repository's page "Performance metrics", and the definitions of its evaluation scripts:
    P@k divides by k however few labels are predicted or true; nDCG@k by the gain of min(k, true labels) hits;
    PSP@k and PSnDCG@k weigh a hit with 1 / propensity and are the ratio of the mean to the mean of the best
    ranking. R@k divides by the number of true labels. A row without true labels scores 0 in each.

    ranked              the ranking of each row, best first, without repeats
    propensities        float64[n_labels] in (0, 1]
    unknown_propensity  of labels that the model does not know

    There is a row at least. Raises ValueError when the numbers of rows differ. Memory: O(n). Deterministic.
    """
    labels, unknown, _ = truth
    k_max = max(*KS, RECALL_K)
    sums, is_true = row_sums(ranked, labels, unknown, k_max)
    weights = 1.0 / np.asarray(propensities, np.float64)
    rank = ranks_of(ranked.ptr)
    hit = is_true & (rank < k_max)
    first = rows_of(ranked.ptr)[hit], rank[hit], weights[ranked.labels[hit]]
    best = _best_weights(labels, unknown, weights, 1.0 / unknown_propensity, k_max)
    found: dict[str, float] = {}
    found |= {f"P@{k}": 100.0 * float(sums.hits[:, k - 1].mean()) / k for k in KS}
    found |= {f"nDCG@{k}": 100.0 * float((sums.gain / sums.ideal)[:, k - 1].mean()) for k in KS}
    for name, gains, ideal in (("PSP", np.ones(k_max), 1.0), ("PSnDCG", _discounts(k_max), sums.ideal)):
        weighed, most = (
            (_running((row, at), weight * gains[at], sums.hits.shape) / ideal).sum(axis=0)
            for row, at, weight in (first, best)
        )
        ratios = np.divide(weighed, most, out=np.zeros(k_max), where=most > 0)
        found |= {f"{name}@{k}": 100.0 * float(ratios[k - 1]) for k in KS}
    n_true = np.maximum(np.diff(labels.indptr) + unknown, 1)
    found[f"R@{RECALL_K}"] = 100.0 * float((sums.hits[:, RECALL_K - 1] / n_true).mean())
    return found


def _discounts(k: int) -> F64:
    """Return what a hit at each of the first k ranks is worth, float64[k]."""
    found: F64 = 1.0 / np.log2(np.arange(k) + 2.0)
    return found


def _running(cells: tuple[I64, I64], values: F64 | float, shape: tuple[int, ...]) -> F64:
    """Return float64[n, k]: the sums of values along each row's ranks.

    cells  row and rank of each value, no two alike
    """
    table = np.zeros(shape)
    table[cells] = values
    table.cumsum(axis=1, out=table)
    return table


def _best_weights(
    labels: LabelRows, unknown: I32, weights: F64, of_unknown: float, k: int
) -> tuple[I64, I64, F64]:
    """Return row, rank and weight of the k true labels of each row that weigh most, the heaviest first."""
    more = np.minimum(unknown, k)
    row = np.concatenate([rows_of(labels.indptr), np.repeat(np.arange(labels.n_rows), more)])
    weight = np.concatenate([weights[labels.indices], np.full(more.sum(), of_unknown)])
    order = np.lexsort((-weight, row))
    row, weight = row[order], weight[order]
    rank = ranks_of(np.searchsorted(row, np.arange(labels.n_rows + 1)))
    first = rank < k
    return row[first], rank[first], weight[first]
