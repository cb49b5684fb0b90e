"""Thresholds in the database: every change of a version's is a new epoch, and nothing is overwritten.

Who changes the thresholds of a version locks its row of `threshold_versions` first. So changes are in one
order, that of their epochs, and every replica that applies the log in that order has the same bits.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Insert, Row, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.sql.dml import ReturningInsert

from service.db.engine import Database
from service.db.tables import CHECKPOINTS, EVENTS, LOG, SECRETS, SHADOWS, VERSIONS
from service.errors import BadParameter, DatabaseUnavailable
from service.thresholds.codec import Deltas, decode_deltas, decode_scored, decode_state, encode_state
from service.thresholds.tuned import Tuned

TUNED, STARTED, RESTORED, SWITCHED, KEPT = "tuned", "started", "restored", "switched", "kept"
"""Kinds of changes that put a state in place of the one before, kept as a checkpoint: what `save` was given;
start values, by the first feedback; an earlier epoch's state; a candidate. KEPT is a checkpoint that changed
nothing."""

FEEDBACK, SCORED, HALVED, SHADOWED, DROPPED = "feedback", "scored", "halved", "shadowed", "dropped"
"""Kinds of changes that leave the state in place: a block of feedback (`codec.Deltas`); one that a candidate
was scored on (`codec.Scored`); counters halved; a candidate put beside the state, or taken away."""

MOVES = frozenset((FEEDBACK, SCORED, HALVED, SHADOWED, DROPPED))
"""The kinds of changes that leave the state in place."""

CHECKPOINTS_MAX = 32
"""Checkpoints that are kept of a version: the oldest go first."""

LOGGED_CHECKPOINTS = 3
"""The log reaches back to this regular checkpoint (KEPT), counted from the newest, or to the oldest of all:
one can restore every epoch since."""

_FIND_HEAD = select(VERSIONS).where(
    VERSIONS.c.model == bindparam("model"), VERSIONS.c.version == bindparam("version")
)
_LOCK_HEAD = _FIND_HEAD.with_for_update()
_ALL_HEADS = select(VERSIONS)
_LOG_CHANGE = insert(LOG)
_MOVE_HEAD = update(VERSIONS).where(VERSIONS.c.id == bindparam("key"))
_REMEMBER = """
INSERT INTO feedback_events (event_key, day)
WITH RECURSIVE place(i) AS (VALUES (1) UNION ALL SELECT i + 16 FROM place WHERE i + 16 < length(?1))
SELECT substr(?1, i, 16), ?2 FROM place WHERE true
ON CONFLICT DO NOTHING
"""
_LAST_OF_NEXT = (
    select(EVENTS.c.event_key)
    .where(EVENTS.c.event_key > bindparam("after"))
    .order_by(EVENTS.c.event_key)
    .limit(1)
    .offset(bindparam("n_before"))
)
_FORGET = delete(EVENTS).where(
    EVENTS.c.event_key > bindparam("after"), EVENTS.c.day < bindparam("before_day")
)
_FORGET_TO = _FORGET.where(EVENTS.c.event_key <= bindparam("last"))
"""The statements of every block of feedback: to build them costs more than to run them."""


class Head(NamedTuple):
    """A row of `threshold_versions`."""

    id: int
    model: str
    version: int
    epoch: int
    base_epoch: int
    n_events: int


class Change(NamedTuple):
    """A row of `threshold_log`."""

    epoch: int
    kind: str
    payload: bytes


class Checkpoint(NamedTuple):
    """A state that can be restored, without its bytes."""

    epoch: int
    kind: str
    created_at: float


def lock_head(connection: Connection, model: str, version: int) -> Head:
    """Return a version's head, made if it has none (epoch 0), locked until the transaction ends."""
    found = find_head(connection, model, version, lock=True)
    if found is None:
        values = {"model": model, "version": version, "epoch": 0, "base_epoch": 0, "n_events": 0}
        connection.execute(_insert_new(connection, VERSIONS), values)
        found = find_head(connection, model, version, lock=True)
        assert found is not None
    return found


def find_head(connection: Connection, model: str, version: int, *, lock: bool = False) -> Head | None:
    """Return a version's head, None when it has no thresholds."""
    found = connection.execute(_LOCK_HEAD if lock else _FIND_HEAD, {"model": model, "version": version})
    row = found.one_or_none()
    return None if row is None else _head(row)


def all_heads(connection: Connection) -> list[Head]:
    """Return the heads of all versions that have thresholds."""
    return [_head(row) for row in connection.execute(_ALL_HEADS)]


def changes_since(connection: Connection, head: Head, epoch: int) -> list[Change] | None:
    """Return the changes after `epoch` up to the head's, in order; None when the log lacks some of them."""
    query = select(LOG.c.epoch, LOG.c.kind, LOG.c.payload).where(
        LOG.c.version_id == head.id, LOG.c.epoch > epoch, LOG.c.epoch <= head.epoch
    )
    changes = [Change(*row) for row in connection.execute(query.order_by(LOG.c.epoch))]
    return changes if len(changes) == head.epoch - epoch else None


