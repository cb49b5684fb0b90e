"""Metrics of the first k labels of a ranking, as the Extreme Classification Repository defines them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from service.base.rows import LabelRows

KS = (1, 3, 5)
RECALL_K = 5

_P, _NDCG, _PSP, _PSP_BEST, _PSNDCG, _PSNDCG_BEST, _RECALL = range(7)
_N_SUMS = 7


def ranking_metrics(
    pred_ptr: NDArray[np.int64],
    pred_labels: NDArray[np.int32],
    labels: LabelRows,
    propensities: NDArray[np.float64],
    ks: tuple[int, ...] = KS,
    *,
    unknown_labels: NDArray[np.int32] | None = None,
    unknown_propensity: float = 1.0,
) -> dict[str, float]:
    """Return P@k, nDCG@k, PSP@k and PSnDCG@k for each k, and R@5, in percent.

    Source: the repository's page "Performance metrics", and the definitions of its evaluation scripts:
    P@k divides by k however few labels are predicted or true; nDCG@k by the gain of min(k, true labels) hits;
    PSP@k and PSnDCG@k weigh a hit with 1 / propensity and are the ratio of the mean to the mean of the best
    ranking. R@k divides by the number of true labels. A row without true labels scores 0 in each.

    pred_ptr, pred_labels  int64[n + 1], int32[..]: the ranking of each row, best first, without repeats
    labels                 the true labels, n rows
    propensities           float64[n_labels] in (0, 1]
    unknown_labels         int32[n], true labels of each row that no prediction can hit, of unknown_propensity

    Raises ValueError when the numbers of rows or labels differ. Linear. Deterministic.
    """
    n = labels.n_rows
    if unknown_labels is None:
        unknown_labels = np.zeros(n, np.int32)
    if not n or len(pred_ptr) - 1 != n or len(unknown_labels) != n:
        raise ValueError(f"expected predictions for {max(n, 1)} rows, found {len(pred_ptr) - 1}")
    if len(propensities) != labels.n_labels:
        raise ValueError(f"expected {labels.n_labels} propensities, found {len(propensities)}")
    k_max = max(*ks, RECALL_K)
    sums = _sum_metrics(
        pred_ptr,
        pred_labels,
        labels.indptr,
        labels.indices,
        unknown_labels,
        1.0 / np.asarray(propensities, np.float64),
        1.0 / unknown_propensity,
        k_max,
    )
    found: dict[str, float] = {}
    for name, row in (("P", sums[_P]), ("nDCG", sums[_NDCG])):
        found |= {f"{name}@{k}": 100.0 * float(row[k - 1]) / n for k in ks}
    for name, row, best in (
        ("PSP", sums[_PSP], sums[_PSP_BEST]),
        ("PSnDCG", sums[_PSNDCG], sums[_PSNDCG_BEST]),
    ):
        found |= {f"{name}@{k}": 100.0 * float(row[k - 1] / best[k - 1]) if best[k - 1] else 0.0 for k in ks}
    found[f"R@{RECALL_K}"] = 100.0 * float(sums[_RECALL, RECALL_K - 1]) / n
    return found


@inlined
def _holds(indices: NDArray[np.int32], start: int, end: int, label: int) -> bool:
    """Return whether sorted indices[start:end] hold a label."""
    stop = end
    while start < end:
        middle = (start + end) // 2
        if indices[middle] < label:
            start = middle + 1
        else:
            end = middle
    return bool(start < stop and indices[start] == label)


@kernel
def _best_weights(
    indices: NDArray[np.int32],
    start: int,
    end: int,
    weights: NDArray[np.float64],
    n_unknown: int,
    unknown_weight: float,
) -> NDArray[np.float64]:
    """Return the weights of a row's true labels, ascending."""
    found = np.empty(end - start + n_unknown, np.float64)
    for i in range(end - start):
        found[i] = weights[indices[start + i]]
    found[end - start :] = unknown_weight
    found.sort()
    return found


@kernel
def _sum_metrics(
    pred_ptr: NDArray[np.int64],
    pred_labels: NDArray[np.int32],
    true_ptr: NDArray[np.int64],
    true_labels: NDArray[np.int32],
    unknown: NDArray[np.int32],
    weights: NDArray[np.float64],
    unknown_weight: float,
    k_max: int,
) -> NDArray[np.float64]:
    """Return the sums over rows of each metric at 1 .. k_max, float64[_N_SUMS, k_max]."""
    sums = np.zeros((_N_SUMS, k_max))
    for row in range(len(true_ptr) - 1):
        start, end = true_ptr[row], true_ptr[row + 1]
        best = _best_weights(true_labels, start, end, weights, unknown[row], unknown_weight)
        n_true = len(best)
        if n_true == 0:
            continue
        n_predicted = pred_ptr[row + 1] - pred_ptr[row]
        hits, weight, gain, gain_weight, ideal, weight_best, gain_best = 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for rank in range(k_max):
            discount = 1.0 / np.log2(rank + 2.0)
            if rank < n_true:
                ideal += discount
                weight_best += best[n_true - 1 - rank]
                gain_best += best[n_true - 1 - rank] * discount
            if rank < n_predicted:
                label = pred_labels[pred_ptr[row] + rank]
                if _holds(true_labels, start, end, label):
                    hits += 1
                    weight += weights[label]
                    gain += discount
                    gain_weight += weights[label] * discount
            sums[_P, rank] += hits / (rank + 1.0)
            sums[_NDCG, rank] += gain / ideal
            sums[_PSP, rank] += weight / (rank + 1.0)
            sums[_PSP_BEST, rank] += weight_best / (rank + 1.0)
            sums[_PSNDCG, rank] += gain_weight / ideal
            sums[_PSNDCG_BEST, rank] += gain_best / ideal
            sums[_RECALL, rank] += hits / n_true
    return sums
