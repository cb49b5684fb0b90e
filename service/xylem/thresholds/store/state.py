"""Thresholds in the database. Every change of a version's thresholds is a new epoch.

Nothing is overwritten. Whoever changes the thresholds of a version locks its row of
`threshold_versions` first. So its changes have one order, that of their epochs, and all replicas
that apply the log in this order have the same bits.
"""

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from xylem.base import (
    CHECKPOINTS,
    LOG,
    SECRETS,
    SHADOWS,
    VERSIONS,
    BadParameter,
    Compiled,
    Database,
    DatabaseUnavailable,
    NotTuned,
    insert_new,
)
from xylem.thresholds.store.codec import (
    Deltas,
    Scored,
    Tuned,
    decode_deltas,
    decode_scored,
    decode_state,
    decode_sums,
    encode_state,
    settled,
)

# Kinds of changes that replace the state; the new one is stored as a checkpoint.
#
# TUNED     the state that `save` was given
# STARTED   start values, at the first feedback
# RESTORED  the state of an earlier epoch
# SWITCHED  a candidate
# RESET     start values, in place of the thresholds of another version
# REGULAR   not a change: a checkpoint of the state as it is
TUNED = "tuned"
STARTED = "started"
RESTORED = "restored"
SWITCHED = "switched"
REGULAR = "kept"
RESET = "reset"

# Kinds of changes that do not replace the state.
#
# FEEDBACK  a block of feedback (`codec.Deltas`)
# SCORED    a block of feedback that a candidate was scored on (`codec.Scored`)
# HALVED    all counters were halved
# SHADOWED  a candidate was put beside the state
# DROPPED   the candidate was taken away
FEEDBACK = "feedback"
SCORED = "scored"
HALVED = "halved"
SHADOWED = "shadowed"
DROPPED = "dropped"

MOVES = frozenset((FEEDBACK, SCORED, HALVED, SHADOWED, DROPPED))

# The most checkpoints of a version; the oldest are removed first.
CHECKPOINTS_MAX = 32

# How many regular checkpoints (REGULAR) the log reaches back.
#
# If there are fewer, it reaches back to the oldest checkpoint of all. Every epoch since then can be
# restored.
LOGGED_CHECKPOINTS = 3

# The statements that run for every block of feedback, and at each look at the database.
_OF_VERSION = select(VERSIONS).where(
    VERSIONS.c.model == bindparam("model"), VERSIONS.c.version == bindparam("version")
)
_FIND_HEAD = Compiled(_OF_VERSION)
_LOCK_HEAD = Compiled(_OF_VERSION.with_for_update())
_ALL_HEADS = Compiled(select(VERSIONS))
_LOG_CHANGE = Compiled(insert(LOG))
_MOVE_HEAD = Compiled(
    update(VERSIONS).where(VERSIONS.c.id == bindparam("key")), ("epoch", "base_epoch", "n_events")
)


class Head(NamedTuple):
    """A row of `threshold_versions`: the state of one version's thresholds.

    epoch       of the last change
    base_epoch  of the last change, other than STARTED, that replaced the state: predictions from
                before it do not count
    n_events    events of feedback counted so far
    digest      of the version's manifest; None: not known yet
    """

    id: int
    model: str
    version: int
    epoch: int
    base_epoch: int
    n_events: int
    digest: str | None = None

    @property
    def place(self) -> str:
        """Return the name of the version, for errors."""
        return f"model {self.model} version {self.version}"


class Change(NamedTuple):
    """A row of `threshold_log`; `created_at` is in seconds since 1970.

    sums  as `codec.encode_sums` returns it
    """

    epoch: int
    kind: str
    payload: bytes
    created_at: float
    sums: bytes | None = None


class Checkpoint(NamedTuple):
    """A state that can be restored, without its bytes."""

    epoch: int
    kind: str
    created_at: float


