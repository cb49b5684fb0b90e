"""Slow and obvious: metrics by their definitions, and thresholds tuned by trying everything."""

import math
from collections.abc import Callable

import numpy as np

Rows = list[list[int]]


def propensity(count: int, n_rows: int, a: float = 0.55, b: float = 1.5) -> float:
    c = max(math.log(n_rows) - 1, 0.0) * (b + 1) ** a
    return 1 / (1 + c * math.exp(-a * math.log(count + b)))


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def ranking(
    predicted: Rows, true: Rows, unknown: list[int], propensities: list[float], unknown_propensity: float
):
    """All metrics in percent, as the Extreme Classification Repository's page defines them."""
    found = {}
    for k in (1, 3, 5):
        precision, ndcg, psp, psp_best, psndcg, psndcg_best = [], [], [], [], [], []
        for top, known, n_unknown in zip(predicted, true, unknown, strict=True):
            top = top[:k]
            gains = [1 / propensities[label] if label in known else 0.0 for label in top]
            best = [1 / propensities[label] for label in known] + [1 / unknown_propensity] * n_unknown
            best = sorted(best, reverse=True)[:k]
            ideal = sum(1 / math.log2(rank + 2) for rank in range(len(best))) or math.inf
            precision.append(sum(label in known for label in top) / k)
            ndcg.append(sum((label in known) / math.log2(rank + 2) for rank, label in enumerate(top)) / ideal)
            psp.append(sum(gains) / k)
            psp_best.append(sum(best) / k)
            psndcg.append(sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains)) / ideal)
            psndcg_best.append(sum(gain / math.log2(rank + 2) for rank, gain in enumerate(best)) / ideal)
        found[f"P@{k}"] = 100 * mean(precision)
        found[f"nDCG@{k}"] = 100 * mean(ndcg)
        found[f"PSP@{k}"] = 100 * mean(psp) / mean(psp_best) if mean(psp_best) else 0.0
        found[f"PSnDCG@{k}"] = 100 * mean(psndcg) / mean(psndcg_best) if mean(psndcg_best) else 0.0
    recalls = []
    for top, known, n_unknown in zip(predicted, true, unknown, strict=True):
        n_true = len(known) + n_unknown
        recalls.append(len(set(top[:5]) & set(known)) / n_true if n_true else 0.0)
    found["R@5"] = 100 * mean(recalls)
    return found


def f_measure(hits: int, n_true: int, n_predicted: int, empty: float) -> float:
    return 2 * hits / (n_true + n_predicted) if n_true + n_predicted else empty


def f_measures(
    predicted: Rows, true: Rows, unknown: list[int], n_labels: int, empty: float, n_unknown: int = 0
):
    """(macro-F, micro-F, instance-F) in percent; labels beyond the n_labels are never predicted."""
    rows = list(zip(map(set, predicted), map(set, true), unknown, strict=True))
    per_row = [f_measure(len(p & t), len(t) + u, len(p), empty) for p, t, u in rows]
    per_label = [
        f_measure(
            sum(label in p and label in t for p, t, _ in rows),
            sum(label in t for _, t, _ in rows),
            sum(label in p for p, _, _ in rows),
            empty,
        )
        for label in range(n_labels)
    ]
    micro = f_measure(
        sum(len(p & t) for p, t, _ in rows),
        sum(len(t) + u for _, t, u in rows),
        sum(len(p) for p, _, _ in rows),
        empty,
    )
    return 100 * mean([*per_label, *[0.0] * n_unknown]), 100 * micro, 100 * mean(per_row)


def ofo_thresholds(
    scores: np.ndarray,
    truth: np.ndarray,
    a: float,
    b: float,
    power: float,
    scale: float,
    bounds: np.ndarray,
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda row, tau: row >= tau,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The paper's algorithm 2 over dense probabilities: (thresholds float32, hits, marks)."""
    n_labels = truth.shape[1]
    hits, marks = np.zeros(n_labels, np.int64), np.zeros(n_labels, np.int64)
    tau = (np.maximum(a / b, bounds.astype(float)) ** (1 / power) / scale).astype(np.float32)
    for i in range(len(truth)):
        predicted = predict(scores[i], tau)
        for j in range(n_labels):
            if truth[i, j] or predicted[j]:
                hits[j] += truth[i, j] and predicted[j]
                marks[j] += int(truth[i, j]) + int(predicted[j])
                tau[j] = max((a + hits[j]) / (b + marks[j]), float(bounds[j])) ** (1 / power) / scale
    return tau, hits, marks


def f_score(hits: int, marks: int, empty: float) -> float:
    return 2.0 * hits / marks if marks else empty


def label_f(scores: np.ndarray, truth: np.ndarray, threshold: float, empty: float) -> float:
    """F of one label: scores float[n], truth bool[n]."""
    predicted = scores >= threshold
    return f_score(int((predicted & truth).sum()), int(predicted.sum() + truth.sum()), empty)


def best_f(scores: np.ndarray, truth: np.ndarray, floor: float, empty: float) -> float:
    """The best F that any threshold from `floor` to 1 has: every score is tried, and what lies above all."""
    tried = {floor, 1.0, *(float(s) for s in scores if s >= floor)}
    return max(label_f(scores, truth, t, empty) for t in tried)
