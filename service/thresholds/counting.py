"""Counting: what a transaction of feedback does in memory and to the log, kept or undone whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from service.rows import SparseRows
from service.thresholds.codec import Scored, encode_deltas, encode_scored
from service.thresholds.live import LiveThresholds
from service.thresholds.moving import Moving
from service.thresholds.state import FEEDBACK, HALVED, SCORED, Head, append


class Event(NamedTuple):
    """One event of feedback that can be counted.

    key        `feedback.event_key` of its identity
    labels     int32[..]: the true labels, ascending, without repeats
    row        the instance, one row; None: `predicted` has what it was predicted to have
    predicted  int32[..]: as labels; None: found from `row` under the thresholds of the moment
    epoch      the epoch of the prediction, when it was made before; else None
    """

    key: bytes
    labels: NDArray[np.int32]
    row: SparseRows | None = None
    predicted: NDArray[np.int32] | None = None
    epoch: int | None = None


class Counting:
    """Counts events one after the other; under the lock of `live`, and the lock of its row in the database.

    head          the version's head, to which `live` was brought up
    halve_events  all counters are halved after each so many events of the version; None: never
    """

    def __init__(
        self, connection: Connection, live: LiveThresholds, head: Head, halve_events: int | None
    ) -> None:
        self.head = head
        """The version's head, as far as it was logged."""
        self._connection = connection
        self._halve_events = halve_events
        self._served = live.served
        self._shadow = live.shadow
        self._n_events = 0
        self._begin = 0
        self._candidate_begin = 0
        self._scored: list[NDArray[np.int64]] = []
        self._logged: list[Scored] = []

    def count(self, event: Event) -> None:
        """Count an event: predict it if that was not done before, then move its labels' thresholds."""
        served = self._served
        begin = served.journal_end
        predicted = event.predicted
        if predicted is None:
            assert event.row is not None
            predicted = served.predict(event.row)
        served.count(event.labels, predicted)
        if self._shadow is not None and event.row is not None:
            candidate = self._shadow.candidate
            candidate.count(event.labels, candidate.predict(event.row))
            self._scored.append(np.arange(begin, served.journal_end))
        self._n_events += 1
        if self._halve_events and (self.head.n_events + self._n_events) % self._halve_events == 0:
            self.log()
            self._halve()

    def log(self) -> None:
        """Log what was counted since the last call, if anything was."""
        if not self._n_events:
            return
        deltas = self._served.deltas(self._begin)
        kind, payload = FEEDBACK, b""
        if self._shadow is not None and self._scored:
            candidate = self._shadow.candidate.deltas(self._candidate_begin)
            scored = Scored(
                len(self._scored), deltas, candidate, self._served.deltas_of(np.concatenate(self._scored))
            )
            self._logged.append(scored)
            kind, payload = SCORED, encode_scored(scored)
        self.head = append(
            self._connection, self.head, kind, payload or encode_deltas(deltas), self._n_events
        )
        self._begin, self._n_events = self._served.journal_end, 0
        if self._shadow is not None:
            self._candidate_begin = self._shadow.candidate.journal_end
        self._scored = []

    def keep(self) -> None:
        """What was counted and logged is durable."""
        for moving in self._all():
            moving.keep()
        for scored in self._logged:
            assert self._shadow is not None
            self._shadow.add(scored.n_events, scored.candidate, scored.shadowed)

    def undo(self) -> None:
        """What was counted is not kept: leave memory as it was before."""
        for moving in self._all():
            moving.undo()

    def _halve(self) -> None:
        self.head = append(self._connection, self.head, HALVED)
        for moving in self._all():
            moving.halve()

    def _all(self) -> list[Moving]:
        return [self._served] if self._shadow is None else [self._served, self._shadow.candidate]
