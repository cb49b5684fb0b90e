"""Feedback as requests say it -> events that can be counted, or why one cannot be.

Bodies whose events are all alike (instances that are texts or sparse, or prediction_ids): msgspec reads the
envelopes, which are declared here, and kernels the instances, as lines of a batch. What is more, or not
right, is left to the models of requests, which say what is wrong with it.
"""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

from model_store.names import NameTable, find_all
from service.base.errors import BadInput, UnknownLabel
from service.base.rows import LabelRows, SparseRows, offsets
from service.base.settings import Limits
from service.features import Featurizer
from service.features.text_lines import read_sparse_lines, text_rows_of_lines
from service.serving.lines import dump
from service.serving.parse import validated
from service.serving.problems import describe_error
from service.serving.rows import rows_and_faults, transform
from service.serving.schemas.feedback import FeedbackEvent, FeedbackLineResult
from service.serving.schemas.instances import AnyInstance
from service.serving.schemas.limits import longest, utf8_length
from service.serving.served import ServedVersion
from service.thresholds.live.events import (
    NO_EPOCH,
    NO_LABELS,
    Event,
    Events,
    Result,
    event_keys,
    instances_of,
    label_rows,
)
from service.thresholds.live.tokens import Token, TokenFault, Tokens, model_hash


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


class Verdict(NamedTuple):
    """What became of an event; `reason` is a code, and there is one unless it was applied or a duplicate."""

    event_id: str | None
    result: Result
    reason: str | None = None
    detail: str | None = None


class CheckedEvent(NamedTuple):
    """An event whose fields are right, and what its prediction_id says."""

    feedback: FeedbackEvent
    token: Token | None


class VersionEvents(NamedTuple):
    """Events of one version, and the id of each as its answer repeats it."""

    ids: Sequence[str]
    events: Events


def read_sparse(
    body: bytes, served: ServedVersion, tokens: Tokens | None, limits: Limits, *, are_lines: bool
) -> VersionEvents | None:
    """Return the events of a body that `service.serving.events` reads; None: not all are sparse.

    The same as `check_event` and `to_events` make of them. Those with prediction_ids of another version, and
    those whose prediction_ids are at fault, are for the others too.
    """
    found = read_sparse_events(body, served.featurizer, served.labels, limits, are_lines=are_lines)
    if found is None:
        return None
    n_labels = served.labels.n_names
    keys, true = event_keys(served.name, found.ids), LabelRows(found.label_ptr, found.labels, n_labels)
    if all(text is None for text in found.tokens):
        return VersionEvents(found.ids, instances_of(found.rows, true, keys))
    predicted, epochs = [NO_LABELS] * len(found.ids), np.full(len(found.ids), NO_EPOCH)
    model = model_hash(served.name)
    for i, text in enumerate(found.tokens):
        if text is None:
            continue
        try:
            token = None if tokens is None else tokens.read(text, model)
        except TokenFault:
            return None
        if token is None or token.version != served.version or not _is_of(token, served):
            return None
        predicted[i], epochs[i] = token.labels, token.epoch
    return VersionEvents(found.ids, Events(keys, found.rows, true, label_rows(predicted, n_labels), epochs))


def check_event(value: Any, model: str, tokens: Tokens | None, limits: Limits) -> CheckedEvent | Verdict:
    """Return an event and what its prediction_id says, or why it cannot be used."""
    try:
        feedback = validated(value, FeedbackEvent, limits)
    except BadInput as error:
        event_id = value.get("event_id") if isinstance(value, dict) else None
        return refused(event_id if isinstance(event_id, str) else None, error)
    text = feedback.token
    if text is None:
        return CheckedEvent(feedback, None)
    try:
        if tokens is None:
            raise TokenFault("forged", "expected a prediction_id that was signed, but no key is known yet")
        return CheckedEvent(feedback, tokens.read(text, model_hash(model)))
    except TokenFault as fault:
        result: Result = "late" if fault.reason == "expired" else "rejected"
        return Verdict(feedback.event_id, result, f"prediction-{fault.reason}", str(fault))


