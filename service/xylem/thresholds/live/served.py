"""The thresholds of a served version in memory, moved in place by feedback.

Traversals read the prepared array (a float32 for each node) without a lock, while
`ThresholdCounters` writes to it in kernels, event by event. That is safe, and loses no label:
* A float32 is written and read as a whole, so a reader sees a value that was written, never a
  mixture.
* Each write is a node's final value: a label's new threshold, or the least of its children's
  present ones. No value is written in steps, such as first infinity, then lowered.
* One label moves at a time, under a lock. So at every moment a node's value is at most the larger
  of the old and the new threshold of each label below it. A label whose probability reaches both
  passes every node on its path; one that reaches neither fails at its leaf; one in between may get
  either answer, as if the request had come just before or just after. Labels that do not move are
  answered as always.
* New thresholds for all labels (tuned, restored) are prepared separately, and put in place by one
  assignment.
"""

import math
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import NO_ROWS, DatabaseUnavailable, SparseRows
from xylem.engine import NodeThresholds
from xylem.evaluation import USUAL_EMPTY
from xylem.thresholds.live.events import instances_of, label_rows
from xylem.thresholds.live.threshold_counters import ThresholdCounters
from xylem.thresholds.methods.ofo import Start, lower_bounds
from xylem.thresholds.store.codec import Tuned

if TYPE_CHECKING:  # commands that predict do without a database
    from sqlalchemy import Connection

    from xylem.thresholds.live.shadow import Shadow
    from xylem.thresholds.store.state import Head


