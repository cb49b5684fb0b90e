"""Feedback as requests say it -> events that can be counted, or why one cannot be.

Bodies whose events are all alike (instances that are texts or sparse, or prediction_ids): msgspec reads the
envelopes, which are declared here, and kernels the instances, as lines of a batch. What is more, or not
right, is left to the models of requests, which say what is wrong with it.
"""

from collections.abc import Sequence
from itertools import chain, count, islice
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
from service.serving.schemas.limits import longest, utf8_length
from service.serving.served import ServedVersion
from service.thresholds.live.events import (
    NO_EPOCH,
    NO_LABELS,
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


def read_sparse(
    body: bytes, served: ServedVersion, tokens: Tokens | None, limits: Limits, *, are_lines: bool
) -> tuple[list[str], Events] | None:
    """Return the events that a body has, and the id of each; None: not all are of one such kind, or right.

    are_lines  the body is lines of one event each; otherwise one event, or {"events": [...]}

    The same as `check_event` and `to_events` make of them. Events with prediction_ids of another version, and
    those whose prediction_ids are at fault, are for the others too. Thread-safe.
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
    rows, n_labels = _rows_of(events, served.featurizer, limits), served.labels.n_names
    ids = find_all(served.labels, chain.from_iterable(event.labels for event in events)).tolist()
    if rows is None or min(ids, default=0) < 0:
        return None
    of_event = iter(ids)
    true = [sorted(set(islice(of_event, len(event.labels)))) for event in events]
    flat = np.array(list(chain.from_iterable(true)), np.int32)
    names = [event.event_id for event in events]
    found = instances_of(
        rows, LabelRows(offsets(map(len, true)), flat, n_labels), event_keys(served.name, names)
    )
    if all(event.prediction_id is UNSET for event in events):
        return names, found
    predicted, model = [NO_LABELS] * len(events), model_hash(served.name)
    for i, event in enumerate(events):
        if event.prediction_id is UNSET:
            continue
        try:
            token = None if tokens is None else tokens.read(event.prediction_id, model)
        except TokenFault:
            return None
        if token is None or token.version != served.version or not _is_of(token, served):
            return None
        predicted[i], found.epochs[i] = token.labels, token.epoch
    return names, found._replace(predicted=label_rows(predicted, n_labels))


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

    @property
    def event_id(self) -> str:
        """Return its id."""
        return self.feedback.event_id


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
) -> tuple[Events, dict[int, Verdict]]:
    """Return those events of one version that can be counted, and by place why others cannot.

    keep  whether instances are kept as rows
    """
    instances = [one.feedback.given for one in checked if one.feedback.given is not None]
    rows, faults = rows_and_faults(instances, served.featurizer, transform)
    no_row = SparseRows(np.zeros(2, np.int64), rows.indices[:0], rows.values[:0], rows.n_features)
    next_row, next_fault = count(1), iter(faults)
    labels, verdicts = _label_ids(checked, served.labels)
    places, epochs = np.zeros(len(checked), np.int64), np.full(len(checked), NO_EPOCH)
    predicted = [NO_LABELS] * len(checked)
    lines: list[bytes | None] = [None] * len(checked)
    for i, (feedback, token) in enumerate(checked):
        fault = None
        if feedback.given is not None:
            fault = next(next_fault)
            places[i] = next(next_row) if fault is None else 0
            if keep:
                given = feedback.given.model_dump()
                lines[i] = dump({"event_id": feedback.event_id, **given, "labels": feedback.labels})
        if i in verdicts:
            continue
        if fault is not None:
            verdicts[i] = refused(feedback.event_id, fault.within("instance"))
        elif token is not None and not _is_of(token, served):
            expected = "expected a prediction of this version, found labels that it does not have"
            verdicts[i] = Verdict(feedback.event_id, "rejected", "prediction-forged", expected)
        elif token is not None:
            places[i], predicted[i], epochs[i] = 0, token.labels, token.epoch
    good, n_labels = [i for i in range(len(checked)) if i not in verdicts], served.labels.n_names
    events = Events(
        event_keys(served.name, [checked[i].feedback.event_id for i in good]),
        SparseRows.join([no_row, rows]).take(places[good]),
        label_rows([labels[i] for i in good], n_labels),
        label_rows([predicted[i] for i in good], n_labels),
        epochs[good],
        [lines[i] for i in good],
    )
    return events, verdicts


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


def _label_ids(
    checked: Sequence[CheckedEvent], table: NameTable
) -> tuple[list[NDArray[np.int32]], dict[int, Verdict]]:
    """Return the ids of the labels of each event, ascending, and verdicts on those with others."""
    ids = find_all(table, chain.from_iterable(one.feedback.labels for one in checked)).tolist()
    found: list[NDArray[np.int32]] = []
    verdicts: dict[int, Verdict] = {}
    end = 0
    for event_id, some in ((one.feedback.event_id, one.feedback.labels) for one in checked):
        start, end = end, end + len(some)
        own = sorted(set(ids[start:end]))
        if own and own[0] < 0:
            i = ids.index(-1, start) - start
            fault = UnknownLabel(f"expected labels of the model, found {some[i][:80]!r}")
            verdicts[len(found)] = refused(event_id, fault.at(f"labels[{i}]"))
        found.append(np.array(own, np.int32))
    return found, verdicts
