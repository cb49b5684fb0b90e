"""Slow and obvious: metrics by their definitions, and thresholds tuned by trying everything."""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np

Rows = list[list[int]]


def propensity(count: int, n_rows: int, a: float = 0.55, b: float = 1.5) -> float:
    c = max(math.log(n_rows) - 1, 0.0) * (b + 1) ** a
    return 1 / (1 + c * math.exp(-a * math.log(count + b)))


def discounted(gains: list[float]) -> float:
    """DCG: each gain over the logarithm of its place."""
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def ranking(
    predicted: Rows,
    true: Rows,
    unknown: list[int],
    propensities: list[float],
    unknown_propensity: float,
) -> Any:
    """All metrics in percent, as the Extreme Classification Repository's page defines them."""
    found = {}
    for k in (1, 3, 5):
        precision, ndcg, psp, psp_best, psndcg, psndcg_best = [], [], [], [], [], []
        for top, known, n_unknown in zip(predicted, true, unknown, strict=True):
            hits = [float(label in known) for label in top[:k]]
            gains = [1 / propensities[label] if label in known else 0.0 for label in top[:k]]
            best = [1 / propensities[label] for label in known] + [
                1 / unknown_propensity
            ] * n_unknown
            best = sorted(best, reverse=True)[:k]
            ideal = discounted([1.0] * len(best)) or math.inf
            precision.append(sum(hits) / k)
            ndcg.append(discounted(hits) / ideal)
            psp.append(sum(gains) / k)
            psp_best.append(sum(best) / k)
            psndcg.append(discounted(gains) / ideal)
            psndcg_best.append(discounted(best) / ideal)
        found[f"P@{k}"] = 100 * fmean(precision)
        found[f"nDCG@{k}"] = 100 * fmean(ndcg)
        found[f"PSP@{k}"] = 100 * fmean(psp) / fmean(psp_best) if fmean(psp_best) else 0.0
        found[f"PSnDCG@{k}"] = (
            100 * fmean(psndcg) / fmean(psndcg_best) if fmean(psndcg_best) else 0.0
        )
    recalls = []
    for top, known, n_unknown in zip(predicted, true, unknown, strict=True):
        n_true = len(known) + n_unknown
        recalls.append(len(set(top[:5]) & set(known)) / n_true if n_true else 0.0)
    found["R@5"] = 100 * fmean(recalls)
    return found


def f_score(hits: int, marks: int, empty: float) -> float:
    """F by how often a label is true and predicted, and how often it is either, both
    counted twice.
    """
    return 2.0 * hits / marks if marks else empty


def f_measures(
    predicted: Rows, true: Rows, unknown: list[int], n_labels: int, empty: float, n_unknown: int = 0
) -> Any:
    """(macro-F, micro-F, instance-F) in percent; labels beyond the n_labels are never predicted."""
    rows = list(zip(map(set, predicted), map(set, true), unknown, strict=True))
    hits, marks = [len(p & t) for p, t, _ in rows], [len(p) + len(t) + u for p, t, u in rows]
    per_row = [f_score(*of_row, empty) for of_row in zip(hits, marks, strict=True)]
    per_label = []
    for label in range(n_labels):
        both = sum(label in p and label in t for p, t, _ in rows)
        per_label.append(f_score(both, sum((label in p) + (label in t) for p, t, _ in rows), empty))
    macro = fmean([*per_label, *[0.0] * n_unknown])
    return 100 * macro, 100 * f_score(sum(hits), sum(marks), empty), 100 * fmean(per_row)


def ofo_thresholds(
    scores: np.ndarray,
    truth: np.ndarray,
    a: float,
    b: float,
    power: float,
    scale: float,
    bounds: np.ndarray,
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.greater_equal,
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
                tau[j] = (
                    max((a + hits[j]) / (b + marks[j]), float(bounds[j])) ** (1 / power) / scale
                )
    return tau, hits, marks


def label_f(scores: np.ndarray, truth: np.ndarray, threshold: float, empty: float) -> float:
    """F of one label: scores float[n], truth bool[n]."""
    predicted = scores >= threshold
    return f_score(int((predicted & truth).sum()), int(predicted.sum() + truth.sum()), empty)


def best_f(scores: np.ndarray, truth: np.ndarray, floor: float, empty: float) -> float:
    """The best F that any threshold from `floor` to 1 has: every score
    is tried, and what lies above all.
    """
    tried = {floor, 1.0, *(float(s) for s in scores if s >= floor)}
    return max(label_f(scores, truth, t, empty) for t in tried)
