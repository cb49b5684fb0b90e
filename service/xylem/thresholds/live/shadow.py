"""Shadow mode: a candidate's thresholds are scored on live feedback, and can then be put in force.

Each event with an instance is predicted under the thresholds in force and under the candidate's,
then both count it: the candidate continues to learn by OFO from its own predictions, as if it were
in force. So each event is scored before it is learned from, and exactly what was scored is put in
force. An event with a prediction_id has no instance to predict again: it moves only the thresholds
in force, and is not scored.

The log of a version records when its candidate is put, scored and taken away, in the order of
epochs, so that all replicas have the same candidate.
"""

import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from xylem.base import SHADOWS, Database, DatabaseUnavailable, NotTuned
from xylem.thresholds.live.threshold_counters import ThresholdCounters
from xylem.thresholds.methods.ofo import Counters, no_counts
from xylem.thresholds.store import state
from xylem.thresholds.store.codec import (
    Deltas,
    Tuned,
    decode_scores,
    decode_state,
    encode_scores,
    encode_state,
    settled,
)
from xylem.thresholds.store.state import Head


class ShadowState(NamedTuple):
    """A candidate as the database has it.

    since       the epoch at which it was put
    created_at  seconds since 1970
    n_events    events that it was scored on
    candidate   its thresholds
    scores      the counts of these events: for the candidate, and for the thresholds in force
    """

    since: int
    created_at: float
    n_events: int
    candidate: Tuned
    scores: tuple[Counters, Counters]


class Shadow:
    """A candidate in memory. To be used under the lock of the version's `ServedThresholds`."""

    def __init__(self, saved: ShadowState, candidate: ThresholdCounters) -> None:
        self.since, self.created_at, self.n_events, _, self.scores = saved
        self.candidate = candidate

    def add(self, n_events: int, candidate: Deltas, served: Deltas) -> None:
        """Add the changes by durable events to the scores."""
        self.n_events += n_events
        add_scores(self.scores, candidate, served)

    def macro_f(self) -> tuple[float, float]:
        """Return the macro-F, 0 to 1, of the candidate and of the thresholds in force. O(K).

        Both are measured on the same events.
        """
        candidate, served = self.scores
        empty = self.candidate.convention
        return candidate.macro_f(empty), served.macro_f(empty)

    def snapshot(self) -> ShadowState:
        """Return its state; the scores are not copied."""
        return ShadowState(
            self.since, self.created_at, self.n_events, self.candidate.snapshot(), self.scores
        )


def add_scores(scores: tuple[Counters, Counters], candidate: Deltas, served: Deltas) -> None:
    """Add the changes by events to the scores, in place."""
    for counters, deltas in zip(scores, (candidate, served), strict=True):
        counters.hits[deltas.labels] += deltas.hits
        counters.marks[deltas.labels] += deltas.marks


def put_shadow(connection: Connection, head: Head, tuned: Tuned) -> Head:
    """Put a candidate beside the thresholds in force; return the new, locked head.

    It replaces an earlier candidate. Raises NotTuned if there are no thresholds in force.
    """
    if head.epoch == 0:
        raise NotTuned(
            f"{head.place}: expected thresholds in force beside which to score others, found none"
        )
    head = state.append(connection, head, state.SHADOWED)
    scores = no_counts(len(tuned.thresholds)), no_counts(len(tuned.thresholds))
    connection.execute(delete(SHADOWS).where(SHADOWS.c.version_id == head.id))
    saved = ShadowState(head.epoch, time.time(), 0, tuned, scores)
    connection.execute(insert(SHADOWS), {"version_id": head.id, **_row_of(head, saved)})
    return head


def keep_shadow(connection: Connection, head: Head, saved: ShadowState) -> None:
    """Store the candidate as it is at the head's epoch, so that the log before it is not needed."""
    connection.execute(update(SHADOWS).where(SHADOWS.c.version_id == head.id), _row_of(head, saved))


def take_shadow(
    database: Database, model: str, version: int, digest: str | None = None, *, switch: bool
) -> int:
    """Take the candidate of a version away; if `switch`, put its present thresholds in force.

    Returns the new epoch. Raises NotTuned if there is none, and DatabaseUnavailable.
    """
    with database.write() as connection:
        head = state.lock_head(connection, model, version, digest)
        saved = read_shadow(connection, head)
        if saved is None:
            raise NotTuned(
                f"{head.place}: expected candidate thresholds (in shadow mode), found none"
            )
        connection.execute(delete(SHADOWS).where(SHADOWS.c.version_id == head.id))
        return (
            state.replace_state(connection, head, state.SWITCHED, saved.candidate)
            if switch
            else state.append(connection, head, state.DROPPED)
        ).epoch


def read_shadow(connection: Connection, head: Head) -> ShadowState | None:
    """Return the candidate as it is at the head's epoch; None if there is none.

    Raises DatabaseUnavailable.
    """
    row = connection.execute(select(SHADOWS).where(SHADOWS.c.version_id == head.id)).one_or_none()
    if row is None:
        return None
    candidate = decode_state(row.state)
    n_labels = len(candidate.thresholds)
    n_events = row.n_events
    scores = decode_scores(row.scores, n_labels)
    changes = state.changes_since(connection, head, row.epoch)
    if changes is None:
        raise DatabaseUnavailable(
            f"{head.place}: expected the log since epoch {row.epoch}, found less"
        )
    for change in changes:
        if change.kind == state.HALVED:
            state.halve(candidate)
        if change.kind == state.SCORED:
            scored = state.scored_of(change, n_labels)
            state.add_deltas(candidate, scored.candidate)
            add_scores(scores, scored.candidate, scored.shadowed)
            n_events += scored.n_events
    return ShadowState(row.since, row.created_at, n_events, settled(candidate), scores)


def _row_of(head: Head, saved: ShadowState) -> dict[str, Any]:
    return {
        "since": saved.since,
        "epoch": head.epoch,
        "created_at": saved.created_at,
        "n_events": saved.n_events,
        "state": encode_state(saved.candidate),
        "scores": encode_scores(saved.scores),
    }
