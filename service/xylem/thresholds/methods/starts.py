"""Which start values OFO should have, and which kappa a method:
those that do best on validation rows.

Source: Jasinska et al. 2016 section 6.2 (a is 1, b of a list C that ends at 10,000) and appendix D
(a of C as well, a / b in (nu_j, 0.5]). Deviations:
* b is a times a number of C, not of C itself. Eight of the twelve pairs of table 4 are such, and
  four of them (10,000 and 100,000 is one) are not of C; with b of C no a above 1,000 leaves room
  for a b of at least 2 a.
* b / a ends at 100: a first threshold below 0.01 is raised to it (`ofo.LEAST`), and appendix D has
  the same bound where nu_j is 0.01. So section 6.2's a = 1 with b above 100 is left out; measured,
  it was never best.
* No a above 100 is above the number of validation rows: it would hold a label's threshold where it
  began, against all these rows and against as much feedback after them.
Kappa (section 6.2): kappa_j = max(1 / c, nu_j), c validated over a list. Here kappa_j is never
below 0.01 (`ofo.LEAST`), so the list's values of c above 100 are left out: they say the same as
100.
"""

from collections.abc import Callable

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem.evaluation import EmptyConvention
from xylem.thresholds.methods.estimates import Estimates, count_at
from xylem.thresholds.methods.ofo import Counters, Start, no_counts, threshold_at, thresholds_of
from xylem_store import F32, I32, I64, kernel

A_GRID = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0, 200.0, 1000.0, 10000.0)
"""The a of section 6.2, and the paper's list C.
The larger a is, the less a row moves a threshold.
"""

A_ALWAYS = 100.0  # up to here every a is tried; a larger one with at least so many rows as it says
RATIO_GRID = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0)
"""b / a, of C as well: the probability of the first threshold is one over it."""


def choose_start(
    estimates: Estimates, truth: LabelRows, bounds: F32, read: Start, empty: EmptyConvention
) -> Start:
    """Return the start values of the grid whose thresholds, after all
    rows, have the best macro-F on them.

    bounds  float32[K], as ofo.lower_bounds returns it, and none below the floor of the estimates
    read    how scores are read: its power and scale

    OFO is replayed on the kept estimates, so that the model is asked once. Of equals, the first of
    the grid. Cost: a pass over the estimates for each pair of the grid, 117 at most. Deterministic.
    """
    n_rows = len(estimates.ptr) - 1
    best = read
    best_f = -1.0
    for a in A_GRID:
        if a > max(A_ALWAYS, n_rows):
            break
        for ratio in RATIO_GRID:
            start = read._replace(a=a, b=a * ratio)
            f = 100.0 * count_at(estimates, truth, replay(estimates, truth, bounds, start)).macro_f(
                empty
            )
            if f > best_f:
                best = start
                best_f = f
    return best


def replay(estimates: Estimates, truth: LabelRows, bounds: F32, start: Start) -> F32:
    """Return the thresholds that OFO leaves after the rows of the estimates, float32[K]."""
    counters = no_counts(truth.n_labels)
    thresholds = thresholds_of(counters, start, bounds)
    count_rows(estimates, truth, bounds, start, counters, thresholds)
    return thresholds


def count_rows(
    estimates: Estimates,
    truth: LabelRows,
    bounds: F32,
    start: Start,
    counters: Counters,
    thresholds: F32,
) -> None:
    """Let OFO go on over further rows: counters and thresholds,
    those of the rows before, are changed.
    """
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
    estimates: tuple[I64, I32, F32],
    truth: tuple[I64, I32],
    last_row: I64,
    bounds: F32,
    start: tuple[float, float, float, float],
    counters: tuple[I64, I64],
    thresholds: F32,
) -> None:
    """Do algorithm 2's lines 3 to 8 on estimates; counters and thresholds are changed."""
    ptr, labels, scores = estimates
    true_ptr, true_labels = truth
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
                    thresholds[label] = threshold_at(
                        hits[label], marks[label], start, bounds[label]
                    )
        for i in range(true_ptr[row], true_ptr[row + 1]):
            label = true_labels[i]
            thresholds[label] = threshold_at(hits[label], marks[label], start, bounds[label])


C_GRID = (100, 50, 20, 10, 7, 5, 4, 3, 2)
"""The paper's values of c, 1 / kappa, from the lowest kappa on."""


def choose_kappa(
    estimates: Estimates,
    truth: LabelRows,
    bounds: F32,
    find: Callable[[Estimates, LabelRows, F32], F32],
    empty: EmptyConvention,
    seed: int = 0,
) -> float:
    """Return the kappa of the grid whose thresholds, found on one half
    of the rows, do best on the other.

    That is by macro-F, both ways round.

    bounds  float32[K], probabilities: nu_j, and none below the floor of the estimates
    find    the method: thresholds, float32[K], of estimates, their true labels, and such bounds

    Rows are halved by chance, the same for the same seed, and each half is measured on once. Of
    equals, the lowest. Cost: the method twice for each value of the grid, on half of the estimates.
    """
    n_rows = len(estimates.ptr) - 1
    is_first = np.random.default_rng(seed).permutation(n_rows) % 2 == 0
    halves = []
    for chosen in map(np.flatnonzero, (is_first, ~is_first)):
        rows = SparseRows(*estimates[:3], truth.n_labels).take(chosen)
        halves.append((Estimates(*rows[:3], estimates.floor), truth.take(chosen)))
    best = 1 / C_GRID[0]
    best_f = -1.0
    for c in C_GRID:
        at_least = np.maximum(bounds, np.float32(1 / c))
        f = 0.0
        for found_on, measured_on in (halves, halves[::-1]):
            f += 100.0 * count_at(*measured_on, find(*found_on, at_least)).macro_f(empty)
        if f > best_f:
            best = 1 / c
            best_f = f
    return best
