"""STO: each label's threshold with the best F on the validation rows, out of all that differ.

Source: Jasinska et al. 2016 section 4.1, algorithm 1. The paper takes an estimate as the threshold; here it
lies between two estimates (their geometric mean), so that rounding decides nothing. Of equally good cuts a
label takes the one nearest to the best threshold for all labels, and that threshold itself where it is one of
them: without true rows, or without estimates, there is nothing else to go by.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from service.base.rows import LabelRows, offsets
from service.evaluation.fmeasure import EmptyConvention
from service.thresholds.methods.estimates import Estimates, mark_hits


def sto(
    estimates: Estimates,
    truth: LabelRows,
    floor: NDArray[np.float32],
    one: NDArray[np.float32],
    empty: EmptyConvention,
) -> NDArray[np.float32]:
    """Return each label's threshold, float32[K]: a score from its floor to 1.

    floor  float32[K], at least estimates.floor: the score of kappa_j, below which no threshold is
    one    float32[K], at least the floor: the threshold that a label has where cuts are equally good

    Cost: sorts the estimates of each label, O(kept log kept). Deterministic.
    """
    hits = mark_hits(estimates, truth)
    order = np.argsort(estimates.labels, kind="stable")
    ptr = offsets(np.bincount(estimates.labels, minlength=truth.n_labels))
    n_true = np.bincount(truth.indices, minlength=truth.n_labels)
    thresholds = np.empty(truth.n_labels, np.float32)
    value = 1.0 if empty == "one" else 0.0
    _best_cuts(ptr, estimates.scores[order], hits[order], n_true, floor, one, value, thresholds)
    return thresholds


@kernel
def _best_cuts(
    ptr: NDArray[np.int64],
    scores: NDArray[np.float32],
    hits: NDArray[np.uint8],
    n_true: NDArray[np.int64],
    floor: NDArray[np.float32],
    one: NDArray[np.float32],
    empty: float,
    thresholds_out: NDArray[np.float32],
) -> None:
    """Set the threshold of each label; the scores of label j are scores[ptr[j] : ptr[j + 1]]."""
    for label in range(len(thresholds_out)):
        own = scores[ptr[label] : ptr[label + 1]]
        own_hits = hits[ptr[label] : ptr[label + 1]]
        order = np.argsort(own)[::-1]
        best_f, best_gap = -1.0, np.inf
        n_hits = 0
        for n in range(len(own) + 1):  # the n highest are predicted
            if n > 0:
                n_hits += own_hits[order[n - 1]]
            high = own[order[n - 1]] if n > 0 else np.float32(1.0)
            low = own[order[n]] if n < len(own) else floor[label]
            if high < floor[label]:
                break
            low = max(low, floor[label])
            if n < len(own) and own[order[n]] >= high:
                continue
            n_marks = n + n_true[label]
            f = 2.0 * n_hits / n_marks if n_marks > 0 else empty
            is_floor = n == len(own) or own[order[n]] < low
            threshold = _between(low, is_floor, high, one[label])
            gap = abs(np.log(threshold / one[label]))
            if f > best_f or (f == best_f and gap < best_gap):
                best_f, best_gap = f, gap
                thresholds_out[label] = threshold


@inlined
def _between(low: np.float32, is_floor: bool, high: np.float32, wanted: np.float32) -> np.float32:
    """Return a threshold that `high` reaches and `low` does not: the one wanted, or else the middle.

    Where `low` is the floor and no estimate, it will do itself.
    """
    if wanted <= high and (low < wanted or (is_floor and low == wanted)):
        return wanted
    middle = np.float32(np.sqrt(np.float64(low) * np.float64(high)))
    return middle if middle > low else high
