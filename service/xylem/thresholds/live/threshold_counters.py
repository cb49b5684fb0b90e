"""Thresholds that events move in place, and the counters they are computed from: OFO, algorithm 2.

A block of events is one call of a kernel, which does not need the interpreter. Event by event the
kernel predicts, counts, moves the thresholds of the event's labels, and writes the changes into a
journal. One call for each event would release and take back the interpreter's lock every few
microseconds, which starves the threads that wait for it.
"""

from typing import Any, TypeAlias

import numpy as np
from numba import types

from xylem.engine import Knots, NodeThresholds, Paths, Rows, move_thresholds
from xylem.thresholds.live.events import Events
from xylem.thresholds.methods.aims import MACRO, KernelAim, decide
from xylem.thresholds.methods.ofo import LEAST, Counters, lower_bound_at, threshold_at
from xylem.thresholds.store.codec import Deltas, Tuned
from xylem_store import F32, I32, I64, U8, caller, inlined, kernel, write_struct

# An `allowed` that excludes no label from counting.
ALL_COUNT = np.empty(0, np.uint8)


# The return type of the kernel that searches a row.
SEARCHES: Any = types.none

_search = caller(SEARCHES)

# The number of marks at which a label is not counted any further: counters in memory are int32.
COUNT_MAX = (1 << 31) - 3

# The counters of a version, as kernels take them.
#
# hits and marks, int32[K]; thresholds, float32[K]; the fields of ofo.Start; label_counts and n_rows
# as `ofo.lower_bounds` takes them, but label_counts is int64[0] if not counted.
Counted: TypeAlias = tuple[I32, I32, F32, tuple[float, float, float, float], I64, int]

# The changes by events, as int32[3, ..] and float32[..].
#
# For each label that was touched: its id, what was added to its hits and to its marks; and its
# threshold before.
Journal: TypeAlias = tuple[I32, F32]

# The fields of `threshold_update.RowSearch`.
SearchFields: TypeAlias = tuple[int, I64, I64, I64, I32, F32, Paths, Knots]


@kernel
def count_events(
    search: SearchFields,
    log_threshold: F32,
    counters: Counted,
    columns: tuple[Any, ...],
    chosen: I64,
    first: int,
    ends: I64,
    journal: Journal,
    allowed: U8,
    aim: KernelAim,
) -> int:
    """Count the events chosen[first:], one after another; return how many of `chosen` are counted.

    Not all are counted if the journal has no room for the next event. Source: Jasinska et al. 2016,
    algorithm 2; the label thresholds move as in section 5.2.

    log_threshold  float32 for each node, moved with the thresholds: what the search compares with
                   if each label has a threshold
    columns        of `Events`: indptr, indices, values of the rows, indptr, indices of the labels
                   and of the predicted labels, epochs: an event with an epoch below 0 is predicted
                   here
    ends           int64[chosen + 1]: the i-th event's entries in the journal begin at ends[i];
                   known up to `first`
    journal        of any length
    allowed        uint8[K], 0 for labels that are not counted, true or predicted; empty: all are
    aim            if it is not macro, the search is for all labels that any common threshold could
                   predict, and `decide` says how many of these are predicted

    Cost: a prediction for each event with an instance; O(true + predicted) labels moved.
    """
    searching, call, rows, n_search_labels, search_labels, search_scores, paths, knots = search
    objective, _, _, pooled, _ = aim
    start = counters[3]
    indptr, indices, values, true_ptr, true_labels, predicted_ptr, predicted_labels, epochs = (
        columns
    )
    for k in range(first, len(chosen)):
        i = chosen[k]
        predicted = predicted_labels[predicted_ptr[i] : predicted_ptr[i + 1]]
        if epochs[i] < 0:
            write_struct(Rows, rows, (indptr[i : i + 2], indices, values))
            _search(searching, (call,))
            predicted = search_labels[: n_search_labels[0]]
        true = true_labels[true_ptr[i] : true_ptr[i + 1]]
        begin = ends[k]
        if begin + len(true) + len(predicted) > len(journal[1]):
            return k
        if epochs[i] < 0:
            if objective != MACRO:
                predicted = predicted[: decide(predicted, search_scores, true, allowed, start, aim)]
            predicted.sort()
        end = count_event(counters, true, predicted, begin, journal, allowed)
        move_thresholds(*paths, knots, journal[0][0, begin:end], counters[2], log_threshold)
        for counts in range(2):
            pooled[counts] += journal[0][1 + counts, begin:end].sum()
        ends[k + 1] = end
    return len(chosen)


