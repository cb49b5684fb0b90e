"""FTA and STO: thresholds from a fixed grid, and thresholds from all possible cuts.

FTA chooses one threshold for all labels, or one for each label, from a fixed grid.
Source: Jasinska et al. 2016 section 4.2; the grid is the paper's list of 1 / c. Deviations: a label
with fewer than SUPPORT true rows takes the threshold that is best for all labels (the paper tunes
it as well, on a handful of rows: on three data sets that lost 0.1 to 1.6 macro-F); among equally
good values a label takes the one nearest to that threshold.

STO (section 4.1, algorithm 1) gives each label the threshold with the best F among all that make a
difference. The paper takes an estimate as the threshold; here the threshold lies between two
estimates (at their geometric mean), so that rounding decides nothing. Among equally good cuts a
label takes the one nearest to the best threshold for all labels, or that threshold itself if it is
one of them. So a label without true rows, or without estimates, takes that threshold.
"""

import numpy as np

from xylem.base import LabelRows, offsets
from xylem.evaluation import EmptyConvention, f_scores
from xylem.thresholds.methods.estimates import Estimates, mark_hits
from xylem.thresholds.methods.ofo import Counters, Start
from xylem_store import F32, I32, I64, U8, inlined, kernel

# The probabilities that are tried, ascending: the paper's list.
GRID = tuple(1.0 / c for c in (10000, 1000, 200, 100, 50, 20, 10, 7, 5, 4, 3, 2))

SUPPORT = 5  # a label with fewer true rows does not get a threshold of its own


def fta(
    estimates: Estimates, truth: LabelRows, bounds: F32, reading: Start, empty: EmptyConvention
) -> tuple[F32, F32]:
    """Return (a threshold for each label, the best one for all labels), float32[K] each: scores.

    bounds  float32[K]: kappa_j, the least probability of a threshold of the label; so the one
            threshold t for all labels is max(t, kappa_j)
    reading  how scores are read as probabilities: its power and scale

    Cost: one pass over the estimates, 16 bytes a label and value of the grid. Deterministic.
    """
    scores = reading.score_of(np.maximum(np.array(GRID)[:, None], bounds).astype(np.float64))
    counts = Counters(*np.zeros((2, *scores.shape), np.int64))
    _count_last(estimates.labels, estimates.scores, mark_hits(estimates, truth), scores, *counts)
    for values in counts:  # int64[G, K]: an estimate that reaches a value reaches all lower ones
        values[:] = np.cumsum(values[::-1], axis=0)[::-1]
    n_true = np.bincount(truth.indices, minlength=truth.n_labels)
    counts.marks[:] += n_true
    f = f_scores(np.stack(counts, axis=-1).reshape(-1, 2), empty).reshape(counts.hits.shape)
    best = len(GRID) - 1 - int(np.argmax(f.mean(axis=1)[::-1]))
    places = np.arange(len(GRID))
    order = np.lexsort((-places, np.abs(places - best)))
    chosen = np.where(n_true >= SUPPORT, order[np.argmax(f[order], axis=0)], best)
    return scores[chosen, np.arange(truth.n_labels)], scores[best]


@kernel
def _count_last(
    labels: I32, estimates: F32, is_hit: U8, scores: F32, hits_out: I64, marks_out: I64
) -> None:
    """Count each estimate once, at the highest value of the grid that it reaches."""
    for i in range(len(labels)):
        label = labels[i]
        n_reached = len(scores)
        while n_reached > 0 and estimates[i] < scores[n_reached - 1, label]:
            n_reached -= 1
        if n_reached > 0:
            hits_out[n_reached - 1, label] += is_hit[i]
            marks_out[n_reached - 1, label] += 1


def sto(
    estimates: Estimates,
    truth: LabelRows,
    floor: F32,
    common_threshold: F32,
    empty: EmptyConvention,
) -> F32:
    """Return each label's threshold, float32[K]: a score from its floor to 1.

    floor             float32[K], at least estimates.floor: the score of kappa_j, the least
                      threshold
    common_threshold  float32[K], at least the floor: the preferred threshold among equally good
                      cuts

    Cost: sorts the n estimates of each label, O(n log n). Deterministic.
    """
    order = np.argsort(estimates.labels, kind="stable")
    ptr = offsets(np.bincount(estimates.labels, minlength=truth.n_labels))
    n_true = np.bincount(truth.indices, minlength=truth.n_labels)
    thresholds = np.empty(truth.n_labels, np.float32)
    _best_cuts(
        ptr,
        estimates.scores[order],
        mark_hits(estimates, truth)[order],
        n_true,
        floor,
        common_threshold,
        1.0 if empty == "one" else 0.0,
        thresholds,
    )
    return thresholds


@kernel
def _best_cuts(
    ptr: I64,
    scores: F32,
    hits: U8,
    n_true: I64,
    floor: F32,
    common_threshold: F32,
    empty: float,
    thresholds_out: F32,
) -> None:
    """Set the threshold of each label; the scores of label j are scores[ptr[j] : ptr[j + 1]]."""
    for label in range(len(thresholds_out)):
        label_scores = scores[ptr[label] : ptr[label + 1]]
        label_hits = hits[ptr[label] : ptr[label + 1]]
        order = np.argsort(label_scores)[::-1]
        best_f = -1.0
        best_gap = np.inf
        n_hits = 0
        for n in range(len(label_scores) + 1):  # predict the n highest
            if n > 0:
                n_hits += label_hits[order[n - 1]]
            high = label_scores[order[n - 1]] if n > 0 else np.float32(1.0)
            low = label_scores[order[n]] if n < len(label_scores) else floor[label]
            if high < floor[label]:
                break
            low = max(low, floor[label])
            if n < len(label_scores) and label_scores[order[n]] >= high:
                continue
            n_marks = n + n_true[label]
            f = 2.0 * n_hits / n_marks if n_marks > 0 else empty
            is_floor = n == len(label_scores) or label_scores[order[n]] < low
            threshold = _between(low, is_floor, high, common_threshold[label])
            gap = abs(np.log(threshold / common_threshold[label]))
            if f > best_f or (f == best_f and gap < best_gap):
                best_f = f
                best_gap = gap
                thresholds_out[label] = threshold


@inlined
def _between(
    low: np.float32, is_floor: bool, high: np.float32, preferred: np.float32
) -> np.float32:
    """Return a threshold that `high` reaches and `low` does not: `preferred`, or else the middle.

    If `low` is the floor, and not an estimate, it may be the threshold itself.
    """
    if preferred <= high and (low < preferred or (is_floor and low == preferred)):
        return preferred
    middle = np.float32(np.sqrt(np.float64(low) * np.float64(high)))
    return middle if middle > low else high
