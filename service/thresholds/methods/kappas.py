"""Which kappa a method should have: that whose thresholds do best on rows that they were not found on.

Source: Jasinska et al. 2016 section 6.2: kappa_j = max(1 / c, nu_j), c validated over a list. Here kappa_j is
never below 0.01 (`ofo.LEAST`), so the list's values of c above 100 are left out: they say the same as 100.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.base.rows import LabelRows, offsets
from service.evaluation.fmeasure import EmptyConvention
from service.thresholds.methods.estimates import Estimates, count_at, macro_f

C_GRID = (100, 50, 20, 10, 7, 5, 4, 3, 2)
"""The paper's values of c, 1 / kappa, from the lowest kappa on."""

FindThresholds: TypeAlias = Callable[[Estimates, LabelRows, NDArray[np.float32]], NDArray[np.float32]]
"""Return a method's thresholds, float32[K], of estimates, their true labels, and bounds of probabilities."""


def choose_kappa(
    estimates: Estimates,
    truth: LabelRows,
    bounds: NDArray[np.float32],
    find: FindThresholds,
    empty: EmptyConvention,
    seed: int = 0,
) -> float:
    """Return the kappa of the grid whose thresholds, found on one half of the rows, do best on the other.

    That is by macro-F, both ways round.

    bounds  float32[K], probabilities: nu_j, and none below the floor of the estimates
    find    the method

    Rows are halved by chance, the same for the same seed, and each half is measured on once. Of equals, the
    lowest. Cost: the method twice for each value of the grid, on half of the estimates.
    """
    n_rows = len(estimates.ptr) - 1
    is_first = np.random.default_rng(seed).permutation(n_rows) % 2 == 0
    halves = [_some_rows(estimates, truth, chosen) for chosen in (is_first, ~is_first)]
    best, best_f = 1 / C_GRID[0], -1.0
    for c in C_GRID:
        at_least = np.maximum(bounds, np.float32(1 / c))
        f = 0.0
        for found_on, measured_on in (halves, halves[::-1]):
            f += macro_f(count_at(*measured_on, find(*found_on, at_least)), empty)
        if f > best_f:
            best, best_f = 1 / c, f
    return best


def _some_rows(
    estimates: Estimates, truth: LabelRows, chosen: NDArray[np.bool_]
) -> tuple[Estimates, LabelRows]:
    """Return the estimates and the true labels of some rows, bool[rows]."""
    ptr, labels, scores = _chosen(chosen, estimates.ptr, estimates.labels, estimates.scores)
    indptr, indices = _chosen(chosen, truth.indptr, truth.indices)
    return Estimates(ptr, labels, scores, estimates.floor), LabelRows(indptr, indices, truth.n_labels)


def _chosen(
    chosen: NDArray[np.bool_], ptr: NDArray[np.int64], *values: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    """Return offsets and values of the chosen rows, of rows values[ptr[i] : ptr[i + 1]]."""
    sizes = np.diff(ptr)
    stays = np.repeat(chosen, sizes)
    return offsets(sizes[chosen]), *(array[stays] for array in values)
