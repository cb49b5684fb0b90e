"""A transaction of feedback: events are counted, and what they change goes to the log."""

import math

import numpy as np
from sqlalchemy import Connection

from xylem.thresholds.live.events import Events
from xylem.thresholds.live.served import ServedThresholds
from xylem.thresholds.live.threshold_counters import ALL_COUNT
from xylem.thresholds.store import state
from xylem.thresholds.store.codec import (
    DELTA_MAX,
    NO_SUMS,
    Scored,
    encode_deltas,
    encode_scored,
    encode_sums,
)
from xylem.thresholds.store.state import Head
from xylem_store import I64, U8

# The most events of one log entry: each adds up to 2 to a label's marks.
EVENTS_LOGGED_MAX = DELTA_MAX // 2


class FeedbackTransaction:
    """Counts events in order, under the lock of `live` and the lock of its row in the database.

    head          the version's head; `live` is up to date with it
    halve_events  all counters are halved each time that this many events of the version were
                  counted; None: never
    """

    def __init__(
        self, connection: Connection, live: ServedThresholds, head: Head, halve_events: int | None
    ) -> None:
        # The version's head after the changes that have been logged.
        self.head = head
        self._connection = connection
        self._halve_events = halve_events
        self._served = live.served
        self._shadow = live.shadow
        self._all_counters = live.all_counters()
        self._n_events = 0
        self._begin = 0
        self._candidate_begin = 0
        self._n_scored = 0
        self._scored: list[I64] = []
        self._logged: list[Scored] = []

    def count(self, events: Events, chosen: I64, allowed: U8 = ALL_COUNT) -> None:
        """Count the chosen events in order. Halve counters when due; log when an entry is full.

        allowed  as `ThresholdCounters.count` takes it
        """
        while len(chosen):
            until_full = EVENTS_LOGGED_MAX - self._n_events
            until_halved = (
                self._halve_events - (self.head.n_events + self._n_events) % self._halve_events
                if self._halve_events
                else math.inf
            )
            n_next = min(until_full, until_halved, len(chosen))
            self._count(events, chosen[:n_next], allowed)
            if n_next in (until_full, until_halved):
                self.log()
            if n_next == until_halved:
                self.head = state.append(self._connection, self.head, state.HALVED)
                for counters in self._all_counters:
                    counters.halve()
            chosen = chosen[n_next:]

    def _count(self, events: Events, chosen: I64, allowed: U8) -> None:
        """Count the chosen events, for the thresholds in force and for the candidate."""
        ends = self._served.count(events, chosen, allowed)
        if self._shadow is not None:
            has_row = events.epochs[chosen] < 0
            self._shadow.candidate.count(events, chosen[has_row], allowed)
            self._scored.append(ends[0] + np.flatnonzero(np.repeat(has_row, np.diff(ends))))
            self._n_scored += int(has_row.sum())
        self._n_events += len(chosen)

    def log(self) -> None:
        """Log the events that were counted since the last call, if any."""
        if not self._n_events:
            return
        deltas = self._served.deltas(self._begin)
        kind = state.FEEDBACK
        payload = encode_deltas(deltas)
        candidate_sums = NO_SUMS
        if self._shadow is not None and self._n_scored:
            candidate = self._shadow.candidate.deltas(self._candidate_begin)
            scored = Scored(
                self._n_scored,
                deltas,
                candidate,
                self._served.deltas_of(np.concatenate(self._scored)),
            )
            self._logged.append(scored)
            candidate_sums = candidate.sums
            kind = state.SCORED
            payload = encode_scored(scored)
        self.head = state.append(
            self._connection,
            self.head,
            kind,
            payload,
            self._n_events,
            encode_sums(deltas.sums, candidate_sums),
        )
        self._begin = self._served.journal_end
        self._n_events = 0
        if self._shadow is not None:
            self._candidate_begin = self._shadow.candidate.journal_end
        self._scored = []
        self._n_scored = 0

    def keep(self) -> None:
        """Make the counts in memory final. Call it when the transaction is durable."""
        for counters in self._all_counters:
            counters.keep()
        for scored in self._logged:
            assert self._shadow is not None
            self._shadow.add(scored.n_events, scored.candidate, scored.shadowed)

    def undo(self) -> None:
        """Undo the counts in memory. Call it when the transaction failed."""
        for counters in self._all_counters:
            counters.undo()
