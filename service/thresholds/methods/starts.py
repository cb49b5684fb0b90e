"""Which start values OFO should have: those whose thresholds do best on the validation rows.

Source: Jasinska et al. 2016 section 6.2 (a is 1, b of a list C that ends at 10,000) and appendix D (a of C
as well, a / b in (nu_j, 0.5]). Deviations:
* b is a times a number of C, not of C itself. Eight of the twelve pairs of table 4 are such, and four of them
  (10,000 and 100,000 is one) are not of C; with b of C no a above 1,000 leaves room for a b of at least 2 a.
* b / a ends at 100: a first threshold below 0.01 is raised to it (`ofo.LEAST`), and appendix D has the same
  bound where nu_j is 0.01. So section 6.2's a = 1 with b above 100 is left out; measured, it was never best.
* No a above 100 is above the number of validation rows: it would hold a label's threshold where it began,
  against all these rows and against as much feedback after them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.base.rows import LabelRows
from service.evaluation.fmeasure import EmptyConvention
from service.thresholds.methods.estimates import Estimates, count_at, macro_f
from service.thresholds.methods.ofo import Counters, Start, no_counts, threshold_at, thresholds_of

A_GRID = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0, 200.0, 1000.0, 10000.0)
"""The a of section 6.2, and the paper's list C. The larger a is, the less a row moves a threshold."""

A_ALWAYS = 100.0
"""Up to here every a is tried; a larger one with at least so many rows as it says."""

RATIO_GRID = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0)
"""b / a, of C as well: the probability of the first threshold is one over it."""


def choose_start(
    estimates: Estimates, truth: LabelRows, bounds: NDArray[np.float32], power: float, empty: EmptyConvention
) -> Start:
    """Return the start values of the grid whose thresholds, after all rows, have the best macro-F on them.

    bounds  float32[K], as ofo.lower_bounds returns it, and none below the floor of the estimates

    OFO is replayed on the kept estimates, so that the model is asked once. Of equals, the first of the grid.
    Cost: a pass over the estimates for each pair of the grid, 117 at most. Deterministic.
    """
    n_rows = len(estimates.ptr) - 1
    best, best_f = Start(power=power), -1.0
    for a in A_GRID:
        if a > max(A_ALWAYS, n_rows):
            break
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
    count_rows(estimates, truth, bounds, start, counters, thresholds)
    return thresholds


def count_rows(
    estimates: Estimates,
    truth: LabelRows,
    bounds: NDArray[np.float32],
    start: Start,
    counters: Counters,
    thresholds: NDArray[np.float32],
) -> None:
    """Let OFO go on over further rows: counters and thresholds, those of the rows before, are changed."""
    _replay(
        (estimates.ptr, estimates.labels, estimates.scores),
        (truth.indptr, truth.indices),
        np.full(truth.n_labels, -1, np.int64),
        bounds,
        start[:],
        counters[:],
        thresholds,
    )


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
