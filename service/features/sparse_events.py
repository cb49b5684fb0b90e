"""Feedback whose events are instances of one kind or prediction ids, with labels of the model, nothing odd.

Such events become rows and label ids by a kernel, without an object for each number and name. As with bodies
of predict requests, what is more, or not right, is left to the models, which say what is wrong with it. The
instances are sparse, or texts.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from model_store.compiled.handles import Handle, handle_of, struct_at
from model_store.names import NameTable, probe
from service.features.featurizer import Featurizer
from service.features.text_featurizer import TextFeaturizer, body_texts
from service.features.weights import NORM_CODES, normalise_rows
from service.kernels.text.sort_and_sum import sort_and_sum_rows, sort_labels
from service.kernels.text.sparse_json import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    END,
    OPEN,
    OPEN_LIST,
    after,
    after_key,
    first_item,
    next_item,
    read_instance,
    skip_blanks,
)
from service.kernels.text.texts import BodyTexts, is_text, read_text
from service.rows import SparseRows

_EVENTS = np.frombuffer(b'"events"', np.uint8)
_EVENT_ID = np.frombuffer(b'"event_id"', np.uint8)
_INSTANCE = np.frombuffer(b'"instance"', np.uint8)
_LABELS = np.frombuffer(b'"labels"', np.uint8)
_PREDICTION_ID = np.frombuffer(b'"prediction_id"', np.uint8)
_HAS_ONE = (b'"indices"', b'"prediction_id"', b'"text"')
"""Names of which such an event has one."""
_QUOTE, _BACKSLASH, _FIRST, _FIRST_NOT_ASCII = 34, 92, 32, 128
_E, _I, _L = 101, 105, 108
_HAS_ID, _HAS_INSTANCE, _HAS_TOKEN, _HAS_LABELS = 1, 2, 4, 8

_ID_START, _ID_END, _TOKEN_START, _TOKEN_END = range(4)
_BYTES_AN_EVENT, _BYTES_A_FEATURE, _BYTES_A_LABEL = 32, 4, 3
"""A sparse event, a feature of it and a label of it have so many bytes at least."""


_Names: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int32]]
"""The fields of a NameTable."""

_EventArrays: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.float32],
    NDArray[np.int64],
    NDArray[np.int32],
]
"""Where events are read to: places of ids and tokens int64[n, 4]; indptr, indices, values of the rows;
indptr, indices of the labels."""


class EventLimits(NamedTuple):
    """The most events of a body, labels of an event, bytes of a label and of an id, features of an event,
    and bytes of its text."""

    events: int
    labels: int
    label_bytes: int
    id_bytes: int
    features: int
    text_bytes: int


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
    body: bytes, featurizer: Featurizer, labels: NameTable, limits: EventLimits, *, are_lines: bool
) -> SparseEvents | None:
    """Return the events that a body has; None: not all are for the kernel.

    are_lines  the body is lines of one event each; otherwise one event, or {"events": [...]}

    About a nanosecond a byte. Thread-safe.
    """
    if not any(name in body for name in _HAS_ONE):
        return None  # making room for what is not there costs as much as reading it
    n_bytes = len(body)
    n_most = min(limits.events, n_bytes // _BYTES_AN_EVENT + 1)
    spans = np.empty((n_most, 4), np.int64)
    row_ptr, label_ptr = np.zeros(n_most + 1, np.int64), np.zeros(n_most + 1, np.int64)
    n_features = n_bytes // _BYTES_A_FEATURE + 1
    indices, values = np.empty(n_features, np.int32), np.empty(n_features, np.float32)
    label_ids = np.empty(n_bytes // _BYTES_A_LABEL + 1, np.int32)
    texts = body_texts(featurizer, n_most, n_bytes, limits.text_bytes)
    n = _read(
        np.frombuffer(body + b"\n\0", np.uint8),
        are_lines,
        np.array(limits, np.int64),
        featurizer.n_features,
        NORM_CODES[featurizer.parameters.norm],
        labels[:],
        (spans, row_ptr, indices, values, label_ptr, label_ids),
        handle_of(texts),
    )
    if n == 0:
        return None
    row_ptr, label_ptr = row_ptr[: n + 1], label_ptr[: n + 1]
    end = row_ptr.item(n)
    rows = SparseRows(row_ptr, indices[:end], values[:end], featurizer.n_features)
    if len(texts.text_ptr) and texts.text_ptr[n] and isinstance(featurizer, TextFeaturizer):
        rows = featurizer.rows_of_read(texts, n)
    text = body.decode("latin-1")  # of ids and tokens, which are ASCII: one character a byte
    places = spans[:n].tolist()
    return SparseEvents(
        [text[start:stop] for start, stop, _, _ in places],
        [text[start:stop] if stop else None for _, _, start, stop in places],
        rows,
        label_ptr,
        label_ids[: label_ptr.item(n)],
    )


@kernel
def _read(
    data: NDArray[np.uint8],
    are_lines: bool,
    limits: NDArray[np.int64],
    n_features: int,
    norm: int,
    names: _Names,
    out: _EventArrays,
    texts_at: Handle,
) -> int:
    """Read a body; return the number of its events, 0: not all are for kernels.

    Texts are read to the BodyTexts at the handle; an event without one has an empty one there.
    """
    spans_out, row_ptr_out, indices_out, values_out, label_ptr_out, labels_out = out
    texts = struct_at(BodyTexts, texts_at)
    i, n = 0, 0
    first = _after_name(data, after(data, 0, OPEN), _EVENTS)
    is_list = not are_lines and first < len(data) - 1
    if is_list:
        i = after(data, first, OPEN_LIST)
    while True:
        if n == len(spans_out):
            return 0
        i = _read_event(data, i, n, limits, n_features, names, out, texts)
        n += 1
        i = skip_blanks(data, i)
        is_more = (is_list and data[i] == COMMA) or (are_lines and data[i] == END and i < len(data) - 2)
        if not is_more:
            break
        i += 1
    if is_list:
        i = skip_blanks(data, after(data, after(data, i, CLOSE_LIST), CLOSE))
    if data[i] != END or i != len(data) - 2:
        return 0
    if len(texts.ready) > 0 and texts.text_ptr[n] > 0 and row_ptr_out[n] > 0:
        return 0
    _, bad = sort_and_sum_rows(row_ptr_out[: n + 1], indices_out, values_out)
    if bad >= 0:
        return 0
    normalise_rows(row_ptr_out[: n + 1], values_out, norm)
    sort_labels(label_ptr_out[: n + 1], labels_out)
    return n


@inlined
def _read_event(
    data: NDArray[np.uint8],
    i: int,
    n: int,
    limits: NDArray[np.int64],
    n_features: int,
    names: _Names,
    out: _EventArrays,
    texts: BodyTexts,
) -> int:
    """Read the event at data[i], the n-th; return the place after it, the last of all: it is for others."""
    spans_out, row_ptr_out, _, _, label_ptr_out, labels_out = out
    last = len(data) - 1
    _, n_labels_max, label_bytes_max, id_bytes_max, n_features_max, _ = limits
    spans_out[n] = 0
    row_ptr_out[n + 1], label_ptr_out[n + 1] = row_ptr_out[n], label_ptr_out[n]
    if len(texts.ready) > 0:
        texts.text_ptr[n + 1] = texts.text_ptr[n]
    has = 0
    i = after(data, i, OPEN)
    while i < last:
        i = skip_blanks(data, i)
        letter = data[i + 1] if data[i] == _QUOTE else np.uint8(0)
        if letter == _E and not has & _HAS_ID:
            has |= _HAS_ID
            start, i = _read_ascii(data, _after_name(data, i, _EVENT_ID))
            spans_out[n, _ID_START], spans_out[n, _ID_END] = start, i - 1
            if not 1 <= i - 1 - start <= id_bytes_max:
                return last
        elif letter == _I and not has & _HAS_INSTANCE:
            has |= _HAS_INSTANCE
            i = _read_event_instance(data, _after_name(data, i, _INSTANCE), n, n_features, out, texts)
            if row_ptr_out[n + 1] - row_ptr_out[n] > n_features_max:
                return last
        elif letter == _L and not has & _HAS_LABELS:
            has |= _HAS_LABELS
            i = after(data, _after_name(data, i, _LABELS), OPEN_LIST)
            i, label_ptr_out[n + 1] = _read_labels(
                data, i, label_bytes_max, names, labels_out, label_ptr_out[n]
            )
            if label_ptr_out[n + 1] - label_ptr_out[n] > n_labels_max:
                return last
        elif not has & _HAS_TOKEN:
            has |= _HAS_TOKEN
            start, i = _read_ascii(data, _after_name(data, i, _PREDICTION_ID))
            spans_out[n, _TOKEN_START], spans_out[n, _TOKEN_END] = start, i - 1
        else:
            return last
        i = skip_blanks(data, i)
        if data[i] != COMMA:
            break
        i += 1
    if has != _HAS_ID | _HAS_LABELS | _HAS_INSTANCE and has != _HAS_ID | _HAS_LABELS | _HAS_TOKEN:
        return last
    return after(data, i, CLOSE)


@inlined
def _read_event_instance(
    data: NDArray[np.uint8], i: int, n: int, n_features: int, out: _EventArrays, texts: BodyTexts
) -> int:
    """Read the n-th event's instance, a text or sparse; return the place after it."""
    _, row_ptr_out, indices_out, values_out, _, _ = out
    if len(texts.ready) > 0 and is_text(data, i):
        i, _ = read_text(data, i, texts, n, 0)
        return i
    start = row_ptr_out[n]
    i, row_ptr_out[n + 1] = read_instance(data, i, n_features, indices_out, values_out, start)
    return i


