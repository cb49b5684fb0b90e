"""Moving: thresholds that events move in place, with the counters they rest on: OFO, algorithm 2."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.rows import SparseRows
from service.thresholds.codec import Deltas
from service.thresholds.ofo import Counters
from service.thresholds.online import count_event, undo_events
from service.thresholds.tuned import Tuned

_COUNT_TYPE_MAX = np.iinfo(np.int32).max
_JOURNAL_MIN = 256


class Traversal(Protocol):
    """What predicts under thresholds; `service.inference.thresholded.Thresholded` over a predictor."""

    def prepare(self, thresholds: NDArray[np.float32]) -> Any:
        """Return thresholds, float32[K], prepared for predictions."""

    def move(self, prepared: Any, labels: NDArray[np.int32], thresholds: NDArray[np.float32]) -> None:
        """Bring what `prepare` returned up to date where thresholds[labels] changed."""

    def predict(self, prepared: Any, row: SparseRows) -> NDArray[np.int32]:
        """Return the labels of one row that reach their thresholds, ascending."""


class Halved(NamedTuple):
    """Counters, int32[K] each, just before they were halved, and where the journal ended then."""

    end: int
    hits: NDArray[np.int32]
    marks: NDArray[np.int32]


class Moving:
    """Counters as int32[K] and thresholds as float32[K]: 12 bytes a label, and 4 a node once prepared.

    What was counted is in a journal until `keep` or `undo`. Not thread-safe, but for reading `prepared` and
    `thresholds`, see `service.thresholds.live`.

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
        self._label_counts = label_counts
        self._n_rows = n_rows
        self.prepared = traversal.prepare(tuned.thresholds)
        self._counts = np.empty((3, _JOURNAL_MIN), np.int32)
        self._before = np.empty(_JOURNAL_MIN, np.float32)
        self.journal_end = 0
        """How many entries the journal has: a label of an event each."""
        self._halved: list[Halved] = []

    def predict(self, row: SparseRows) -> NDArray[np.int32]:
        """Return the labels that one row is predicted to have under the present thresholds, ascending."""
        return self._traversal.predict(self.prepared, row)

    def count(self, true_labels: NDArray[np.int32], predicted_labels: NDArray[np.int32]) -> None:
        """Count an event and move its labels' thresholds: OFO, algorithm 2, lines 5 to 8. In memory only.

        true_labels, predicted_labels  int32[..], ascending, without repeats, in [0, K)
        """
        begin = self.journal_end
        self._make_room(begin + len(true_labels) + len(predicted_labels))
        self.journal_end = count_event(
            self._hits,
            self._marks,
            self.thresholds,
            *self.start,
            self._label_counts,
            self._n_rows,
            true_labels,
            predicted_labels,
            begin,
            self._counts,
            self._before,
        )
        touched = self._counts[0, begin : self.journal_end]
        self._traversal.move(self.prepared, touched, self.thresholds)

    def halve(self) -> None:
        """Halve all counters, rounding down; a label's threshold follows at its next event."""
        self._halved.append(Halved(self.journal_end, self._hits.copy(), self._marks.copy()))
        self._hits >>= 1
        self._marks >>= 1

    def deltas(self, begin: int = 0) -> Deltas:
        """Return what the journal has from `begin` on, and the present thresholds of its labels."""
        return self.deltas_of(np.arange(begin, self.journal_end))

    def deltas_of(self, entries: NDArray[np.int64]) -> Deltas:
        """Return what some entries of the journal did, and the present thresholds of their labels."""
        labels, place = np.unique(self._counts[0, entries], return_inverse=True)
        hits, marks = (
            np.bincount(place, self._counts[i, entries], len(labels)).astype(np.int32) for i in (1, 2)
        )
        return Deltas(labels, hits, marks, self.thresholds[labels])

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
        self._traversal.move(self.prepared, touched, self.thresholds)
        self.keep()

    def apply(self, deltas: Deltas) -> None:
        """Do what another replica's feedback did; nothing of it comes into the journal."""
        self._hits[deltas.labels] += deltas.hits
        self._marks[deltas.labels] += deltas.marks
        self.thresholds[deltas.labels] = deltas.thresholds
        self._traversal.move(self.prepared, deltas.labels, self.thresholds)

    def snapshot(self) -> Tuned:
        """Return a copy of the state."""
        counters = Counters(self._hits.astype(np.int64), self._marks.astype(np.int64))
        return Tuned(self.method, self.convention, self.start, self.thresholds.copy(), counters)

    def macro_f(self) -> float:
        """Return the mean of 2 hits / marks over the labels that have marks, from 0 to 1; 0 without any."""
        used = np.flatnonzero(self._marks)
        return float((2.0 * self._hits[used] / self._marks[used]).mean()) if len(used) else 0.0

    def _make_room(self, size: int) -> None:
        """Let the journal take so many entries in all."""
        have = len(self._before)
        if size > have:
            more = max(size, 2 * have) - have
            self._counts = np.concatenate([self._counts, np.empty((3, more), np.int32)], axis=1)
            self._before = np.concatenate([self._before, np.empty(more, np.float32)])
