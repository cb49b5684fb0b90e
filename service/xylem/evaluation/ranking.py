"""Metrics of the first k labels of rankings, propensity-scored metrics, and F of predicted sets.

Metrics of rankings are defined as by the Extreme Classification Repository.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xylem.base import BadParameter, LabelRows
from xylem_store import F64, I32, I64, Bools

A = 0.55
B = 1.5


def constants_of(parameters: Mapping[str, object]) -> tuple[float, float]:
    """Return the constants a and b that a version was trained with.

    They are A and B if its trainer takes none.

    parameters  of the trainer, as the version's manifest has them
    """
    a = parameters.get("propensity_a", A)
    b = parameters.get("propensity_b", B)
    return (
        (float(a), float(b))
        if isinstance(a, int | float) and isinstance(b, int | float)
        else (A, B)
    )


def propensities(label_counts: ArrayLike, n_rows: int, a: float = A, b: float = B) -> F64:
    """Return the propensity of each label, in (0, 1].

    Source: Jain, Prabhu, Varma 2016, "Extreme multi-label loss functions", section 4: 1 / (1 + C (N
    + B)^-A), C = (ln n_rows - 1) (B + 1)^A. Deviation: C is not below 0, as it would be for one or
    two rows.

    label_counts  [K], training rows of each label
    n_rows        training rows, at least 1
    a, b          constants of the data set; the defaults are the repository's
    """
    c = max(np.log(n_rows) - 1.0, 0.0) * (b + 1.0) ** a
    return np.asarray(1.0 / (1.0 + c * (np.asarray(label_counts, np.float64) + b) ** -a))


KS = (1, 3, 5)
RECALL_K = 5


class PredictedRows(NamedTuple):
    """Labels predicted for n rows: `ptr` int64[n + 1] and `labels` int32[..].

    A ranking goes from best to worst.
    """

    ptr: I64
    labels: I32


class Truth(NamedTuple):
    """The true labels of n rows.

    labels     those that the model knows
    unknown    int32[n], number of further labels of each row, which the model does not know: no
               prediction can hit them
    n_unknown  number of distinct labels that the model does not know
    """

    labels: LabelRows
    unknown: I32
    n_unknown: int = 0


class RowSums(NamedTuple):
    """Sums over the first 1 .. k labels of each row's ranking, float64[n, k] each.

    hits   true labels
    gain   1 / log2(rank + 1) of true labels, with ranks from 1
    ideal  the gain of a ranking that begins with all true labels of the row; at least 1
    """

    hits: F64
    gain: F64
    ideal: F64


def mark_true(predicted: PredictedRows, truth: LabelRows) -> Bools:
    """Return for each prediction whether its label is true in its row, bool[..].

    Raises ValueError if the numbers of rows differ. Cost: O(m log n), without a kernel to compile.
    """
    n_rows = len(predicted.ptr) - 1
    if n_rows != truth.n_rows:
        raise ValueError(f"expected predictions for {truth.n_rows} rows, found {n_rows}")
    # true labels ascend within a row, so these places ascend over all rows
    true_places = rows_of(truth.indptr) * truth.n_labels + truth.indices
    if not len(true_places):
        return np.zeros(len(predicted.labels), np.bool_)
    predicted_places = rows_of(predicted.ptr) * truth.n_labels + predicted.labels
    positions = np.minimum(np.searchsorted(true_places, predicted_places), len(true_places) - 1)
    return np.asarray(true_places[positions] == predicted_places)


def ranks_of(ptr: I64) -> I64:
    """Return the rank of each entry in its row, from 0, int64[..]."""
    return np.arange(ptr[-1]) - np.repeat(ptr[:-1], np.diff(ptr))


def rows_of(ptr: I64) -> I64:
    """Return the row of each entry, int64[..]."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def row_sums(
    ranked: PredictedRows, labels: LabelRows, unknown: I32, k: int
) -> tuple[RowSums, Bools]:
    """Return the sums of each row, and for each prediction whether it is true.

    unknown  int32[n], number of true labels of each row that no prediction can hit
    """
    is_true = mark_true(ranked, labels)
    rank = ranks_of(ranked.ptr)
    gains = _discounts(k)
    hit = is_true & (rank < k)
    n_true = np.maximum(np.diff(labels.indptr) + unknown, 1)
    best = np.cumsum(gains)[np.minimum(np.arange(k), n_true[:, None] - 1)]
    cells = rows_of(ranked.ptr)[hit], rank[hit]
    return RowSums(
        _running_sums(cells, 1.0, best.shape),
        _running_sums(cells, gains[rank[hit]], best.shape),
        best,
    ), is_true