def read_checkpoint(connection: Connection, head: Head, at_most: int) -> tuple[int, Tuned]:
    """Return the epoch of the newest state that is kept, of those up to `at_most`, and the state.

    Raises BadParameter when there is none.
    """
    query = select(CHECKPOINTS.c.epoch, CHECKPOINTS.c.state).where(
        CHECKPOINTS.c.version_id == head.id,
        CHECKPOINTS.c.epoch <= min(at_most, head.epoch),
    )
    row = connection.execute(query.order_by(CHECKPOINTS.c.epoch.desc()).limit(1)).one_or_none()
    if row is None:
        raise BadParameter(
            f"model {head.model} version {head.version}: expected an epoch that is kept, found {at_most}"
        )
    return row[0], decode_state(row[1])


def read_state(connection: Connection, head: Head, at: int | None = None) -> Tuned:
    """Return the state of an epoch, without `at` the head's: a checkpoint, and the log from there on.

    Raises BadParameter for an epoch that is not kept any more, or not there yet.
    """
    at = head.epoch if at is None else at
    epoch, tuned = read_checkpoint(connection, head, at)
    changes = changes_since(connection, head._replace(epoch=at), epoch)
    if changes is None or any(change.kind not in MOVES for change in changes):
        raise BadParameter(
            f"model {head.model} version {head.version}: expected an epoch that is kept, found {at}"
        )
    thresholds = tuned.thresholds
    for change in changes:
        if change.kind == HALVED:
            halve(tuned)
        deltas = deltas_of(change, len(thresholds))
        if deltas is not None:
            add_deltas(tuned, deltas)
    return tuned


def present_state(connection: Connection, head: Head) -> Tuned:
    """Return the state of the head's epoch. Raises DatabaseUnavailable when the database lacks some of it."""
    try:
        return read_state(connection, head)
    except BadParameter as error:
        raise DatabaseUnavailable(str(error)) from error


def deltas_of(change: Change, n_labels: int) -> Deltas | None:
    """Return what a change did to the thresholds in force; None if it was no feedback."""
    if change.kind == SCORED:
        return decode_scored(change.payload, n_labels).served
    return decode_deltas(change.payload, n_labels) if change.kind == FEEDBACK else None


def add_deltas(tuned: Tuned, deltas: Deltas) -> None:
    """Do to a state, in place, what feedback did."""
    tuned.counters.hits[deltas.labels] += deltas.hits
    tuned.counters.marks[deltas.labels] += deltas.marks
    tuned.thresholds[deltas.labels] = deltas.thresholds


def halve(tuned: Tuned) -> None:
    """Halve a state's counters in place, rounding down; thresholds stay: see `service.thresholds.moving`."""
    for counters in tuned.counters:
        counters >>= 1


def checkpoints(connection: Connection, head: Head) -> list[Checkpoint]:
    """Return the states that are kept, the newest first."""
    query = select(CHECKPOINTS.c.epoch, CHECKPOINTS.c.kind, CHECKPOINTS.c.created_at)
    query = query.where(CHECKPOINTS.c.version_id == head.id).order_by(CHECKPOINTS.c.epoch.desc())
    return [Checkpoint(*row) for row in connection.execute(query)]


def replace_state(connection: Connection, head: Head, kind: str, tuned: Tuned) -> Head:
    """Put a state in place of the present one; return the version's new head, which is still locked."""
    head = append(connection, head, kind)
    keep_state(connection, head, kind, tuned)
    return head


def keep_state(connection: Connection, head: Head, kind: str, tuned: Tuned) -> None:
    """Keep the state of the head's epoch as a checkpoint, and forget what is too old to be kept."""
    values = {"version_id": head.id, "epoch": head.epoch, "kind": kind, "created_at": time.time()}
    connection.execute(_insert_new(connection, CHECKPOINTS), {**values, "state": encode_state(tuned)})
    there = checkpoints(connection, head)
    oldest = there[:CHECKPOINTS_MAX][-1].epoch
    regular = [one.epoch for one in there if one.kind == KEPT]
    logged = max(oldest, *regular[LOGGED_CHECKPOINTS - 1 : LOGGED_CHECKPOINTS], 0)
    shadowed = select(SHADOWS.c.epoch).where(SHADOWS.c.version_id == head.id)
    logged = min(logged, *connection.execute(shadowed).scalars(), head.epoch)
    old = CHECKPOINTS.c.version_id == head.id, CHECKPOINTS.c.epoch < oldest
    connection.execute(delete(CHECKPOINTS).where(*old))
    connection.execute(delete(LOG).where(LOG.c.version_id == head.id, LOG.c.epoch <= logged))