class ServedThresholds:
    """The thresholds of one served version, and the candidate that is scored beside them, if any.

    `prepared`, `epoch` and `thresholds` may be read at any time, by any thread; as long as the
    version has no thresholds they are None, 0 and those of `start_state`. Everything else needs
    `lock`, which must be taken before the version's row in the database is locked.

    traversal              as `ThresholdCounters` takes it
    label_counts, n_rows   as `ofo.lower_bounds` takes them
    start                  the start values at the first feedback, if the version was never tuned
    digest                 of the version's manifest; thresholds of another digest are refused
    """

    def __init__(
        self,
        model: str,
        version: int,
        n_labels: int,
        traversal: Any,
        label_counts: NDArray[np.int64] | None = None,
        n_rows: int = 0,
        start: Start | None = None,
        digest: str | None = None,
    ) -> None:
        self.model = model
        self.version = version
        self.n_labels = n_labels
        self.digest = digest
        # Whether the database has thresholds of another version of this name; they are unused.
        self.is_foreign = False
        self.lock = threading.Lock()
        self.epoch = 0
        self.base_epoch = 0
        # Until when these are certainly the newest thresholds, by the monotonic clock.
        self.fresh_until = math.inf
        # Whether the database has answered. Before that, it may have thresholds of the version.
        self.is_known = False
        self.start = start or Start()
        self.shadow: Shadow | None = None
        self._traversal = traversal
        self._counts = np.empty(0, np.int64) if label_counts is None else label_counts
        self._n_rows = n_rows
        self._served: ThresholdCounters | None = None
        self._start_thresholds = self.start_state().thresholds

    @property
    def thresholds(self) -> NDArray[np.float32]:
        """Return the thresholds in force, float32[K]; feedback moves them, most in place.

        Before the first feedback they are computed from the start values.
        """
        return self._start_thresholds if self._served is None else self._served.thresholds

    @property
    def prepared(self) -> NodeThresholds | None:
        """Return the thresholds in force as searches take them; None before the first feedback."""
        return None if self._served is None else self._served.prepared

    @property
    def limit(self) -> int | None:
        """Return the most labels of a row at the thresholds in force; None if there is no limit."""
        return None if self._served is None else self._served.aim.limit

    @property
    def is_stale(self) -> bool:
        """Return whether the thresholds may be outdated, because the database does not answer."""
        return time.monotonic() > self.fresh_until

    @property
    def served(self) -> ThresholdCounters:
        """Return the thresholds in force with their counters. There must be some."""
        assert self._served is not None, "expected thresholds to be in place"
        return self._served

    def start_state(self) -> Tuned:
        """Return the state that a version that was never tuned starts with."""
        return Tuned.begin(
            "macro",
            USUAL_EMPTY,
            self.start,
            lower_bounds(self._counts if len(self._counts) else None, self._n_rows, self.n_labels),
        )

    def snapshot(self) -> Tuned:
        """Return a copy of the state. There must be one."""
        return self.served.snapshot()

    def replace(self, tuned: Tuned, head: "Head") -> None:
        """Replace the present state as a whole."""
        self._served = self._new_counters(tuned)
        self.base_epoch = head.base_epoch
        self.epoch = head.epoch

    def refresh(self, connection: "Connection", head: "Head") -> None:
        """Apply the changes that the database has after the present epoch.

        Raises DatabaseUnavailable.
        """
        if head.epoch == self.epoch and head.base_epoch == self.base_epoch:
            return
        from xylem.thresholds.live.shadow import Shadow, read_shadow
        from xylem.thresholds.store import state

        changes = (
            state.changes_since(connection, head, self.epoch)
            if self._served is not None
            and head.epoch >= self.epoch
            and head.base_epoch == self.base_epoch
            else None
        )
        followed_kinds = {state.FEEDBACK, state.SCORED, state.HALVED}
        if changes is None or {change.kind for change in changes} - followed_kinds:
            tuned = state.present_state(connection, head)
            saved = read_shadow(connection, head)
            shadow = None if saved is None else Shadow(saved, self._new_counters(saved.candidate))
            self.replace(tuned, head)
            self.shadow = shadow
            return
        for change in changes:
            deltas = state.deltas_of(change, self.n_labels)
            if deltas is not None:
                self.served.apply(deltas)
            if change.kind == state.HALVED:
                for counters in self.all_counters():
                    counters.halve()
                    counters.keep()
            if change.kind == state.SCORED and self.shadow is not None:
                scored = state.scored_of(change, self.n_labels)
                self.shadow.candidate.apply(scored.candidate)
                self.shadow.add(scored.n_events, scored.candidate, scored.shadowed)
            self.epoch = change.epoch

    def catch_up(self, connection: "Connection") -> None:
        """Apply all changes that the database has; if it has no thresholds, change nothing."""
        from xylem.thresholds.store.state import find_head

        head = find_head(connection, self.model, self.version, self.digest)
        self.is_known = True
        if head is not None and head.epoch:
            self.refresh(connection, head)

    def warm_up(self) -> None:
        """Compile or load the kernels that feedback needs: count an event, on a copy."""
        counters = self._new_counters(self.start_state())
        predicted = instances_of(
            SparseRows(np.zeros(2, np.int64), *NO_ROWS[1:]),
            label_rows([np.zeros(1, np.int32)], self.n_labels),
        )
        counters.count(predicted._replace(epochs=np.zeros(1, np.int64)), np.zeros(1, np.int64))
        counters.undo()

    def forget(self) -> None:
        """Go back to having no thresholds."""
        self.epoch = 0
        self.base_epoch = 0
        self._served = None
        self.shadow = None

    def all_counters(self) -> list[ThresholdCounters]:
        """Return the thresholds that events change: those in force, and the candidate if any."""
        return [self.served] if self.shadow is None else [self.served, self.shadow.candidate]

    def _new_counters(self, tuned: Tuned) -> ThresholdCounters:
        if len(tuned.thresholds) != self.n_labels:
            raise DatabaseUnavailable(
                f"model {self.model} version {self.version}: expected thresholds of "
                f"{self.n_labels} labels, "
                f"found {len(tuned.thresholds)}: is the database another store's?"
            )
        return ThresholdCounters(tuned, self._traversal, self._counts, self._n_rows)
