"""A label's threshold over time: from the states that are kept, and from the log since."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from service.db.tables import CHECKPOINTS, LOG
from service.thresholds.store.codec import decode_state
from service.thresholds.store.state import FEEDBACK, SCORED, Change, Head, deltas_of

POINTS_MAX = 200
"""Points that are told of a label, at most: of more the first, the last, and evenly many between."""

STATE_LABELS_MAX = 4_000_000
"""Labels of states that are read, at most, the newest states first; the newest is read in any case."""

CHANGES_MAX = 4096
"""Changes of the log that are read, at most, the newest first."""

PAYLOAD_BYTES_MAX = 32_000_000
"""Bytes of such changes, at most."""

_PAGE = 256


class PastThreshold(NamedTuple):
    """A label's threshold from an epoch on; `kind` is that of the change, `at` seconds since 1970."""

    epoch: int
    at: float
    kind: str
    threshold: np.float32


def label_history(connection: Connection, head: Head, label: int, n_labels: int) -> list[PastThreshold]:
    """Return a label's thresholds as far as the database still has them, ascending by epoch.

    The states that are kept tell of an epoch each; the log, which reaches back some thousands of changes,
    tells of every change. Where both are silent the threshold may have moved unseen. At most POINTS_MAX.
    Raises DatabaseUnavailable for bytes that are none of ours.
    """
    found = {point.epoch: point for point in _logged(connection, head, label, n_labels)}
    found |= {point.epoch: point for point in _kept(connection, head, label, n_labels)}
    points = [found[epoch] for epoch in sorted(found)]
    if len(points) <= POINTS_MAX:
        return points
    return [points[i] for i in np.linspace(0, len(points) - 1, POINTS_MAX).astype(int).tolist()]


def _kept(connection: Connection, head: Head, label: int, n_labels: int) -> Iterator[PastThreshold]:
    """Yield what the states that are kept say of a label."""
    table = CHECKPOINTS.c
    query = select(table.epoch, table.created_at, table.kind, table.state)
    query = query.where(table.version_id == head.id, table.epoch <= head.epoch)
    n_states = max(1, STATE_LABELS_MAX // n_labels)
    for epoch, at, kind, state in connection.execute(query.order_by(table.epoch.desc()).limit(n_states)):
        thresholds = decode_state(state).thresholds
        if label < len(thresholds):
            yield PastThreshold(epoch, at, kind, thresholds[label])


def _logged(connection: Connection, head: Head, label: int, n_labels: int) -> Iterator[PastThreshold]:
    """Yield the label's threshold after each change of the log that moved it, the newest first."""
    room, table = PAYLOAD_BYTES_MAX, LOG.c
    query = select(table.epoch, table.kind, table.payload, table.created_at).where(
        table.version_id == head.id, table.epoch <= head.epoch, table.kind.in_((FEEDBACK, SCORED))
    )
    query = query.order_by(table.epoch.desc()).limit(CHANGES_MAX).execution_options(yield_per=_PAGE)
    for change in map(Change._make, connection.execute(query)):
        room -= len(change.payload)
        if room < 0:
            return
        deltas = deltas_of(change, n_labels)
        assert deltas is not None
        place = int(np.searchsorted(deltas.labels, label))
        if place < len(deltas.labels) and deltas.labels[place] == label:
            yield PastThreshold(change.epoch, change.at, FEEDBACK, deltas.thresholds[place])