def ranking_metrics(
    ranked: PredictedRows, truth: Truth, propensities: F64, unknown_propensity: float = 1.0
) -> dict[str, float]:
    """Return P@k, nDCG@k, PSP@k and PSnDCG@k for each k of KS, and R@5, in percent.

    Source: the repository's page "Performance metrics", and the definitions of its evaluation
    scripts: P@k divides by k however few labels are predicted or true; nDCG@k by the gain of min(k,
    true labels) hits; PSP@k and PSnDCG@k weight a hit with 1 / propensity and are the ratio of the
    mean to the mean of the best ranking. R@k divides by the number of true labels. A row without
    true labels scores 0 in each.

    ranked              the ranking of each row, best first, without repeats
    propensities        float64[n_labels] in (0, 1]
    unknown_propensity  of labels that the model does not know

    A row of weight k counts as k rows. Labels with weights are true as all others are.

    There must be at least one row. Raises ValueError if the numbers of rows differ. Memory: O(n).
    Deterministic.
    """
    labels, unknown, _ = truth
    of_rows = labels.weights and labels.weights.rows
    k_max = max(*KS, RECALL_K)
    sums, is_true = row_sums(ranked, labels, unknown, k_max)
    weights = 1.0 / np.asarray(propensities, np.float64)
    rank = ranks_of(ranked.ptr)
    hit = is_true & (rank < k_max)
    first = rows_of(ranked.ptr)[hit], rank[hit], weights[ranked.labels[hit]]
    best = _best_weights(labels, unknown, weights, 1.0 / unknown_propensity, k_max)
    if of_rows is not None:
        first, best = ((row, ranks, weight * of_rows[row]) for row, ranks, weight in (first, best))
    figures: dict[str, float] = {}
    for name, table, divisors in (
        ("P", sums.hits, KS),
        ("nDCG", sums.gain / sums.ideal, (1, 1, 1)),
    ):
        for k, divisor in zip(KS, divisors, strict=True):
            figures[f"{name}@{k}"] = (
                100.0 * float(np.average(table[:, k - 1], weights=of_rows)) / divisor
            )
    for name, gains, ideal in (
        ("PSP", np.ones(k_max), 1.0),
        ("PSnDCG", _discounts(k_max), sums.ideal),
    ):
        weighed, ideal_sums = (
            (_running_sums((row, ranks), weight * gains[ranks], sums.hits.shape) / ideal).sum(
                axis=0
            )
            for row, ranks, weight in (first, best)
        )
        ratios = np.divide(weighed, ideal_sums, out=np.zeros(k_max), where=ideal_sums > 0)
        figures |= {f"{name}@{k}": 100.0 * float(ratios[k - 1]) for k in KS}
    figures[f"R@{RECALL_K}"] = 100.0 * float(
        np.average(
            sums.hits[:, RECALL_K - 1] / np.maximum(np.diff(labels.indptr) + unknown, 1),
            weights=of_rows,
        )
    )
    return figures


def _discounts(k: int) -> F64:
    """Return the gain of a hit at each of the first k ranks, float64[k]."""
    return np.asarray(1.0 / np.log2(np.arange(k) + 2.0))


def _running_sums(cells: tuple[I64, I64], values: F64 | float, shape: tuple[int, ...]) -> F64:
    """Return float64[n, k]: the cumulative sums of values along each row's ranks.

    cells  row and rank of each value; no two are equal
    """
    table = np.zeros(shape)
    table[cells] = values
    table.cumsum(axis=1, out=table)
    return table


def _best_weights(
    labels: LabelRows, unknown: I32, weights: F64, unknown_weight: float, k: int
) -> tuple[I64, I64, F64]:
    """Return row, rank and weight of the k heaviest true labels of each row, the heaviest first."""
    n_unknown = np.minimum(unknown, k)
    row = np.concatenate([rows_of(labels.indptr), np.repeat(np.arange(labels.n_rows), n_unknown)])
    weight = np.concatenate([weights[labels.indices], np.full(n_unknown.sum(), unknown_weight)])
    order = np.lexsort((-weight, row))
    row = row[order]
    weight = weight[order]
    rank = ranks_of(np.searchsorted(row, np.arange(labels.n_rows + 1)))
    first = rank < k
    return row[first], rank[first], weight[first]


