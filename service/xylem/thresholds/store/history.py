"""The past of a label's threshold, from checkpoints and from the log."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from xylem.base import (
    CHECKPOINTS,
    LOG,
)
from xylem.thresholds.store.codec import (
    decode_state,
)
from xylem.thresholds.store.state import FEEDBACK, SCORED, Change, Head, deltas_of

# The most points of a label's history. Of more, the first, the last and evenly many between.
POINTS_MAX = 200

# The most labels of states that are read, from the newest state on; the newest is always read.
STATE_LABELS_MAX = 4_000_000

# The most changes of the log that are read, from the newest on.
CHANGES_MAX = 4096

# The most bytes of these changes.
PAYLOAD_BYTES_MAX = 32_000_000

_PAGE = 256


class PastThreshold(NamedTuple):
    """A label's threshold from an epoch on.

    at     seconds since 1970
    kind   the kind of change
    """

    epoch: int
    at: float
    kind: str
    threshold: np.float32


def label_history(
    connection: Connection, head: Head, label: int, n_labels: int
) -> list[PastThreshold]:
    """Return a label's thresholds as far as the database still has them, ascending by epoch.

    Each checkpoint has the threshold of one epoch; the log, which reaches back some thousands of
    changes, has every change. Between checkpoints that the log does not cover, the threshold may
    have moved unseen. Returns at most POINTS_MAX points. Raises DatabaseUnavailable for bytes that
    cannot be decoded.
    """
    points_by_epoch = {
        point.epoch: point
        for find_points in (_log_points, _checkpoint_points)  # checkpoints win
        for point in find_points(connection, head, label, n_labels)
    }
    points = [points_by_epoch[epoch] for epoch in sorted(points_by_epoch)]
    return (
        points
        if len(points) <= POINTS_MAX
        else [points[i] for i in np.linspace(0, len(points) - 1, POINTS_MAX).astype(int).tolist()]
    )


def _checkpoint_points(
    connection: Connection, head: Head, label: int, n_labels: int
) -> Iterator[PastThreshold]:

    table = CHECKPOINTS.c
    query = select(table.epoch, table.created_at, table.kind, table.state)
    query = query.where(table.version_id == head.id, table.epoch <= head.epoch)
    query = query.order_by(table.epoch.desc()).limit(max(1, STATE_LABELS_MAX // n_labels))
    for epoch, created_at, kind, state in connection.execute(query):
        thresholds = decode_state(state).thresholds
        if label < len(thresholds):
            yield PastThreshold(epoch, created_at, kind, thresholds[label])


def _log_points(
    connection: Connection, head: Head, label: int, n_labels: int
) -> Iterator[PastThreshold]:
    """Yield a label's threshold after each change of the log that moved it, the newest first."""
    bytes_left = PAYLOAD_BYTES_MAX
    states = CHECKPOINTS.c
    objectives = connection.execute(
        select(states.epoch, states.objective)
        .where(states.version_id == head.id, states.epoch <= head.epoch)
        .order_by(states.epoch.desc())
    ).all()
    table = LOG.c
    query = select(table.epoch, table.kind, table.payload, table.created_at).where(
        table.version_id == head.id, table.epoch <= head.epoch, table.kind.in_((FEEDBACK, SCORED))
    )
    query = query.order_by(table.epoch.desc()).limit(CHANGES_MAX).execution_options(yield_per=_PAGE)
    for row in connection.execute(query):
        change = Change(*row)
        bytes_left -= len(change.payload)
        if bytes_left < 0:
            return
        deltas = deltas_of(change, n_labels)
        assert deltas is not None
        objective = next((name for epoch, name in objectives if epoch <= change.epoch), None)
        if objective in (None, "macro"):
            place = int(np.searchsorted(deltas.labels, label))
            is_moved = place < len(deltas.labels) and deltas.labels[place] == label
        else:  # all labels have the same threshold
            place = 0
            is_moved = len(deltas.labels) > 0
        if is_moved:
            yield PastThreshold(change.epoch, change.created_at, FEEDBACK, deltas.thresholds[place])
