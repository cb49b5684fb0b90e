"""Choose the start values of OFO, and kappa for the other methods, on validation rows.

Source: Jasinska et al. 2016 section 6.2 (a is 1, b is from a list C that ends at 10,000) and
appendix D (a is from C as well, a / b in (nu_j, 0.5]). Deviations:
* b is a times a number from C, not a number from C itself. Eight of the twelve pairs of table 4 are
  of this form, and four of them (such as 10,000 and 100,000) are not pairs from C. If b were from
  C, no a above 1,000 would leave room for a b of at least 2 a.
* b / a is at most 100: a first threshold below 0.01 is raised to 0.01 anyway (`ofo.LEAST`), and
  appendix D has the same bound where nu_j is 0.01. So section 6.2's a = 1 with b above 100 is left
  out; measured, it was never best.
* No a above 100 is larger than the number of validation rows: it would hold a label's threshold at
  its start, against all these rows and against as much feedback after them.
Kappa (section 6.2): kappa_j = max(1 / c, nu_j), with c validated over a list. Here kappa_j is never
below 0.01 (`ofo.LEAST`), so the list's values of c above 100 are left out: they mean the same as
100.
"""

from collections.abc import Callable

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem.evaluation import EmptyConvention
from xylem.thresholds.methods.estimates import Estimates, count_at
from xylem.thresholds.methods.ofo import Counters, Start, no_counts, threshold_at, thresholds_of
from xylem_store import F32, I32, I64, kernel

# The values of a: those of section 6.2, which are the paper's list C.
#
# The larger a is, the less one row moves a threshold.
A_GRID = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0, 200.0, 1000.0, 10000.0)

A_ALWAYS = 100.0  # every a up to here is tried; a larger a needs at least a rows
# The values of b / a, from C as well. Its inverse is the probability of the first threshold.
RATIO_GRID = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0)


def choose_start(
    estimates: Estimates, truth: LabelRows, bounds: F32, reading: Start, empty: EmptyConvention
) -> Start:
    """Return the start values from the grid with the best macro-F after all validation rows.

    bounds  float32[K], as ofo.lower_bounds returns it, and none below the floor of the estimates
    reading  how scores are read as probabilities: its power and scale

    OFO is replayed on the estimates, so the model predicts only once. Among equally good values the
    first in the grid is chosen. Cost: a pass over the estimates for each pair of the grid, 117 at
    most. Deterministic.
    """

    def macro_f(start: Start) -> float:
        thresholds = replay(estimates, truth, bounds, start)
        return 100.0 * count_at(estimates, truth, thresholds).macro_f(empty)

    return max(
        [
            reading._replace(a=a, b=a * ratio)
            for a in A_GRID
            if a <= max(A_ALWAYS, len(estimates.ptr) - 1)
            for ratio in RATIO_GRID
        ],
        key=macro_f,
    )


def replay(estimates: Estimates, truth: LabelRows, bounds: F32, start: Start) -> F32:
    """Return the thresholds of OFO after the rows of the estimates, float32[K]."""
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
    """Continue OFO over further rows; `counters` and `thresholds` are updated in place."""
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
    """Run lines 3 to 8 of algorithm 2 on estimates; update counters and thresholds in place."""
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


# The paper's values of c = 1 / kappa, from the lowest kappa to the highest.
C_GRID = (100, 50, 20, 10, 7, 5, 4, 3, 2)


def choose_kappa(
    estimates: Estimates,
    truth: LabelRows,
    bounds: F32,
    find: Callable[[Estimates, LabelRows, F32], F32],
    empty: EmptyConvention,
    seed: int = 0,
) -> float:
    """Return the kappa of the grid with the best macro-F on rows it was not tuned on.

    Rows are divided into halves at random, the same for the same seed. Thresholds are found on one
    half and measured on the other, then the other way round.

    bounds  float32[K], probabilities: nu_j, and none below the floor of the estimates
    find    the method: takes estimates, their true labels and bounds such as these; returns
            thresholds, float32[K]

    Among equally good values the lowest is chosen. Cost: the method runs twice for each value of
    the grid, on half of the estimates.
    """
    is_first = np.random.default_rng(seed).permutation(len(estimates.ptr) - 1) % 2 == 0
    rows = SparseRows(*estimates[:3], truth.n_labels)
    halves = [
        (Estimates(*rows.take(chosen)[:3], estimates.floor), truth.take(chosen))
        for chosen in map(np.flatnonzero, (is_first, ~is_first))
    ]

    def macro_f(c: int) -> float:
        raised_bounds = np.maximum(bounds, np.float32(1 / c))
        return sum(
            100.0 * count_at(*test_half, find(*tuning_half, raised_bounds)).macro_f(empty)
            for tuning_half, test_half in (halves, halves[::-1])
        )

    return 1 / max(C_GRID, key=macro_f)
