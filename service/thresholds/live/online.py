"""Events of feedback counted in place, with a journal of what they did, so that it can be kept or undone.

A block of events is one call: predicted, counted, its thresholds moved, event by event, without the
interpreter between them. A kernel that hands the interpreter's lock back for microseconds at a time, as one
call an event did, starves the threads that wait for it: each finds it taken again when it has woken up.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from model_store.compiled.calls import caller
from model_store.compiled.decorators import inlined, kernel
from model_store.compiled.handles import write_struct
from service.kernels.search.calibrated import Knots
from service.kernels.search.query import Rows
from service.kernels.search.subtrees import Paths, move_thresholds
from service.thresholds.methods.ofo import lower_bound_at, threshold_at

SEARCHES: Any = types.none
"""What the kernel returns that searches a row."""

_search = caller(SEARCHES)

COUNT_MAX = (1 << 31) - 3
"""A label whose marks are this many is not counted any further: counters in memory are int32."""

Counted: TypeAlias = tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.float32],
    tuple[float, float, float],
    NDArray[np.int64],
    int,
]
"""hits, marks, thresholds, start, label_counts and n_rows, as `count_event` takes them."""

Journal: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float32]]
"""int32[3, ..], float32[..]: what events did. Of each touched label its id, what was added to its hits and
marks, and its threshold before."""

SearchFields: TypeAlias = tuple[
    int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], Paths, Knots
]
"""The fields of `threshold_update.RowSearch`."""


@kernel
def count_events(
    search: SearchFields,
    log_threshold: NDArray[np.float32],
    counters: Counted,
    columns: tuple[Any, ...],
    chosen: NDArray[np.int64],
    first: int,
    ends: NDArray[np.int64],
    journal: Journal,
    allowed: NDArray[np.uint8],
) -> int:
    """Count the events chosen[first:], one after the other; return how many of `chosen` are counted then.

    Fewer than all: the journal has no room for the next. Source: Jasinska et al. 2016, algorithm 2; the label
    thresholds move as in section 5.2.

    log_threshold  what the search's paths lead to, changed: what the search compares with
    counters       what `count_event` takes first
    columns        of `events.Events`: indptr, indices, values of the rows, indptr, indices of the labels and
                   of those predicted, epochs: one below 0 is predicted here
    ends           int64[chosen + 1]: the i-th event's entries of the journal begin at ends[i], which is known
                   up to `first`
    journal        of any length
    allowed        uint8[K], 0 for labels that are passed over, true or predicted; or empty: none is

    Cost: a prediction for each event with an instance; O(true + predicted) labels moved.
    """
    searching, call, rows, n_found, found, paths, knots = search
    indptr, indices, values, true_ptr, true_labels, predicted_ptr, predicted_labels, epochs = columns
    for k in range(first, len(chosen)):
        i = chosen[k]
        predicted = predicted_labels[predicted_ptr[i] : predicted_ptr[i + 1]]
        if epochs[i] < 0:
            write_struct(Rows, rows, (indptr[i : i + 2], indices, values))
            _search(searching, (call,))
            predicted = found[: n_found[0]]
            predicted.sort()
        true = true_labels[true_ptr[i] : true_ptr[i + 1]]
        begin = ends[k]
        if begin + len(true) + len(predicted) > len(journal[1]):
            return k
        end = count_event(counters, true, predicted, begin, journal, allowed)
        move_thresholds(*paths, knots, journal[0][0, begin:end], counters[2], log_threshold)
        ends[k + 1] = end
    return len(chosen)


@inlined
def count_event(
    counters: Counted,
    true_labels: NDArray[np.int32],
    predicted_labels: NDArray[np.int32],
    begin: int,
    journal: Journal,
    allowed: NDArray[np.uint8],
) -> int:
    """Count one row: Jasinska et al. 2016, algorithm 2, lines 5 to 8; return where the journal ends then.

    hits, marks             int32[K], changed
    thresholds              float32[K], changed: those of the touched labels, which are scores
    start                   the fields of ofo.Start
    label_counts, n_rows    as `ofo.lower_bounds` takes them; label_counts is int64[0] where nobody counted.
                            Lower bounds are computed when needed: an array of them would be K floats more
    true_labels, predicted_labels  int32[..], ascending, without repeats, in [0, K); predicted under the
                            thresholds that hold before the event
    begin                   where the journal ends now, with room after it for both lengths together
    journal                 from `begin` on the touched labels, ascending
    allowed                 as `count_events` takes it

    Cost: O(true + predicted). Deterministic; the counters do not depend on the order of events.
    """
    hits, marks, thresholds, (a, b, power), label_counts, n_rows = counters
    counts_out, before_out = journal
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
        if len(allowed) > 0 and allowed[label] == 0:
            continue
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
