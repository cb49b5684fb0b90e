"""Events of feedback counted in place, with a journal of what they did, so that it can be kept or undone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.jit import kernel
from service.thresholds.ofo import lower_bound_at, threshold_at

COUNT_MAX = (1 << 31) - 3
"""A label whose marks are this many is not counted any further: counters in memory are int32."""


@kernel
def count_event(
    hits: NDArray[np.int32],
    marks: NDArray[np.int32],
    thresholds: NDArray[np.float32],
    a: float,
    b: float,
    power: float,
    label_counts: NDArray[np.int64],
    n_rows: int,
    true_labels: NDArray[np.int32],
    predicted_labels: NDArray[np.int32],
    begin: int,
    counts_out: NDArray[np.int32],
    before_out: NDArray[np.float32],
) -> int:
    """Count one row: plt-fmeasure.txt, algorithm 2, lines 5 to 8; return where the journal ends then.

    hits, marks             int32[K], changed
    thresholds              float32[K], changed: those of the touched labels, which are scores
    a, b, power             the fields of ofo.Start
    label_counts, n_rows    as `ofo.lower_bounds` takes them; label_counts is int64[0] where nobody counted.
                            Lower bounds are computed when needed: an array of them would be K floats more
    true_labels, predicted_labels  int32[..], ascending, without repeats, in [0, K); predicted under the
                            thresholds that hold before the event
    begin                   where the journal ends now, with room after it for both lengths together
    counts_out, before_out  int32[3, ..], float32[..], the journal: from `begin` on the touched labels,
                            ascending, what was added to their hits and marks, and their thresholds before

    Cost: O(true + predicted). Deterministic; the counters do not depend on the order of events.
    """
    end = begin
    i, j = 0, 0
    while i < len(true_labels) or j < len(predicted_labels):
        is_true = j == len(predicted_labels) or (
            i < len(true_labels) and true_labels[i] <= predicted_labels[j]
        )
        label = true_labels[i] if is_true else predicted_labels[j]
        is_predicted = j < len(predicted_labels) and predicted_labels[j] == label
        i += is_true
        j += is_predicted
        counts = marks[label] < COUNT_MAX
        counts_out[0, end] = label
        counts_out[1, end] = np.int32(counts and is_true and is_predicted)
        counts_out[2, end] = np.int32(counts and is_true) + np.int32(counts and is_predicted)
        before_out[end] = thresholds[label]
        hits[label] += counts_out[1, end]
        marks[label] += counts_out[2, end]
        bound = lower_bound_at(label, label_counts, n_rows)
        thresholds[label] = threshold_at(hits[label], marks[label], a, b, power, bound)
        end += 1
    return end


@kernel
def undo_events(
    hits: NDArray[np.int32],
    marks: NDArray[np.int32],
    thresholds: NDArray[np.float32],
    counts: NDArray[np.int32],
    before: NDArray[np.float32],
    end: int,
) -> None:
    """Take back what the journal says up to `end`, the last first; the journal as `count_event` leaves it."""
    for i in range(end - 1, -1, -1):
        label = counts[0, i]
        hits[label] -= counts[1, i]
        marks[label] -= counts[2, i]
        thresholds[label] = before[i]
