"""Slow and obvious: thresholds tuned by trying everything, and counted one label at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def ofo_thresholds(
    scores: np.ndarray,
    truth: np.ndarray,
    a: float,
    b: float,
    power: float,
    bounds: np.ndarray,
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda row, tau: row >= tau,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The paper's algorithm 2 over dense probabilities: (thresholds float32, hits, marks)."""
    n_labels = truth.shape[1]
    hits, marks = np.zeros(n_labels, np.int64), np.zeros(n_labels, np.int64)
    tau = (np.maximum(a / b, bounds.astype(float)) ** (1 / power)).astype(np.float32)
    for i in range(len(truth)):
        predicted = predict(scores[i], tau)
        for j in range(n_labels):
            if truth[i, j] or predicted[j]:
                hits[j] += truth[i, j] and predicted[j]
                marks[j] += int(truth[i, j]) + int(predicted[j])
                tau[j] = max((a + hits[j]) / (b + marks[j]), float(bounds[j])) ** (1 / power)
    return tau, hits, marks