@inlined
def count_event(
    counters: Counted,
    true_labels: I32,
    predicted_labels: I32,
    begin: int,
    journal: Journal,
    allowed: U8,
) -> int:
    """Count one event; return where the journal ends afterwards.

    Source: Jasinska et al. 2016, algorithm 2, lines 5 to 8.

    counters                its hits, marks, and the thresholds (which are scores) of the touched
                            labels are changed. Lower bounds are computed when needed: an array of
                            them would take K floats more
    true_labels             int32[..], ascending, without repeats, in [0, K)
    predicted_labels        the same, predicted under the thresholds before the event
    begin                   where the journal ends now; it must have room for both lengths together
    journal                 gets the touched labels from `begin` on, ascending
    allowed                 as `count_events` takes it

    Cost: O(true + predicted). Deterministic; the counters do not depend on the order of events.
    """
    hits, marks, thresholds, start, label_counts, n_rows = counters
    counts_out, previous_out = journal
    end = begin
    i = 0
    j = 0
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
        counted = marks[label] < COUNT_MAX
        counts_out[0, end] = label
        counts_out[1, end] = np.int32(counted and is_true and is_predicted)
        counts_out[2, end] = np.int32(counted and is_true) + np.int32(counted and is_predicted)
        previous_out[end] = thresholds[label]
        hits[label] += counts_out[1, end]
        marks[label] += counts_out[2, end]
        bound = lower_bound_at(label, label_counts, n_rows)
        thresholds[label] = threshold_at(hits[label], marks[label], start, bound)
        end += 1
    return end


@kernel
def undo_events(
    hits: I32, marks: I32, thresholds: F32, counts: I32, previous_thresholds: F32, end: int
) -> None:
    """Undo the changes in the journal up to `end`, the last first.

    counts, previous_thresholds   the journal as `count_event` writes it
    """
    for i in range(end - 1, -1, -1):
        label = counts[0, i]
        hits[label] -= counts[1, i]
        marks[label] -= counts[2, i]
        thresholds[label] = previous_thresholds[i]


_COUNT_TYPE_MAX = np.iinfo(np.int32).max
_JOURNAL_MIN = 256


