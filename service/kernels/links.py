"""Links: from a child's margin to the logarithm of its probability given its parent.

Sources: tree-model-size.txt section 2 (squared hinge), PECOS (cubed hinge), plt-fmeasure.txt section 5
(logistic). Scores are summed as logarithms, so the hinges need no exponential at all.
"""

from __future__ import annotations

import numpy as np

from model_store.jit import borrowing_inlined as inlined

HINGE2 = 0
HINGE3 = 1
LOGISTIC = 2

_SLACK = np.float32(1e-3)
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)


@inlined
def log_link(link: int, margin: np.float32) -> np.float32:
    """Return log p of a margin, in [-inf, 0], float32; `link` is one of model_store.ensemble.LINK_CODES.

    hinge2: -max(0, 1 - m)^2; hinge3: -max(0, 1 - m)^3; logistic: -log(1 + exp(-m)).
    """
    if link == LOGISTIC:
        if margin < _ZERO:
            return np.float32(margin - np.log1p(np.exp(margin)))
        return np.float32(-np.log1p(np.exp(-margin)))
    short = max(_ZERO, _ONE - margin)
    if link == HINGE2:
        return -short * short
    return -short * short * short


@inlined
def margin_cut(link: int, log_probability: np.float32) -> np.float32:
    """Return a margin at or below which log_link is surely less than `log_probability`.

    The inverse of log_link, lowered by about 0.1%: a filter, what passes is compared again. -inf lets all
    through, +inf none (log_probability > 0).
    """
    if log_probability > _ZERO:
        return np.float32(np.inf)
    if log_probability < np.float32(-80.0):
        return np.float32(-np.inf)
    if link == HINGE2:
        cut = _ONE - np.sqrt(-log_probability)
    elif link == HINGE3:
        cut = _ONE - np.cbrt(-log_probability)
    else:
        cut = -np.log(max(np.expm1(-log_probability), np.float32(1e-6)))
    return np.float32(cut - _SLACK * (_ONE + abs(cut)))