def lock_head(connection: Connection, model: str, version: int, digest: str | None = None) -> Head:
    """Return a version's head, locked until the transaction ends; epoch 0 if it had none.

    A head without a digest gets the given one. Raises as `find_head`.
    """
    head = find_head(connection, model, version, digest, lock=True)
    if head is None:
        connection.execute(
            insert_new(connection, VERSIONS),
            {"model": model, "version": version, "epoch": 0, "base_epoch": 0, "n_events": 0},
        )
        head = find_head(connection, model, version, digest, lock=True)
        assert head is not None
    if head.digest is None and digest is not None:
        head = _set_digest(connection, head, digest)
    return head


def find_head(
    connection: Connection,
    model: str,
    version: int,
    digest: str | None = None,
    *,
    lock: bool = False,
) -> Head | None:
    """Return a version's head; None if it has no thresholds.

    digest  of the version's manifest; None: the caller does not know it
    lock    whether the row is locked until the transaction ends

    Raises ForeignThresholds for a head with another digest.
    """
    row = (
        (_LOCK_HEAD if lock else _FIND_HEAD)
        .run(connection, model=model, version=version)
        .fetchone()
    )
    if row is None:
        return None
    head = Head._make(row)
    if None not in (digest, head.digest) and digest != head.digest:
        raise ForeignThresholds(
            f"{head.place}: expected thresholds of the version with digest "
            f"{str(digest)[:12]}, found those "
            f"of {str(head.digest)[:12]}: the store was made anew, or another store uses the "
            "database; "
            "xylem thresholds --reset starts them anew"
        )
    return head


def _set_digest(connection: Connection, head: Head, digest: str) -> Head:

    connection.execute(update(VERSIONS).where(VERSIONS.c.id == head.id).values(digest=digest))
    return head._replace(digest=digest)


def all_heads(connection: Connection) -> list[Head]:
    """Return the heads of all versions that have thresholds."""
    return [Head._make(row) for row in _ALL_HEADS.run(connection)]


def changes_since(connection: Connection, head: Head, epoch: int) -> list[Change] | None:
    """Return the changes after `epoch` up to the head's, in order; None if some are missing."""
    changes = [
        Change(*row)
        for row in connection.execute(
            select(LOG.c.epoch, LOG.c.kind, LOG.c.payload, LOG.c.created_at, LOG.c.sums)
            .where(LOG.c.version_id == head.id, LOG.c.epoch > epoch, LOG.c.epoch <= head.epoch)
            .order_by(LOG.c.epoch)
        )
    ]
    return changes if len(changes) == head.epoch - epoch else None


def read_state(connection: Connection, head: Head, epoch: int | None = None) -> Tuned:
    """Return the state of an epoch (default: the head's), from a checkpoint and the log since then.

    Raises BadParameter for an epoch that is no longer stored, or not there yet.
    """
    epoch = head.epoch if epoch is None else epoch
    query = select(CHECKPOINTS.c.epoch, CHECKPOINTS.c.state).where(
        CHECKPOINTS.c.version_id == head.id, CHECKPOINTS.c.epoch <= min(epoch, head.epoch)
    )
    # An older release beside this one stores checkpoints without the objective. Then the newest one
    # with an objective counts, unless the state was replaced since.
    query = query.order_by(CHECKPOINTS.c.epoch.desc()).limit(1)
    for newest in (query.where(CHECKPOINTS.c.objective.is_not(None)), query):
        row = connection.execute(newest).one_or_none()
        if row is None:
            continue
        changes = changes_since(connection, head._replace(epoch=epoch), row.epoch)
        if changes is not None and all(change.kind in MOVES for change in changes):
            return _state_after(decode_state(row.state), changes)
    raise BadParameter(f"{head.place}: expected an epoch that is kept, found {epoch}")


def _state_after(tuned: Tuned, changes: Sequence[Change]) -> Tuned:
    """Return the state after changes that do not replace it; it is changed in place."""
    for change in changes:
        if change.kind == HALVED:
            halve(tuned)
        deltas = deltas_of(change, len(tuned.thresholds))
        if deltas is not None:
            add_deltas(tuned, deltas)
    return settled(tuned)


def present_state(connection: Connection, head: Head) -> Tuned:
    """Return the state of the head's epoch.

    Raises DatabaseUnavailable if the database lacks a part of it.
    """
    try:
        return read_state(connection, head)
    except BadParameter as error:
        raise DatabaseUnavailable(str(error)) from error