class ThresholdCounters:
    """The thresholds of a version and their counters, in memory, with a journal of changes.

    With a common threshold each label's threshold is moved too, but nobody predicts under it.
    `thresholds` and `prepared` are then new arrays after each block that moves the common one.
    That takes O(nodes).

    Counters are int32[K] and thresholds float32[K]: 12 bytes a label, and 4 a node once prepared.
    Changes are in the journal until `keep` or `undo`. Not thread-safe, except for reading
    `prepared` and `thresholds`, see `xylem.thresholds.live.served`.

    tuned                  the state to begin with; its thresholds are used without a copy, and
                           changed
    traversal              predicts under thresholds: an `inference.searcher.Searcher`, of the same
                           floor
    label_counts, n_rows   as `ofo.lower_bounds` takes them; int64[0] if not counted
    """

    def __init__(self, tuned: Tuned, traversal: Any, label_counts: I64, n_rows: int) -> None:
        self.method = tuned.method
        self.convention = tuned.convention
        self.start = tuned.start
        self.aim = tuned.aim._replace(sums=tuned.aim.sums.copy())
        self.thresholds: F32 = tuned.thresholds
        self._hits, self._marks = (
            np.minimum(c, _COUNT_TYPE_MAX).astype(np.int32) for c in tuned.counters
        )
        self._traversal = traversal
        self._label_counts = label_counts.view()
        # read-only, as a model's array is: kernels would be compiled again for a writable one
        self._label_counts.flags.writeable = False
        self._n_rows = n_rows
        self.prepared: NodeThresholds = traversal.node_thresholds(tuned.thresholds)
        self._label_thresholds = self.thresholds, self.prepared
        self._counts = np.empty((3, _JOURNAL_MIN), np.int32)
        self._previous_thresholds = np.empty(_JOURNAL_MIN, np.float32)
        # How many entries the journal has: one for each label of each event.
        self.journal_end = 0
        # Where the journal ended when counters were first halved; hits and marks just before.
        self._halved: tuple[int, I32, I32] | None = None
        # The sums at the last `keep`, and at the last call of `deltas` or `halve`.
        self._durable_sums = self._logged_sums = self.aim.sums.copy()
        self._settle()

    def count(self, events: Events, chosen: I64, allowed: U8 = ALL_COUNT) -> I64:
        """Count the chosen events, one after another. In memory only.

        These are lines 4 to 8 of OFO's algorithm 2: an event with an instance is predicted under
        the thresholds of that moment; then the thresholds of its labels move.

        allowed  uint8[K], 0 for labels that are not counted: those that an alias denies

        Returns int64[chosen + 1]: where the journal ends before each event, and after the last.
        """
        ends = np.full(len(chosen) + 1, self.journal_end)
        rows = self._traversal.rows_to_search(events.rows, chosen)
        longest = int((rows.indptr[chosen + 1] - rows.indptr[chosen]).max(initial=0))
        # floats, even if they are given as integers: a kernel is compiled for each type
        a, b, power, scale = map(float, self.start)
        thresholds, nodes = self._label_thresholds
        counters = (
            self._hits,
            self._marks,
            thresholds,
            (a, b, power, scale),
            self._label_counts,
            self._n_rows,
        )
        aim = self.aim.for_kernel((self._hits, self._marks), self.start, self.convention)
        search_threshold: float | NodeThresholds = nodes
        mask = None
        if self.aim.objective != "macro":
            search_threshold = float(self.start.score_of(np.array(LEAST)))
            mask = self._traversal.label_mask(allowed) if len(allowed) else None
        columns = *rows[:3], *events.labels[:2], *events.predicted[:2], events.epochs
        n_counted = 0
        try:
            with self._traversal.row_search(search_threshold, longest, mask) as search:
                while True:
                    journal = self._counts, self._previous_thresholds
                    arguments = counters, columns, chosen, n_counted, ends, journal, allowed, aim
                    n_counted = count_events(search[:], nodes, *arguments)
                    if n_counted == len(chosen):
                        return ends
                    self._make_room()
        finally:
            self.journal_end = int(ends.max())
            self._settle()

    def halve(self) -> None:
        """Halve all counters, rounding down; a label's threshold follows at its next event."""
        self._halved = self._halved or (self.journal_end, self._hits.copy(), self._marks.copy())
        for counts in (self._hits, self._marks, self.aim.sums):
            counts >>= 1
        self._logged_sums = self.aim.sums.copy()
        self._settle()

    def deltas(self, begin: int = 0) -> Deltas:
        """Return the changes in the journal from `begin` on.

        They have the present thresholds of the labels, and what was added to the sums since the
        last call.
        """
        sums = self.aim.sums - self._logged_sums
        self._logged_sums = self.aim.sums.copy()
        labels, hits, marks = self._counts[:, begin : self.journal_end].copy()
        if (labels[1:] > labels[:-1]).all():  # no label occurs twice: nothing to add up
            return Deltas(labels, hits, marks, self.thresholds[labels], sums)
        return self.deltas_of(np.arange(begin, self.journal_end))._replace(sums=sums)

    def deltas_of(self, entries: I64) -> Deltas:
        """Return the changes in some entries of the journal, added up for each label; no sums.

        They have the present thresholds of the labels.
        """
        ordered = self._counts[:, entries[self._counts[0, entries].argsort()]]
        labels = ordered[0]
        is_first = np.ones(len(labels), np.bool_)
        np.not_equal(labels[1:], labels[:-1], out=is_first[1:])
        first = is_first.nonzero()[0]
        hits, marks = np.add.reduceat(ordered[1:], first, axis=1) if len(first) else ordered[1:]
        return Deltas(labels[first], hits, marks, self.thresholds[labels[first]])

    def keep(self) -> None:
        """Empty the journal: its changes are final."""
        self.journal_end = 0
        self._halved = None
        self._durable_sums = self._logged_sums = self.aim.sums.copy()

    def undo(self) -> None:
        """Undo all changes in the journal."""
        if self._halved:
            end, self._hits, self._marks = self._halved
            last = self._counts[:, end : self.journal_end]
            last[1:] = 0  # the restored copy does not have these counts; only thresholds go back
        undo_events(
            self._hits,
            self._marks,
            self._label_thresholds[0],
            self._counts,
            self._previous_thresholds,
            self.journal_end,
        )
        self._move_nodes(np.unique(self._counts[0, : self.journal_end]))
        self.aim.sums[:] = self._durable_sums
        self._settle()
        self.keep()

    def apply(self, deltas: Deltas) -> None:
        """Apply the changes of another replica's feedback; they do not enter the journal."""
        self._hits[deltas.labels] += deltas.hits
        self._marks[deltas.labels] += deltas.marks
        self._label_thresholds[0][deltas.labels] = deltas.thresholds
        self._move_nodes(deltas.labels)
        self.aim.sums[:] += deltas.sums
        self._durable_sums = self._logged_sums = self.aim.sums.copy()
        self._settle()

    def snapshot(self) -> Tuned:
        """Return a copy of the state."""
        return Tuned(
            method=self.method,
            convention=self.convention,
            start=self.start,
            thresholds=self.thresholds.copy(),
            counters=Counters(self._hits.astype(np.int64), self._marks.astype(np.int64)),
            aim=self.aim._replace(sums=self.aim.sums.copy()),
        )

    def macro_f(self) -> float:
        """Return the mean of 2 hits / marks over the labels with marks, from 0 to 1.

        It is 0 if no label has marks.
        """
        used = np.flatnonzero(self._marks)
        return float((2.0 * self._hits[used] / self._marks[used]).mean()) if len(used) else 0.0

    def _move_nodes(self, labels: I32) -> None:
        thresholds, nodes = self._label_thresholds
        self._traversal.move_thresholds(nodes, labels, thresholds)

    def _settle(self) -> None:
        """Put the common threshold and the limit in force that the counts give; none for macro."""
        if self.aim.objective == "macro":
            return
        threshold, limit = self.aim.common_threshold((self._hits, self._marks), self.start)
        self.aim = self.aim._replace(limit=limit)
        if self.thresholds is self._label_thresholds[0] or self.thresholds[0] != threshold:
            self.thresholds = np.full(len(self._hits), threshold)
            self.prepared = self._traversal.node_thresholds(self.thresholds)

    def _make_room(self) -> None:
        self._counts = np.concatenate([self._counts, np.empty_like(self._counts)], axis=1)
        self._previous_thresholds = np.concatenate(
            [self._previous_thresholds, np.empty_like(self._previous_thresholds)]
        )
