"""Events of feedback as columns, which kernels go through."""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.base.rows import LabelRows, SparseRows, offsets
from service.db import EVENT_KEY_BYTES

NO_EPOCH = -1
"""The epoch of an event whose instance is predicted when it is counted."""

ALL_COUNT = np.empty(0, np.uint8)
"""No label is passed over when events are counted."""

NO_LABELS = np.empty(0, np.int32)
"""The labels of an event that has none."""

Result = Literal["applied", "duplicate", "late", "rejected"]
"""What became of an event."""


class Events(NamedTuple):
    """Events of one version in their order; the i-th row of each column is of the i-th event.

    keys       EVENT_KEY_BYTES each; none where nobody asks whether an event is new
    rows       the instances; empty where there is none
    labels     the true labels
    predicted  the labels that were predicted; empty where there is an instance
    epochs     int64[n]: of the predictions; NO_EPOCH where there is an instance
    lines      what is kept of each event as a row to train on; none where nothing is kept of any
    """

    keys: Sequence[bytes]
    rows: SparseRows
    labels: LabelRows
    predicted: LabelRows
    epochs: NDArray[np.int64]
    lines: Sequence[bytes | None] = ()


def event_keys(model: str, event_ids: Sequence[str]) -> list[bytes]:
    """Return the EVENT_KEY_BYTES by which each event of a model is remembered."""
    of_model = hashlib.blake2b(model.encode() + b"\0", digest_size=EVENT_KEY_BYTES, person=b"xylem-event")
    keys = []
    for event_id in event_ids:
        hashed = of_model.copy()
        hashed.update(event_id.encode())
        keys.append(hashed.digest())
    return keys


def instances_of(rows: SparseRows, labels: LabelRows, keys: Sequence[bytes] = ()) -> Events:
    """Return rows with their true labels as events, to be predicted when they are counted."""
    predicted = LabelRows(np.zeros(rows.n_rows + 1, np.int64), NO_LABELS, labels.n_labels)
    return Events(keys, rows, labels, predicted, np.full(rows.n_rows, NO_EPOCH))


def join(blocks: Sequence[Events]) -> Events:
    """Return the events of blocks of one version, one block after the other."""
    if len(blocks) == 1:
        return blocks[0]
    return Events(
        [key for block in blocks for key in block.keys],
        SparseRows.join([block.rows for block in blocks]),
        LabelRows.join([block.labels for block in blocks]),
        LabelRows.join([block.predicted for block in blocks]),
        np.concatenate([block.epochs for block in blocks]),
        [line for block in blocks for line in block.lines or [None] * len(block.keys)],
    )


def label_rows(labels: Sequence[NDArray[np.int32]], n_labels: int) -> LabelRows:
    """Return the labels of each event as rows."""
    return LabelRows(offsets(map(len, labels)), np.concatenate([NO_LABELS, *labels]), n_labels)
