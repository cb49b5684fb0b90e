"""One event of feedback counted in place: the counters and thresholds of the labels it touches."""

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
    labels_out: NDArray[np.int32],
    hits_out: NDArray[np.int32],
    marks_out: NDArray[np.int32],
    before_out: NDArray[np.float32],
) -> int:
    """Count one row as `ofo.apply_event` does, with the same bits; return how many labels were touched.

    hits, marks             int32[K], changed
    thresholds              float32[K], changed: those of the touched labels
    a, b, power             the fields of ofo.Start
    label_counts, n_rows    as `ofo.lower_bounds` takes them; label_counts is int64[0] where nobody counted.
                            Lower bounds are computed when needed: an array of them would be K floats more
    true_labels, predicted_labels  int32[..], ascending, without repeats, in [0, K)
    labels_out, hits_out, marks_out, before_out  at least both lengths together: the touched labels,
                            ascending, what was added to them, and their thresholds before

    Cost: O(true + predicted). Deterministic.
    """
    n_touched = 0
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
        labels_out[n_touched] = label
        hits_out[n_touched] = np.int32(counts and is_true and is_predicted)
        marks_out[n_touched] = np.int32(counts and is_true) + np.int32(counts and is_predicted)
        before_out[n_touched] = thresholds[label]
        hits[label] += hits_out[n_touched]
        marks[label] += marks_out[n_touched]
        bound = lower_bound_at(label, label_counts, n_rows)
        thresholds[label] = threshold_at(hits[label], marks[label], a, b, power, bound)
        n_touched += 1
    return n_touched
