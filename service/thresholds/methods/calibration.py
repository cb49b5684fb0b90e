"""How a model's scores are to be read as probabilities: one power for all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.thresholds.methods.ofo import POWER_MAX, POWER_MIN

_BINS_A_UNIT = 64
_LOG_MAX = 64.0
_STEPS = 60
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


def fit_power(scores: NDArray[np.float32], hits: NDArray[np.uint8], default: float) -> float:
    """Return the power p in [POWER_MIN, POWER_MAX] for which score ** p is the likeliest share of hits.

    Maximum likelihood, sum of log(s ** p) over the hits and of log(1 - s ** p) over the others, which is
    concave in p: golden-section search, with the scores' logarithms in bins of 1/64. Scaling log-scores by a
    factor is temperature scaling (Guo et al. 2017, "On calibration of modern neural networks") of a score
    that is a product. It keeps the order of scores: what passes a threshold passes the threshold's image.

    scores, hits  float32[n] in [0, 1], uint8[n]: estimates, and whether their label is true
    default       returned when all are hits or none is

    Cost: O(n). Deterministic.
    """
    is_hit = hits > 0
    if is_hit.all() or not is_hit.any():
        return default
    with np.errstate(divide="ignore"):
        depth = np.minimum(-np.log(scores), _LOG_MAX)
    bins = (depth * _BINS_A_UNIT).astype(np.int64)
    n_bins = int(_LOG_MAX) * _BINS_A_UNIT + 1
    n_all, n_hits = np.bincount(bins, minlength=n_bins), np.bincount(bins[is_hit], minlength=n_bins)
    middle = (np.arange(n_bins) + 0.5) / _BINS_A_UNIT

    def loss(log_power: float) -> float:
        exponent = np.exp(log_power) * middle
        return float(np.sum(n_hits * exponent - (n_all - n_hits) * np.log(-np.expm1(-exponent))))

    low, high = np.log(POWER_MIN), np.log(POWER_MAX)
    for _ in range(_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return float(np.clip(np.exp((low + high) / 2.0), POWER_MIN, POWER_MAX))
