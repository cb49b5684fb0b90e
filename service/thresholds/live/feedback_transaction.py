"""What a transaction of feedback does in memory and to the log, kept or undone whole."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from service.thresholds.live.events import ALL_COUNT, Events
from service.thresholds.live.served import ServedThresholds
from service.thresholds.live.threshold_counters import ThresholdCounters
from service.thresholds.store.codec import DELTA_MAX, Scored, encode_deltas, encode_scored
from service.thresholds.store.state import FEEDBACK, HALVED, SCORED, Head, append

EVENTS_LOGGED_MAX = DELTA_MAX // 2
"""Events of one entry of the log, at most: each adds up to 2 to a label's marks."""


class FeedbackTransaction:
    """Counts events in their order; under the lock of `live`, and the lock of its row in the database.

    head          the version's head, to which `live` was brought up
    halve_events  all counters are halved after each so many events of the version; None: never
    """

    def __init__(
        self, connection: Connection, live: ServedThresholds, head: Head, halve_events: int | None
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
        self._n_scored = 0
        self._scored: list[NDArray[np.int64]] = []
        self._logged: list[Scored] = []

    def count(
        self, events: Events, chosen: NDArray[np.int64], allowed: NDArray[np.uint8] = ALL_COUNT
    ) -> None:
        """Count the events chosen, in their order, halving where it is due, logging when an entry is full.

        allowed  as `ThresholdCounters.count` takes it
        """
        while len(chosen):
            until_full = EVENTS_LOGGED_MAX - self._n_events
            until_halved = self._until_halved()
            n_next = min(until_full, until_halved, len(chosen))
            self._count(events, chosen[:n_next], allowed)
            if n_next in (until_full, until_halved):
                self.log()
            if n_next == until_halved:
                self._halve()
            chosen = chosen[n_next:]

    def _until_halved(self) -> float:
        """Return after how many further events the counters are to be halved."""
        if not self._halve_events:
            return math.inf
        return self._halve_events - (self.head.n_events + self._n_events) % self._halve_events

    def _count(self, events: Events, chosen: NDArray[np.int64], allowed: NDArray[np.uint8]) -> None:
        """Count the events chosen, for the thresholds that are served and for the candidate."""
        ends = self._served.count(events, chosen, allowed)
        if self._shadow is not None:
            has_row = events.epochs[chosen] < 0
            self._shadow.candidate.count(events, chosen[has_row], allowed)
            self._scored.append(ends[0] + np.flatnonzero(np.repeat(has_row, np.diff(ends))))
            self._n_scored += int(has_row.sum())
        self._n_events += len(chosen)

    def log(self) -> None:
        """Log what was counted since the last call, if anything was."""
        if not self._n_events:
            return
        deltas = self._served.deltas(self._begin)
        kind, payload = FEEDBACK, b""
        if self._shadow is not None and self._n_scored:
            candidate = self._shadow.candidate.deltas(self._candidate_begin)
            scored = Scored(
                self._n_scored, deltas, candidate, self._served.deltas_of(np.concatenate(self._scored))
            )
            self._logged.append(scored)
            kind, payload = SCORED, encode_scored(scored)
        self.head = append(
            self._connection, self.head, kind, payload or encode_deltas(deltas), self._n_events
        )
        self._begin, self._n_events = self._served.journal_end, 0
        if self._shadow is not None:
            self._candidate_begin = self._shadow.candidate.journal_end
        self._scored, self._n_scored = [], 0

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

    def _all(self) -> list[ThresholdCounters]:
        return [self._served] if self._shadow is None else [self._served, self._shadow.candidate]
