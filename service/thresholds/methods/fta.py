"""FTA: thresholds out of a fixed grid, one for all labels or one a label.

Source: Jasinska et al. 2016 section 4.2; the grid is the paper's list of 1 / c. Deviations: a label with
fewer than SUPPORT true rows takes the threshold that is best for all (the paper tunes it as well, on a
handful of rows: on three data sets that lost 0.1 to 1.6 macro-F); of equally good values a label takes the
one nearest to that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.base.rows import LabelRows
from service.evaluation.fmeasure import EmptyConvention, f_scores
from service.thresholds.methods.estimates import Estimates, mark_hits

GRID = tuple(1.0 / c for c in (10000, 1000, 200, 100, 50, 20, 10, 7, 5, 4, 3, 2))
"""The probabilities that are tried, ascending: the paper's list."""

SUPPORT = 5
"""A label with fewer true rows does not get a threshold of its own."""


class GridCounts(NamedTuple):
    """What every label would count at every value of the grid, int64[G, K] each."""

    hits: NDArray[np.int64]
    marks: NDArray[np.int64]


def fta(
    estimates: Estimates, truth: LabelRows, bounds: NDArray[np.float32], power: float, empty: EmptyConvention
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return (a threshold for each label, the best one for all), float32[K] each: scores.

    bounds  float32[K]: kappa_j, a probability under which no label's threshold is; so the one threshold for
            all is max(t, kappa_j)
    power   how scores are read

    Cost: one pass over the estimates, 16 bytes a label and value of the grid. Deterministic.
    """
    grid = np.maximum(np.array(GRID)[:, None], bounds).astype(np.float64)
    scores = (grid ** (1.0 / power)).astype(np.float32)
    counts = _count(estimates, truth, scores)
    f = f_scores(np.stack(counts, axis=-1).reshape(-1, 2), empty).reshape(counts.hits.shape)
    best = len(GRID) - 1 - int(np.argmax(f.mean(axis=1)[::-1]))
    far = np.abs(np.arange(len(GRID)) - best)[:, None]
    order = np.lexsort((-np.arange(len(GRID)), far[:, 0]))
    own = order[np.argmax(f[order], axis=0)]
    n_true = np.bincount(truth.indices, minlength=truth.n_labels)
    chosen = np.where(n_true >= SUPPORT, own, best)
    return scores[chosen, np.arange(truth.n_labels)], scores[best]


def _count(estimates: Estimates, truth: LabelRows, scores: NDArray[np.float32]) -> GridCounts:
    """Return the counts at every value of the grid: `scores`, float32[G, K], ascending for each label."""
    counts = GridCounts(*np.zeros((2, *scores.shape), np.int64))
    _count_last(estimates.labels, estimates.scores, mark_hits(estimates, truth), scores, *counts)
    for values in counts:
        values[:] = np.cumsum(values[::-1], axis=0)[::-1]
    counts.marks[:] += np.bincount(truth.indices, minlength=truth.n_labels)
    return counts


@kernel
def _count_last(
    labels: NDArray[np.int32],
    estimates: NDArray[np.float32],
    is_hit: NDArray[np.uint8],
    scores: NDArray[np.float32],
    hits_out: NDArray[np.int64],
    marks_out: NDArray[np.int64],
) -> None:
    """Count each estimate at the highest value of the grid that it reaches."""
    for i in range(len(labels)):
        label = labels[i]
        at = len(scores)
        while at > 0 and estimates[i] < scores[at - 1, label]:
            at -= 1
        if at > 0:
            hits_out[at - 1, label] += is_hit[i]
            marks_out[at - 1, label] += 1