@kernel
def _after_name(data: NDArray[np.uint8], i: int, name: NDArray[np.uint8]) -> int:
    """Return the place after a field's name and the colon; the last of all if they are not there."""
    return after(data, after_key(data, i, name), COLON)


@kernel
def _read_ascii(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Read a string of ASCII without escapes; return (where its text starts, the place after the quote)."""
    start, end = _read_string(data, i)
    for k in range(start, end - 1):
        if data[k] >= _FIRST_NOT_ASCII:
            return start, len(data) - 1
    return start, end


@kernel
def _read_string(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Read a string without escapes; return (where its text starts, the place after the quote)."""
    start = after(data, i, _QUOTE)
    i = start
    while data[i] >= _FIRST and data[i] != _QUOTE and data[i] != _BACKSLASH:
        i += 1
    return start, i + 1 if data[i] == _QUOTE else len(data) - 1


@inlined
def _read_labels(
    data: NDArray[np.uint8],
    i: int,
    bytes_max: int,
    names: _Names,
    labels_out: NDArray[np.int32],
    n: int,
) -> tuple[int, int]:
    """Read names of labels from after the bracket to after its fellow into labels_out[n:]; as `read_ids`."""
    last = len(data) - 1
    offsets, utf8, slots = names
    i, is_end = first_item(data, i)
    while not is_end:
        start, i = _read_string(data, i)
        if i == last or i - 1 - start > bytes_max:
            return last, n
        label = slots[probe(offsets, utf8, slots, data, start, i - 1)]
        if label < 0:
            return last, n
        labels_out[n] = label
        n += 1
        i, is_end = next_item(data, i)
    return i, n