# The value of F if nothing is true and nothing is predicted.
#
# "zero" is scikit-learn's default, "one" the convention of the papers on extreme F-measures.
EmptyConvention = Literal["one", "zero"]

CONVENTIONS: tuple[EmptyConvention, ...] = ("zero", "one")

# The default convention: a label that never occurs earns nothing.
USUAL_EMPTY: EmptyConvention = "zero"


def empty_convention(text: object, name: str) -> EmptyConvention:
    """Return the convention of empty labels that a text names. Raises BadParameter.

    name  the option that the text is the value of, for the error
    """
    if text in CONVENTIONS:
        return text
    raise BadParameter(f"{name}: expected {' or '.join(CONVENTIONS)}, found {text!r}")


class FMeasures(NamedTuple):
    """F-measures in percent, and the convention of empty labels that they follow."""

    macro_f: float
    micro_f: float
    instance_f: float
    empty_label_convention: EmptyConvention


def f_measures(predicted: PredictedRows, truth: Truth, empty: EmptyConvention) -> FMeasures:
    """Return the F-measures of predicted sets of labels.

    Macro-F is the mean over labels, micro-F is that of all decisions, instance-F the mean over
    rows. F is 2 hits / (true + predicted). `empty` is the convention for 0 / 0: of a label in
    macro-F, of a row in instance-F, of all decisions in micro-F.

    predicted  the labels of each row, without repeats, out of the K that the model knows
    truth      labels that the model does not know count as missed in micro-F and instance-F;
               macro-F is the mean over K + n_unknown labels, where unknown ones have 0

    A row of weight k counts as k rows.

    There must be at least one row and one label. Raises ValueError if the numbers of rows differ.
    Deterministic.
    """
    labels, unknown, n_unknown = truth
    of_rows = labels.weights and labels.weights.rows
    hits = np.bincount(
        rows_of(predicted.ptr)[mark_true(predicted, labels)], minlength=labels.n_rows
    )
    rows = np.stack([hits, np.diff(labels.indptr) + unknown + np.diff(predicted.ptr)], axis=1)
    sums = rows.sum(0) if of_rows is None else of_rows.astype(np.float64) @ rows
    return FMeasures(
        100.0
        * float(count_labels(predicted, labels).f(empty).sum())
        / (labels.n_labels + n_unknown),
        100.0 * float(f_scores(sums[None], empty)[0]),
        100.0 * float(np.average(f_scores(rows, empty), weights=of_rows)),
        empty,
    )


class LabelCounts(NamedTuple):
    """The decisions about each label, int64[K] each; float64 if rows have weights.

    support    rows in which it is true
    hits       rows in which it is true and predicted
    predicted  rows in which it is predicted
    """

    support: NDArray[Any]
    hits: NDArray[Any]
    predicted: NDArray[Any]

    def f(self, empty: EmptyConvention) -> F64:
        """Return F of each label in [0, 1], float64[K]."""
        return f_scores(np.stack([self.hits, self.support + self.predicted], axis=1), empty)


def count_labels(decided: PredictedRows, truth: LabelRows) -> LabelCounts:
    """Return the counts of each label. Raises ValueError if the numbers of rows differ."""
    is_hit = mark_true(decided, truth)
    of_decided = truth.weights_at(decided.ptr)
    of_hits = None if of_decided is None else of_decided[is_hit]
    n = truth.n_labels
    return LabelCounts(
        support=np.bincount(truth.indices, truth.weights_at(truth.indptr), n),
        hits=np.bincount(decided.labels[is_hit], of_hits, n),
        predicted=np.bincount(decided.labels, of_decided, n),
    )


def f_scores(counts: NDArray[Any], empty: EmptyConvention) -> F64:
    """Return F in [0, 1] of each pair (hits, true + predicted), int64[n, 2] or float64[n, 2]."""
    f = np.full(len(counts), 1.0 if empty == "one" else 0.0)
    np.divide(2.0 * counts[:, 0], counts[:, 1], out=f, where=counts[:, 1] > 0)
    return f
