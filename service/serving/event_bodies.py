"""Bodies of feedback whose events are all alike: instances that are texts or sparse, or prediction_ids.

msgspec reads the envelopes, which are declared here, and kernels the instances, as lines of a batch. What is
more, or not right, is left to the models of requests, which say what is wrong with it.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

from model_store.names import NameTable, find_all
from service.base.errors import BadInput
from service.base.rows import SparseRows, offsets
from service.base.settings import Limits
from service.features import Featurizer
from service.features.text_lines import read_sparse_lines, text_rows_of_lines
from service.serving.schemas.limits import longest, utf8_length


class _Event(Struct, forbid_unknown_fields=True):
    event_id: str
    labels: list[str]
    instance: Raw | UnsetType = UNSET
    prediction_id: str | UnsetType = UNSET


class _Events(Struct, forbid_unknown_fields=True):
    events: list[_Event]


_read_events = msgspec.json.Decoder(_Events).decode
_read_event = msgspec.json.Decoder(_Event).decode


class SparseEvents(NamedTuple):
    """Events as a body has them.

    ids        of each event
    tokens     the prediction_id of each event, None where there is an instance
    rows       a row for each event, empty where there is a prediction_id
    label_ptr  int64[n + 1]
    labels     int32[..]: of event i labels[label_ptr[i] : label_ptr[i + 1]], ascending, without repeats
    """

    ids: list[str]
    tokens: list[str | None]
    rows: SparseRows
    label_ptr: NDArray[np.int64]
    labels: NDArray[np.int32]


def read_sparse_events(
    body: bytes, featurizer: Featurizer, labels: NameTable, limits: Limits, *, are_lines: bool
) -> SparseEvents | None:
    """Return the events that a body has; None: not all are of one such kind, or within the limits.

    are_lines  the body is lines of one event each; otherwise one event, or {"events": [...]}

    Thread-safe.
    """
    try:
        if are_lines:
            events = [_read_event(line) for line in body.split(b"\n")]
        else:
            events = _read_events(body).events if b'"events"' in body else [_read_event(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not 1 <= len(events) <= limits.events_max or not all(_is_within(event, limits) for event in events):
        return None
    rows = _rows_of(events, featurizer, limits)
    ids = find_all(labels, chain.from_iterable(event.labels for event in events)).tolist()
    if rows is None or min(ids, default=0) < 0:
        return None
    of_event = iter(ids)
    true = [sorted(set(islice(of_event, len(event.labels)))) for event in events]
    tokens = [None if event.prediction_id is UNSET else event.prediction_id for event in events]
    flat = np.array(list(chain.from_iterable(true)), np.int32)
    return SparseEvents([event.event_id for event in events], tokens, rows, offsets(map(len, true)), flat)


def _is_within(event: _Event, limits: Limits) -> bool:
    """Return whether an event has an instance or a prediction_id, and is within the limits."""
    return (
        (event.instance is UNSET) != (event.prediction_id is UNSET)
        and 0 < utf8_length(event.event_id) <= limits.event_id_bytes_max
        and len(event.labels) <= limits.label_list_max
        and longest(event.labels) <= limits.name_bytes_max
    )


def _rows_of(events: list[_Event], featurizer: Featurizer, limits: Limits) -> SparseRows | None:
    """Return the row of each event; None: they are of several kinds, or not for kernels."""
    first = next((bytes(event.instance) for event in events if event.instance is not UNSET), b"")
    are_texts = b'"text"' in first
    none = b'{"text":""}' if are_texts else b'{"indices":[],"values":[]}'
    lines = [none if event.instance is UNSET else bytes(event.instance) for event in events]
    if are_texts:
        return text_rows_of_lines(lines, featurizer, limits.text_bytes_max)
    found = read_sparse_lines(lines, limits.features_max)
    try:
        return None if found is None else featurizer.transform_csr(*found)
    except BadInput:
        return None
