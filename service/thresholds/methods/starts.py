"""Which start values OFO should have: those whose thresholds do best on the validation rows.

Source: Jasinska et al. 2016 section 6.2 and appendix D, where a and b are validated over a grid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.evaluation.fmeasure import EmptyConvention
from service.rows import LabelRows
from service.thresholds.methods.estimates import Estimates, count_at, macro_f
from service.thresholds.methods.ofo import Start, no_counts, threshold_at, thresholds_of

A_GRID = (1.0, 2.0, 5.0, 10.0, 100.0)
RATIO_GRID = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0)
"""b / a, of the paper's list of c: the probability of the first threshold is one over it."""


def choose_start(
    estimates: Estimates, truth: LabelRows, bounds: NDArray[np.float32], power: float, empty: EmptyConvention
) -> Start:
    """Return the start values of the grid whose thresholds, after all rows, have the best macro-F on them.

    bounds  float32[K], as ofo.lower_bounds returns it, and none below the floor of the estimates

    OFO is replayed on the kept estimates, so that the model is asked once. Of equals, the first of the grid.
    Cost: a pass over the estimates for each pair of the grid. Deterministic.
    """
    best, best_f = Start(power=power), -1.0
    for a in A_GRID:
        for ratio in RATIO_GRID:
            start = Start(a, a * ratio, power)
            f = macro_f(count_at(estimates, truth, replay(estimates, truth, bounds, start)), empty)
            if f > best_f:
                best, best_f = start, f
    return best


def replay(
    estimates: Estimates, truth: LabelRows, bounds: NDArray[np.float32], start: Start
) -> NDArray[np.float32]:
    """Return the thresholds that OFO leaves after the rows of the estimates, float32[K]."""
    counters = no_counts(truth.n_labels)
    thresholds = thresholds_of(counters, start, bounds)
    _replay(
        (estimates.ptr, estimates.labels, estimates.scores),
        (truth.indptr, truth.indices),
        np.full(truth.n_labels, -1, np.int64),
        bounds,
        start[:],
        counters[:],
        thresholds,
    )
    return thresholds


@kernel
def _replay(
    estimates: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    truth: tuple[NDArray[np.int64], NDArray[np.int32]],
    last_row: NDArray[np.int64],
    bounds: NDArray[np.float32],
    start: tuple[float, float, float],
    counters: tuple[NDArray[np.int64], NDArray[np.int64]],
    thresholds: NDArray[np.float32],
) -> None:
    """Do algorithm 2's lines 3 to 8 on estimates; counters and thresholds are changed."""
    ptr, labels, scores = estimates
    true_ptr, true_labels = truth
    a, b, power = start
    hits, marks = counters
    for row in range(len(ptr) - 1):
        for i in range(true_ptr[row], true_ptr[row + 1]):
            last_row[true_labels[i]] = row
            marks[true_labels[i]] += 1
        for i in range(ptr[row], ptr[row + 1]):
            label = labels[i]
            if scores[i] >= thresholds[label]:
                marks[label] += 1
                hits[label] += last_row[label] == row
                if last_row[label] != row:
                    thresholds[label] = threshold_at(hits[label], marks[label], a, b, power, bounds[label])
        for i in range(true_ptr[row], true_ptr[row + 1]):
            label = true_labels[i]
            thresholds[label] = threshold_at(hits[label], marks[label], a, b, power, bounds[label])
