"""LiveThresholds: the thresholds of a served version in memory, moved in place by feedback.

Readers are traversals that read the prepared array (a float32 for each node) without a lock while
`Traversal.move` writes to it. That is safe, and loses no label:
* A float32 is written and read whole, so a reader sees a value that was written, never a mixture.
* Each write is a node's final value: a label's new threshold, or the least of its children's present ones.
  None is made in steps, such as "infinity, then lowered".
* One label moves at a time, under a lock. So at every moment a node's value is at most the larger of the
  old and the new threshold of each label below it. A label whose probability reaches both passes every node
  on its path; one that reaches neither fails at its leaf; one in between may get either answer, as if it were
  asked just before or just after. Labels that do not move are answered as ever.
* What replaces all thresholds (tuning, restoring) is prepared aside, then takes the place by one assignment.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from service.errors import DatabaseUnavailable
from service.rows import SparseRows
from service.thresholds.codec import Deltas, decode_deltas
from service.thresholds.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from service.thresholds.online import count_event
from service.thresholds.state import FEEDBACK, Head, changes_since, find_head, read_state
from service.thresholds.tuned import Method, Tuned

START = Start()
"""The start values of a version that was never tuned, from its first feedback on, if no others are given."""

_COUNT_TYPE_MAX = np.iinfo(np.int32).max


class Traversal(Protocol):
    """What predicts under thresholds; `service.inference.thresholded.Thresholded` over a predictor."""

    def prepare(self, thresholds: NDArray[np.float32]) -> Any:
        """Return thresholds, float32[K], prepared for predictions."""

    def move(self, prepared: Any, labels: NDArray[np.int32], thresholds: NDArray[np.float32]) -> None:
        """Bring what `prepare` returned up to date where thresholds[labels] changed."""

    def predict(self, prepared: Any, row: SparseRows) -> NDArray[np.int32]:
        """Return the labels of one row that reach their thresholds, ascending."""


class Counted(NamedTuple):
    """One event that was counted: what it did, and the thresholds that its labels had before."""

    deltas: Deltas
    before: NDArray[np.float32]


class _State(NamedTuple):
    """Counters as int32[K] and thresholds as float32[K]: 12 bytes a label, and 4 a node once prepared."""

    method: Method
    convention: Any
    start: Start
    hits: NDArray[np.int32]
    marks: NDArray[np.int32]
    thresholds: NDArray[np.float32]


class LiveThresholds:
    """The thresholds of one served version.

    `prepared` and `epoch` may be read at any time, by any thread: None and 0 where the version has no
    thresholds (yet). All else happens under `lock`, which is taken before the version's row in the database.

    label_counts, n_rows   as `ofo.lower_bounds` takes them
    start                  what it starts with at its first feedback if it was never tuned
    """

    def __init__(
        self,
        model: str,
        version: int,
        n_labels: int,
        traversal: Traversal,
        label_counts: NDArray[np.int64] | None = None,
        n_rows: int = 0,
        start: Start = START,
    ) -> None:
        self.model = model
        self.version = version
        self.n_labels = n_labels
        self.lock = threading.Lock()
        self.prepared: Any = None
        self.epoch = 0
        self.base_epoch = 0
        self.is_stale = False
        """Whether the database does not answer, so that the thresholds are those that were last read."""
        self._traversal = traversal
        self.is_known = False
        """Whether the database has answered since, so that no thresholds means that there are none."""
        self._counts = np.empty(0, np.int64) if label_counts is None else label_counts
        self._n_rows = n_rows
        self.start = start
        self._state: _State | None = None

    @property
    def thresholds(self) -> NDArray[np.float32] | None:
        """Return the thresholds in force, float32[K], which go on moving; None where there are none."""
        state = self._state
        return None if state is None else state.thresholds

    def start_state(self) -> Tuned:
        """Return what a version that was never tuned starts with."""
        counters = no_counts(self.n_labels)
        bounds = lower_bounds(self._counts if len(self._counts) else None, self._n_rows, self.n_labels)
        return Tuned("ofo", "one", self.start, thresholds_of(counters, self.start, bounds), counters)

    def snapshot(self) -> Tuned:
        """Return a copy of the state; there must be one."""
        state = self._present()
        counters = Counters(state.hits.astype(np.int64), state.marks.astype(np.int64))
        return Tuned(state.method, state.convention, state.start, state.thresholds.copy(), counters)

    def macro_f(self) -> float:
        """Return the mean of 2 hits / marks over the labels that have marks, from 0 to 1; 0 without any."""
        state = self._present()
        used = np.flatnonzero(state.marks)
        return float((2.0 * state.hits[used] / state.marks[used]).mean()) if len(used) else 0.0

    def replace(self, tuned: Tuned, head: Head) -> None:
        """Put a state in place of the present one, whole."""
        if len(tuned.thresholds) != self.n_labels:
            raise DatabaseUnavailable(
                f"model {self.model} version {self.version}: expected thresholds of {self.n_labels} labels, "
                f"found {len(tuned.thresholds)}: is the database another store's?"
            )
        hits, marks = (np.minimum(c, _COUNT_TYPE_MAX).astype(np.int32) for c in tuned.counters)
        prepared = self._traversal.prepare(tuned.thresholds)
        self._state = _State(tuned.method, tuned.convention, tuned.start, hits, marks, tuned.thresholds)
        self.prepared = prepared
        self.base_epoch, self.epoch = head.base_epoch, head.epoch

    def refresh(self, connection: Connection, head: Head) -> None:
        """Apply what the database has beyond the present epoch. Raises DatabaseUnavailable."""
        if head.epoch == self.epoch and head.base_epoch == self.base_epoch:
            return
        changes = None
        if self._state is not None and head.epoch >= self.epoch and head.base_epoch == self.base_epoch:
            changes = changes_since(connection, head, self.epoch)
        if changes is None or any(change.kind != FEEDBACK for change in changes):
            self.replace(read_state(connection, head), head)
            return
        for change in changes:
            self._apply(decode_deltas(change.payload, self.n_labels))
            self.epoch = change.epoch

    def catch_up(self, connection: Connection) -> None:
        """Apply what the database has now; without thresholds in it, change nothing."""
        head = find_head(connection, self.model, self.version)
        self.is_known = True
        if head is not None and head.epoch:
            self.refresh(connection, head)

    def warm_up(self) -> None:
        """Compile or load the kernels that feedback needs, by counting an event nowhere."""
        label, nothing = np.zeros(1, np.int32), np.empty(0, np.int32)
        hits, marks, labels_out, hits_out, marks_out = np.zeros((5, 1), np.int32)
        thresholds, before = np.zeros((2, 1), np.float32)
        count_event(
            hits,
            marks,
            thresholds,
            *START,
            self._counts,
            self._n_rows,
            label,
            nothing,
            labels_out,
            hits_out,
            marks_out,
            before,
        )

    def predict(self, row: SparseRows) -> NDArray[np.int32]:
        """Return the labels that one row is predicted to have under the present thresholds, ascending."""
        return self._traversal.predict(self.prepared, row)

    def count(self, true_labels: NDArray[np.int32], predicted_labels: NDArray[np.int32]) -> Counted:
        """Count an event and move its labels' thresholds: OFO, algorithm 2, lines 5 to 8. In memory only.

        true_labels, predicted_labels  int32[..], ascending, without repeats, in [0, K)
        """
        state = self._present()
        size = len(true_labels) + len(predicted_labels)
        labels, hits, marks = np.empty((3, size), np.int32)
        before = np.empty(size, np.float32)
        n = count_event(
            state.hits,
            state.marks,
            state.thresholds,
            *state.start,
            self._counts,
            self._n_rows,
            true_labels,
            predicted_labels,
            labels,
            hits,
            marks,
            before,
        )
        self._traversal.move(self.prepared, labels[:n], state.thresholds)
        return Counted(Deltas(labels[:n], hits[:n], marks[:n], state.thresholds[labels[:n]]), before[:n])

    def undo(self, counted: list[Counted]) -> None:
        """Take back events that were counted since and could not be kept: all of them, in their order."""
        state = self._present()
        for deltas, before in reversed(counted):
            state.hits[deltas.labels] -= deltas.hits
            state.marks[deltas.labels] -= deltas.marks
            state.thresholds[deltas.labels] = before
            self._traversal.move(self.prepared, deltas.labels, state.thresholds)

    def forget(self) -> None:
        """Be without thresholds again."""
        self.prepared, self.epoch, self.base_epoch, self._state = None, 0, 0, None

    def _apply(self, deltas: Deltas) -> None:
        """Do what another replica's feedback did."""
        state = self._present()
        state.hits[deltas.labels] += deltas.hits
        state.marks[deltas.labels] += deltas.marks
        state.thresholds[deltas.labels] = deltas.thresholds
        self._traversal.move(self.prepared, deltas.labels, state.thresholds)

    def _present(self) -> _State:
        assert self._state is not None, "expected thresholds to be in place"
        return self._state