def add_events(connection: Connection, keys: list[bytes], day: int) -> set[bytes]:
    """Remember events, 16 bytes each without repeats; return those that were not known before.

    On SQLite, where nobody else writes meanwhile, one statement puts all in, and only if some were known
    it is found out which: to have each row returned takes half as long again, and a statement for each row
    takes the interpreter's lock each time.
    """
    if not keys:
        return set()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("SAVEPOINT events")
        if connection.exec_driver_sql(_REMEMBER, (b"".join(keys), day)).rowcount == len(keys):
            return set(keys)
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT events")
    rows = [{"event_key": key, "day": day} for key in keys]
    new = connection.execute(_remember_new(connection.dialect.name), rows)
    return {bytes(key) for key in new.scalars()}


def forget_events(connection: Connection, before_day: int, after: bytes, n_most: int) -> tuple[int, bytes]:
    """Forget events of days before `before_day` among the next ones, n_most at most, by their keys.

    An index by day would double what every event writes: so they are gone through round and round instead.

    after   the last key of the call before; b"" at first

    Returns how many were forgotten, and the last key; b"" at the end of all.
    """
    last = connection.execute(_LAST_OF_NEXT, {"after": after, "n_before": n_most - 1}).scalar()
    old = {"after": after, "before_day": before_day}
    if last is None:
        return connection.execute(_FORGET, old).rowcount, b""
    return connection.execute(_FORGET_TO, {**old, "last": last}).rowcount, bytes(last)


def shared_secret(connection: Connection, name: str, n_bytes: int) -> bytes:
    """Return the secret of a name, the same for all replicas: made by the first who asks."""
    value = os.urandom(n_bytes)
    connection.execute(_insert_new(connection, SECRETS), {"name": name, "value": value})
    return bytes(connection.execute(select(SECRETS.c.value).where(SECRETS.c.name == name)).scalar_one())


def newest_checkpoint_epoch(connection: Connection, head: Head) -> int:
    """Return the epoch of the newest checkpoint, 0 when there is none."""
    query = select(func.max(CHECKPOINTS.c.epoch)).where(CHECKPOINTS.c.version_id == head.id)
    return connection.execute(query).scalar_one() or 0


class ThresholdDatabase:
    """What `xylem thresholds` and admins put in place and read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, model: str, version: int, tuned: Tuned) -> int:
        """Keep the thresholds of a version, durably; return their epoch, larger than any before.

        Servers that share the database use them within `threshold_refresh_ms`. Raises DatabaseUnavailable.
        """
        with self._database.write() as connection:
            return replace_state(connection, lock_head(connection, model, version), TUNED, tuned).epoch

    def load(self, model: str, version: int) -> Tuned | None:
        """Return the newest thresholds of a version, all feedback included; None when it has none.

        Raises DatabaseUnavailable.
        """
        with self._database.read() as connection:
            head = find_head(connection, model, version)
            return None if head is None or head.epoch == 0 else present_state(connection, head)

    def restore(self, model: str, version: int, epoch: int) -> int:
        """Put the state of an epoch in place again, as a new epoch, and return that.

        What feedback did since does not count any more; its events are still known, and will not count again.
        Raises BadParameter for an epoch that is not kept, DatabaseUnavailable.
        """
        with self._database.write() as connection:
            head = lock_head(connection, model, version)
            if not 1 <= epoch <= head.epoch:
                place = f"model {model} version {version}"
                raise BadParameter(f"{place}: expected an epoch from 1 to {head.epoch}, found {epoch}")
            return replace_state(connection, head, RESTORED, read_state(connection, head, epoch)).epoch


def append(connection: Connection, head: Head, kind: str, payload: bytes = b"", n_events: int = 0) -> Head:
    """Log a change; return the version's new head, which is still locked."""
    epoch = head.epoch + 1
    base_epoch = epoch if kind in (TUNED, RESTORED, SWITCHED) else head.base_epoch
    values = {"version_id": head.id, "epoch": epoch, "kind": kind}
    connection.execute(_LOG_CHANGE, {**values, "payload": payload, "created_at": time.time()})
    new = head._replace(epoch=epoch, base_epoch=base_epoch, n_events=head.n_events + n_events)
    connection.execute(
        _MOVE_HEAD,
        {"key": head.id, "epoch": new.epoch, "base_epoch": new.base_epoch, "n_events": new.n_events},
    )
    return new


@cache
def _remember_new(dialect: str) -> ReturningInsert[Any]:
    """Return an insert of events that returns those that are new."""
    return _insert_into(dialect, EVENTS).returning(EVENTS.c.event_key)


def _insert_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that leaves rows alone whose key is there already."""
    return _insert_into(connection.dialect.name, table)


def _insert_into(dialect: str, table: Table) -> Insert:
    statement: Insert = (postgresql_insert if dialect == "postgresql" else sqlite_insert)(table)
    return statement.on_conflict_do_nothing()  # type: ignore[attr-defined, no-any-return]


def _head(row: Row[Any]) -> Head:
    return Head._make(row)