def to_events(
    checked: Sequence[CheckedEvent], served: ServedVersion, *, keep: bool = False
) -> list[Event | Verdict]:
    """Return what can be counted, or why it cannot, for events of one version.

    keep  whether instances are kept as rows
    """
    rows = _to_rows([one.feedback.given for one in checked], served.featurizer)
    labels = _label_ids([one.feedback.labels for one in checked], served.labels)
    keys = event_keys(served.name, [one.feedback.event_id for one in checked])
    events: list[Event | Verdict] = []
    for (feedback, token), row, ids, key in zip(checked, rows, labels, keys, strict=True):
        if isinstance(ids, BadInput):
            events.append(refused(feedback.event_id, ids))
            continue
        if isinstance(row, BadInput):
            events.append(refused(feedback.event_id, row))
            continue
        line = None
        if keep and feedback.given is not None:
            kept = {"event_id": feedback.event_id, **feedback.given.model_dump(), "labels": feedback.labels}
            line = dump(kept)
        if token is None:
            events.append(Event(key, ids, row, line=line))
            continue
        if not _is_of(token, served):
            fault = "expected a prediction of this version, found labels that it does not have"
            events.append(Verdict(feedback.event_id, "rejected", "prediction-forged", fault))
            continue
        events.append(Event(key, ids, None, token.labels, token.epoch, line))
    return events


def refused(event_id: str | None, error: BadInput) -> Verdict:
    """Return the verdict on an event that is at fault."""
    described = describe_error(error)
    place = f"{error.path}: " if error.path else ""
    return Verdict(event_id, "rejected", described["code"], f"{place}{error}")


def verdict_on(event_id: str | None, result: Result) -> Verdict:
    """Return the verdict on an event that the writer has dealt with."""
    if result != "late":
        return Verdict(event_id, result)
    detail = "expected a prediction at thresholds in force, found one from before they were tuned or restored"
    return Verdict(event_id, result, "thresholds-replaced", detail)


def verdict_line(verdict: Verdict, line: int | None = None) -> FeedbackLineResult:
    """Return what an answer says of an event; of one that was not counted also in which line it stands."""
    said: FeedbackLineResult = {"event_id": verdict.event_id, "result": verdict.result}
    if verdict.reason is None:
        return said
    if verdict.event_id is None:
        del said["event_id"]
    said["reason"] = verdict.reason
    if verdict.detail is not None:
        said["detail"] = verdict.detail
    if line is not None:
        said["line"] = line
    return said


def _is_of(token: Token, served: ServedVersion) -> bool:
    """Return whether the version has the labels that a prediction says it had."""
    labels = token.labels
    return not len(labels) or bool(0 <= labels[0] <= labels[-1] < served.labels.n_names)


def _to_rows(
    instances: Sequence[AnyInstance | None], featurizer: Featurizer
) -> list[SparseRows | BadInput | None]:
    """Return the row of each instance, or why the model does not take it; None where there is no instance."""
    given = [instance for instance in instances if instance is not None]
    rows, faults = rows_and_faults(given, featurizer, transform)
    next_row = iter(range(rows.n_rows))
    next_fault = iter(faults)
    found: list[SparseRows | BadInput | None] = []
    for instance in instances:
        if instance is None:
            found.append(None)
        else:
            fault = next(next_fault)
            found.append(_row(rows, next(next_row)) if fault is None else fault.within("instance"))
    return found


def _row(rows: SparseRows, i: int) -> SparseRows:
    first, last = rows.indptr.item(i), rows.indptr.item(i + 1)
    indptr = np.array((0, last - first))
    return SparseRows(indptr, rows.indices[first:last], rows.values[first:last], rows.n_features)


def _label_ids(names: Sequence[list[str]], table: NameTable) -> list[NDArray[np.int32] | BadInput]:
    """Return the ids of the labels of each event, ascending, or which of them the model does not have."""
    ids = find_all(table, chain.from_iterable(names)).tolist()
    found: list[NDArray[np.int32] | BadInput] = []
    end = 0
    for some in names:
        start, end = end, end + len(some)
        own = sorted(set(ids[start:end]))
        if own and own[0] < 0:
            i = ids.index(-1, start) - start
            fault = UnknownLabel(f"expected labels of the model, found {some[i][:80]!r}")
            found.append(fault.at(f"labels[{i}]"))
        else:
            found.append(np.array(own, np.int32))
    return found