def deltas_of(change: Change, n_labels: int) -> Deltas | None:
    """Return the changes to the thresholds in force; None if the change was no feedback."""
    if change.kind == SCORED:
        return scored_of(change, n_labels).served
    return (
        decode_deltas(change.payload, n_labels)._replace(sums=decode_sums(change.sums)[0])
        if change.kind == FEEDBACK
        else None
    )


def scored_of(change: Change, n_labels: int) -> Scored:
    """Return the changes by feedback that a candidate was scored on, with both arrays of sums."""
    scored = decode_scored(change.payload, n_labels)
    served, candidate = decode_sums(change.sums)
    return scored._replace(
        served=scored.served._replace(sums=served),
        candidate=scored.candidate._replace(sums=candidate),
    )


def add_deltas(tuned: Tuned, deltas: Deltas) -> None:
    """Apply the changes of feedback to a state, in place."""
    tuned.counters.hits[deltas.labels] += deltas.hits
    tuned.counters.marks[deltas.labels] += deltas.marks
    tuned.thresholds[deltas.labels] = deltas.thresholds
    tuned.aim.sums[:] += deltas.sums


def halve(tuned: Tuned) -> None:
    """Halve a state's counters in place, rounding down.

    Thresholds stay: each follows at the next event of its label.
    """
    for counters in (*tuned.counters, tuned.aim.sums):
        counters >>= 1


def checkpoints(connection: Connection, head: Head) -> list[Checkpoint]:
    """Return the checkpoints, the newest first."""
    query = select(CHECKPOINTS.c.epoch, CHECKPOINTS.c.kind, CHECKPOINTS.c.created_at)
    query = query.where(CHECKPOINTS.c.version_id == head.id).order_by(CHECKPOINTS.c.epoch.desc())
    return [Checkpoint(*row) for row in connection.execute(query)]


def replace_state(connection: Connection, head: Head, kind: str, tuned: Tuned) -> Head:
    """Replace the present state; return the version's new head, which is still locked."""
    head = append(connection, head, kind)
    keep_state(connection, head, kind, tuned)
    return head


def keep_state(connection: Connection, head: Head, kind: str, tuned: Tuned) -> None:
    """Store the state of the head's epoch as a checkpoint, and remove what is too old.

    Removed are checkpoints beyond CHECKPOINTS_MAX, and the log that nobody needs any more.
    """
    connection.execute(
        insert_new(connection, CHECKPOINTS),
        {
            "version_id": head.id,
            "epoch": head.epoch,
            "kind": kind,
            "created_at": time.time(),
            "state": encode_state(tuned),
            "objective": tuned.aim.objective,
        },
    )
    states = checkpoints(connection, head)
    oldest = states[:CHECKPOINTS_MAX][-1].epoch
    regular = [checkpoint.epoch for checkpoint in states if checkpoint.kind == REGULAR]
    log_start = max(oldest, *regular[LOGGED_CHECKPOINTS - 1 : LOGGED_CHECKPOINTS], 0)
    log_start = min(
        log_start,
        *connection.execute(
            select(SHADOWS.c.epoch).where(SHADOWS.c.version_id == head.id)
        ).scalars(),
        head.epoch,
    )
    connection.execute(
        delete(CHECKPOINTS).where(CHECKPOINTS.c.version_id == head.id, CHECKPOINTS.c.epoch < oldest)
    )
    connection.execute(delete(LOG).where(LOG.c.version_id == head.id, LOG.c.epoch <= log_start))


def find_secret(connection: Connection, name: str) -> bytes | None:
    """Return a secret by its name; None if it has not been made yet."""
    secret: bytes | None = connection.execute(
        select(SECRETS.c.value).where(SECRETS.c.name == name)
    ).scalar()
    return secret


def shared_secret(connection: Connection, name: str, n_bytes: int) -> bytes:
    """Return a secret by its name, the same for all replicas; the first caller makes it."""
    connection.execute(
        insert_new(connection, SECRETS), {"name": name, "value": os.urandom(n_bytes)}
    )
    return bytes(
        connection.execute(select(SECRETS.c.value).where(SECRETS.c.name == name)).scalar_one()
    )


