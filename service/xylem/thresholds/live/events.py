"""Events of feedback as columns: what was predicted for rows, and which labels are right."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import EVENT_KEY_BYTES, LabelRows, SparseRows, offsets

# The epoch of an event with an instance: it is predicted when the event is counted.
NO_EPOCH = -1

# The labels of an event without labels.
NO_LABELS = np.empty(0, np.int32)

# The result of an event.
Result = Literal["applied", "duplicate", "late", "rejected"]


class Events(NamedTuple):
    """Events of one version, in order, as columns: the i-th row of each is of the i-th event.

    keys       EVENT_KEY_BYTES each; empty if it does not matter whether an event is new
    rows       the instances; a row is empty if the event has none
    labels     the true labels
    predicted  the labels that were predicted; empty if there is an instance
    epochs     int64[n]: of the predictions; NO_EPOCH if there is an instance
    lines      the line to store as a row to train on, with the name of its sender's key, or None;
               empty if no event has one
    """

    keys: Sequence[bytes]
    rows: SparseRows
    labels: LabelRows
    predicted: LabelRows
    epochs: NDArray[np.int64]
    lines: Sequence[tuple[bytes, str] | None] = ()


def event_keys(model: str, event_ids: Sequence[str]) -> list[bytes]:
    """Return the key of each event of a model, EVENT_KEY_BYTES long, by which it is remembered."""
    prefix = model.encode() + b"\0"
    hash_key = partial(hashlib.blake2b, digest_size=EVENT_KEY_BYTES, person=b"xylem-event")
    return [hash_key(prefix + event_id.encode()).digest() for event_id in event_ids]


def instances_of(rows: SparseRows, labels: LabelRows, keys: Sequence[bytes] = ()) -> Events:
    """Return rows with their true labels as events, to be predicted when they are counted."""
    return Events(
        keys,
        rows,
        labels,
        LabelRows(np.zeros(rows.n_rows + 1, np.int64), NO_LABELS, labels.n_labels),
        np.full(rows.n_rows, NO_EPOCH),
    )


def join(blocks: Sequence[Events]) -> Events:
    """Return the events of several blocks of one version, one block after another."""
    if len(blocks) == 1:
        return blocks[0]
    return Events(
        keys=[key for block in blocks for key in block.keys],
        rows=SparseRows.join([block.rows for block in blocks]),
        labels=LabelRows.join([block.labels for block in blocks]),
        predicted=LabelRows.join([block.predicted for block in blocks]),
        epochs=np.concatenate([block.epochs for block in blocks]),
        lines=[line for block in blocks for line in block.lines or [None] * len(block.keys)],
    )


def label_rows(labels: Sequence[NDArray[np.int32]], n_labels: int) -> LabelRows:
    """Return the labels of each event as rows."""
    return LabelRows(offsets(map(len, labels)), np.concatenate([NO_LABELS, *labels]), n_labels)
