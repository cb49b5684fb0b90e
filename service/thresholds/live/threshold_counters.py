"""The thresholds that events move in place, with the counters they rest on: OFO, algorithm 2."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.base.rows import SparseRows
from service.kernels.search.subtrees import RowSearch
from service.thresholds.live.events import ALL_COUNT, Events
from service.thresholds.live.online import count_events, undo_events
from service.thresholds.methods.ofo import Counters
from service.thresholds.store.codec import Deltas, Tuned

_COUNT_TYPE_MAX = np.iinfo(np.int32).max
_JOURNAL_MIN = 256


class Traversal(Protocol):
    """What predicts under thresholds; a `service.inference.searcher.Searcher`."""

    def node_thresholds(self, thresholds: NDArray[np.float32]) -> Any:
        """Return thresholds, float32[K], prepared for predictions."""

    def move_thresholds(
        self, prepared: Any, labels: NDArray[np.int32], thresholds: NDArray[np.float32]
    ) -> None:
        """Bring what `node_thresholds` returned up to date where thresholds[labels] changed."""

    def rows_to_search(self, rows: SparseRows, chosen: NDArray[np.int64]) -> SparseRows:
        """Return as many rows, of which those chosen are what the search takes."""

    def row_search(self, prepared: Any, n_features: int) -> AbstractContextManager[RowSearch]:
        """Return the search for labels that reach their thresholds; a row has so many features at most."""


class Halved(NamedTuple):
    """Counters, int32[K] each, just before they were halved, and where the journal ended then."""

    end: int
    hits: NDArray[np.int32]
    marks: NDArray[np.int32]


class ThresholdCounters:
    """Counters as int32[K] and thresholds as float32[K]: 12 bytes a label, and 4 a node once prepared.

    What was counted is in a journal until `keep` or `undo`. Not thread-safe, but for reading `prepared` and
    `thresholds`, see `service.thresholds.live.served`.

    tuned                  the state to begin with; its thresholds are taken as they are, and will be changed
    label_counts, n_rows   as `ofo.lower_bounds` takes them; int64[0] where nobody counted
    """

    def __init__(
        self, tuned: Tuned, traversal: Traversal, label_counts: NDArray[np.int64], n_rows: int
    ) -> None:
        self.method = tuned.method
        self.convention = tuned.convention
        self.start = tuned.start
        self.thresholds = tuned.thresholds
        self._hits, self._marks = (np.minimum(c, _COUNT_TYPE_MAX).astype(np.int32) for c in tuned.counters)
        self._traversal = traversal
        self._label_counts = label_counts.view()
        self._label_counts.flags.writeable = False  # as a model's: kernels are compiled for one of the two
        self._n_rows = n_rows
        self.prepared = traversal.node_thresholds(tuned.thresholds)
        self._counts = np.empty((3, _JOURNAL_MIN), np.int32)
        self._before = np.empty(_JOURNAL_MIN, np.float32)
        self.journal_end = 0
        """How many entries the journal has: a label of an event each."""
        self._halved: list[Halved] = []

    def count(
        self, events: Events, chosen: NDArray[np.int64], allowed: NDArray[np.uint8] = ALL_COUNT
    ) -> NDArray[np.int64]:
        """Count the events chosen, one after the other: OFO, algorithm 2, lines 4 to 8. In memory only.

        allowed  uint8[K], 0 for labels that are passed over: those that an alias denies

        Those with an instance are predicted under the thresholds of that moment; then the event's labels'
        thresholds move. Returns int64[chosen + 1]: where the journal ends before each, and after the last.
        """
        ends = np.full(len(chosen) + 1, self.journal_end)
        rows = self._traversal.rows_to_search(events.rows, chosen)
        true, predicted = events.labels, events.predicted
        longest = int((rows.indptr[chosen + 1] - rows.indptr[chosen]).max(initial=0))
        a, b, power = map(float, self.start)  # whatever numbers they are: a kernel is compiled for each kind
        counted = self._label_counts, self._n_rows
        counters = self._hits, self._marks, self.thresholds, (a, b, power), *counted
        columns = *rows[:3], *true[:2], *predicted[:2], events.epochs
        n_counted = 0
        try:
            with self._traversal.row_search(self.prepared, longest) as search:
                while True:
                    journal = self._counts, self._before
                    given = counters, columns, chosen, n_counted, ends, journal, allowed
                    n_counted = count_events(search[:], self.prepared.log, *given)
                    if n_counted == len(chosen):
                        return ends
                    self._make_room()
        finally:
            self.journal_end = int(ends.max())

    def halve(self) -> None:
        """Halve all counters, rounding down; a label's threshold follows at its next event."""
        self._halved.append(Halved(self.journal_end, self._hits.copy(), self._marks.copy()))
        self._hits >>= 1
        self._marks >>= 1

    def deltas(self, begin: int = 0) -> Deltas:
        """Return what the journal has from `begin` on, and the present thresholds of its labels."""
        labels, hits, marks = self._counts[:, begin : self.journal_end].copy()
        if (labels[1:] > labels[:-1]).all():  # as those of one event are
            return Deltas(labels, hits, marks, self.thresholds[labels])
        return self.deltas_of(np.arange(begin, self.journal_end))

    def deltas_of(self, entries: NDArray[np.int64]) -> Deltas:
        """Return what some entries of the journal did, and the present thresholds of their labels."""
        ordered = self._counts[:, entries[self._counts[0, entries].argsort()]]
        labels = ordered[0]
        is_first = np.ones(len(labels), np.bool_)
        np.not_equal(labels[1:], labels[:-1], out=is_first[1:])
        first = is_first.nonzero()[0]
        hits, marks = np.add.reduceat(ordered[1:], first, axis=1) if len(first) else ordered[1:]
        return Deltas(labels[first], hits, marks, self.thresholds[labels[first]])

    def keep(self) -> None:
        """Forget the journal: what it says is there for good."""
        self.journal_end = 0
        self._halved.clear()

    def undo(self) -> None:
        """Take back all that the journal says, as if it had never been."""
        if self._halved:
            end, self._hits, self._marks = self._halved[0]
            last = self._counts[:, end : self.journal_end]
            last[1:] = 0  # after the copy that is back in place
        undo_events(self._hits, self._marks, self.thresholds, self._counts, self._before, self.journal_end)
        touched = np.unique(self._counts[0, : self.journal_end])
        self._traversal.move_thresholds(self.prepared, touched, self.thresholds)
        self.keep()

    def apply(self, deltas: Deltas) -> None:
        """Do what another replica's feedback did; nothing of it comes into the journal."""
        self._hits[deltas.labels] += deltas.hits
        self._marks[deltas.labels] += deltas.marks
        self.thresholds[deltas.labels] = deltas.thresholds
        self._traversal.move_thresholds(self.prepared, deltas.labels, self.thresholds)

    def snapshot(self) -> Tuned:
        """Return a copy of the state."""
        counters = Counters(self._hits.astype(np.int64), self._marks.astype(np.int64))
        return Tuned(self.method, self.convention, self.start, self.thresholds.copy(), counters)

    def macro_f(self) -> float:
        """Return the mean of 2 hits / marks over the labels that have marks, from 0 to 1; 0 without any."""
        used = np.flatnonzero(self._marks)
        return float((2.0 * self._hits[used] / self._marks[used]).mean()) if len(used) else 0.0

    def _make_room(self) -> None:
        """Let the journal take twice as many entries."""
        self._counts = np.concatenate([self._counts, np.empty_like(self._counts)], axis=1)
        self._before = np.concatenate([self._before, np.empty_like(self._before)])