class ThresholdDatabase:
    """Saves, reads, restores and deletes thresholds, for `xylem thresholds` and for admins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, model: str, version: int, tuned: Tuned, digest: str | None = None) -> int:
        """Save the thresholds of a version, durably; return their epoch, larger than any before.

        Servers that share the database use them within `threshold_refresh_ms`. Here and below,
        `digest` is that of the version's manifest (`find_head`). Raises DatabaseUnavailable,
        ForeignThresholds.
        """
        with self._database.write() as connection:
            return replace_state(
                connection, lock_head(connection, model, version, digest), TUNED, settled(tuned)
            ).epoch

    def reset(self, model: str, version: int, start: Tuned, digest: str) -> int:
        """Replace all that the database has of a version by start values and the version's digest.

        It is for a version with the name of an earlier one: predictions of the earlier version do
        not count from now on, and none of its states can be restored. Returns the new epoch.
        Raises DatabaseUnavailable.
        """
        with self._database.write() as connection:
            head = _set_digest(connection, lock_head(connection, model, version), digest)
            for table in (LOG, CHECKPOINTS, SHADOWS):
                connection.execute(delete(table).where(table.c.version_id == head.id))
            return replace_state(connection, head, RESET, start).epoch

    def load(self, model: str, version: int, digest: str | None = None) -> Tuned | None:
        """Return the newest thresholds of a version, with all feedback; None if it has none.

        Raises DatabaseUnavailable, ForeignThresholds.
        """
        with self._database.read() as connection:
            head = find_head(connection, model, version, digest)
            return None if head is None or head.epoch == 0 else present_state(connection, head)

    def restore(self, model: str, version: int, epoch: int, digest: str | None = None) -> int:
        """Restore the state of an epoch, as a new epoch; return the new epoch.

        Feedback since the old epoch does not count any more; its events are still known, and will
        not be counted again. Raises BadParameter for an epoch that is no longer stored, NotTuned if
        there are no thresholds, DatabaseUnavailable.
        """
        with self._database.write() as connection:
            head = lock_head(connection, model, version, digest)
            if not head.epoch:
                raise NotTuned(f"{head.place}: expected thresholds, found none")
            if not 1 <= epoch <= head.epoch:
                raise BadParameter(
                    f"{head.place}: expected an epoch from 1 to {head.epoch}, found {epoch}"
                )
            return replace_state(
                connection, head, RESTORED, read_state(connection, head, epoch)
            ).epoch

    def delete(self, model: str, version: int) -> bool:
        """Remove all that the database has of a version; return whether it had anything.

        It is for a version that no longer exists: a process that still has it open starts its
        thresholds again. The keys of its events stay stored, so that no event counts again. Raises
        DatabaseUnavailable.
        """
        with self._database.write() as connection:
            head = find_head(connection, model, version, lock=True)
            if head is None:
                return False
            for table in (LOG, CHECKPOINTS, SHADOWS):
                connection.execute(delete(table).where(table.c.version_id == head.id))
            connection.execute(delete(VERSIONS).where(VERSIONS.c.id == head.id))
        return True


def append(
    connection: Connection,
    head: Head,
    kind: str,
    payload: bytes = b"",
    n_events: int = 0,
    sums: bytes | None = None,
) -> Head:
    """Log a change; return the version's new head, which is still locked.

    sums  as `codec.encode_sums` returns it
    """
    epoch = head.epoch + 1
    base_epoch = epoch if kind in (TUNED, RESTORED, SWITCHED, RESET) else head.base_epoch
    _LOG_CHANGE.run(
        connection,
        version_id=head.id,
        epoch=epoch,
        kind=kind,
        created_at=time.time(),
        payload=payload,
        sums=sums,
    )
    new = head._replace(epoch=epoch, base_epoch=base_epoch, n_events=head.n_events + n_events)
    _MOVE_HEAD.run(
        connection, key=head.id, epoch=epoch, base_epoch=base_epoch, n_events=new.n_events
    )
    return new


class ForeignThresholds(DatabaseUnavailable, code="thresholds-foreign"):
    """Thresholds in the database that belong to another version of the same name."""
