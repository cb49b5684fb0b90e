"""Read events of feedback: turn them into events that can be counted, or say why not.

The fast way is for bodies whose events are all alike: texts, sparse instances or prediction_ids.
msgspec reads the envelopes, which are declared here, and kernels read the instances, as they read
lines of a batch. All other bodies, valid or not, go through the pydantic models of requests, whose
errors name the field at fault.
"""

from collections.abc import Mapping
from itertools import chain, count, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType

from xylem.base import BadInput, LabelRows, Limits, SparseRows, UnknownLabel, offsets
from xylem.engine import Featurizer
from xylem.serving.batches.lines import dump
from xylem.serving.feedback.schema import FeedbackEvent, FeedbackLineResult
from xylem.serving.feedback.tokens import Token, TokenFault, Tokens, model_hash
from xylem.serving.kernels.text_lines import read_sparse_lines, text_rows_of_lines
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import validated
from xylem.serving.problems import code_of
from xylem.serving.rows import rows_and_faults, transform
from xylem.serving.schemas.fields import longest, utf8_length
from xylem.thresholds import (
    NO_EPOCH,
    NO_LABELS,
    Events,
    Result,
    event_keys,
    instances_of,
    label_rows,
)
from xylem_store import I32, find_all


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
    """Read a body of valid events of one kind the fast way; return their ids and the events.

    Returns None for any other body, such as one with a prediction_id that is invalid or of another
    version. Then `check_event` and `to_events` read it; for a body that is read here they would
    return the same. Thread-safe.

    are_lines  whether each line is one event; otherwise the body is one event, or {"events": [...]}
    """
    try:
        if are_lines:
            events = [_read_event(line) for line in body.split(b"\n")]
        else:
            events = _read_events(body).events if b'"events"' in body else [_read_event(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not 1 <= len(events) <= limits.events_max or not all(
        _is_within(event, limits) for event in events
    ):
        return None
    rows = _rows_of(events, served.featurizer, limits)
    ids = find_all(served.labels, chain.from_iterable(event.labels for event in events)).tolist()
    if rows is None or min(ids, default=0) < 0:
        return None
    next_ids = iter(ids)
    true_labels = [sorted(set(islice(next_ids, len(event.labels)))) for event in events]
    names = [event.event_id for event in events]
    event_columns = instances_of(
        rows,
        LabelRows(
            offsets(map(len, true_labels)),
            np.array(list(chain.from_iterable(true_labels)), np.int32),
            served.labels.n_names,
        ),
        event_keys(served.name, names),
    )
    if all(event.prediction_id is UNSET for event in events):
        return names, event_columns
    predicted = [NO_LABELS] * len(events)
    model = model_hash(served.name)
    for i, event in enumerate(events):
        if event.prediction_id is UNSET:
            continue
        try:
            token = None if tokens is None else tokens.read(event.prediction_id, model)
        except TokenFault:
            return None
        if token is None or token.version != served.version or not _is_of(token, served):
            return None
        predicted[i] = token.labels
        event_columns.epochs[i] = token.epoch
    return names, event_columns._replace(predicted=label_rows(predicted, served.labels.n_names))


def _is_within(event: _Event, limits: Limits) -> bool:
    """Return whether an event is within the limits and has an instance or else a prediction_id."""
    return (
        (event.instance is UNSET) != (event.prediction_id is UNSET)
        and 0 < utf8_length(event.event_id) <= limits.event_id_bytes_max
        and len(event.labels) <= limits.label_list_max
        and longest(event.labels) <= limits.name_bytes_max
    )


def _rows_of(events: list[_Event], featurizer: Featurizer, limits: Limits) -> SparseRows | None:
    """Return the row of each event; None if there are several kinds, or kernels cannot read one."""
    first = next((bytes(event.instance) for event in events if event.instance is not UNSET), b"")
    are_texts = b'"text"' in first
    no_instance = b'{"text":""}' if are_texts else b'{"indices":[],"values":[]}'
    lines = [no_instance if event.instance is UNSET else bytes(event.instance) for event in events]
    if are_texts:
        return text_rows_of_lines(lines, featurizer, limits.text_bytes_max)
    arrays = read_sparse_lines(lines, limits.features_max)
    try:
        return None if arrays is None else featurizer.transform_csr(*arrays)
    except BadInput:
        return None


class CheckedEvent(NamedTuple):
    """A valid event, and the content of its prediction_id if it has one."""

    feedback: FeedbackEvent
    token: Token | None


def check_event(
    value: Any, model: str, tokens: Tokens | None, limits: Limits
) -> CheckedEvent | FeedbackLineResult:
    """Return an event with the content of its prediction_id, or the verdict if it is not valid.

    value  JSON, or the BadInput of a line that is not JSON
    """
    if isinstance(value, BadInput):  # the line was not JSON
        return refused(None, value)
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
            raise TokenFault(
                "forged", "expected a prediction_id that was signed, but no key is known yet"
            )
        return CheckedEvent(feedback, tokens.read(text, model_hash(model)))
    except TokenFault as fault:
        result: Result = "late" if fault.reason == "expired" else "rejected"
        return not_counted(feedback.event_id, result, f"prediction-{fault.reason}", str(fault))


def to_events(
    checked: Mapping[int, CheckedEvent], served: ServedVersion, *, sender: str | None = None
) -> tuple[dict[int, str], Events, dict[int, FeedbackLineResult]]:
    """Return the valid events of one version, ready to be counted.

    Returns the id of each such event by its place, the events in the same order, and the verdicts
    on the others by place.

    checked  the events by their place in the request
    sender   the name of the key in whose name instances are stored to train on, empty if it is not
             known; None: they are not stored
    """
    rows, faults = rows_and_faults(
        [
            event.feedback.instance_or_none
            for event in checked.values()
            if event.feedback.instance_or_none is not None
        ],
        served.featurizer,
        transform,
    )
    no_row = SparseRows(np.zeros(2, np.int64), rows.indices[:0], rows.values[:0], rows.n_features)
    next_row = count(1)
    next_fault = iter(faults)
    next_label_ids = iter(
        find_all(
            served.labels, chain.from_iterable(event.feedback.labels for event in checked.values())
        ).tolist()
    )
    places: list[int] = []
    true_labels: list[I32] = []
    predicted: list[I32] = []
    epochs: list[int] = []
    lines: list[tuple[bytes, str] | None] = []
    ids: dict[int, str] = {}
    verdicts: dict[int, FeedbackLineResult] = {}
    for place, (feedback, token) in checked.items():
        label_ids = list(islice(next_label_ids, len(feedback.labels)))
        instance = feedback.instance_or_none
        fault = None if instance is None else next(next_fault)
        row_index = next(next_row) if instance is not None and fault is None else 0
        if -1 in label_ids:
            i = label_ids.index(-1)
            verdicts[place] = refused(
                feedback.event_id,
                UnknownLabel(
                    f"expected labels of the model, found {feedback.labels[i][:80]!r}"
                ).with_path(f"labels[{i}]"),
            )
        elif fault is not None:
            verdicts[place] = refused(feedback.event_id, fault.within("instance"))
        elif token is not None and not _is_of(token, served):
            verdicts[place] = not_counted(
                feedback.event_id,
                "rejected",
                "prediction-forged",
                "expected a prediction of this version, found labels that it does not have",
            )
        else:
            ids[place] = feedback.event_id
            places.append(row_index)
            true_labels.append(np.array(sorted(set(label_ids)), np.int32))
            predicted.append(NO_LABELS if token is None else token.labels)
            epochs.append(NO_EPOCH if token is None else token.epoch)
            lines.append(
                (
                    dump(
                        {
                            "event_id": feedback.event_id,
                            **instance.model_dump(exclude_none=True),
                            "labels": feedback.labels,
                        }
                    ),
                    sender,
                )
                if sender is not None and instance is not None
                else None
            )
    return (
        ids,
        Events(
            keys=event_keys(served.name, list(ids.values())),
            rows=SparseRows.join([no_row, rows]).take(np.array(places, np.int64)),
            labels=label_rows(true_labels, served.labels.n_names),
            predicted=label_rows(predicted, served.labels.n_names),
            epochs=np.array(epochs, np.int64),
            lines=lines,
        ),
        verdicts,
    )


def refused(event_id: str | None, error: BadInput) -> FeedbackLineResult:
    """Return the verdict on an event that is not valid."""
    place = f"{error.path}: " if error.path else ""
    return not_counted(event_id, "rejected", code_of(error), f"{place}{error}")


def verdict_on(event_id: str, result: Result) -> FeedbackLineResult:
    """Return the verdict on an event that the writer has processed."""
    if result != "late":
        return {"event_id": event_id, "result": result}
    return not_counted(
        event_id,
        result,
        "thresholds-replaced",
        (
            "expected a prediction at thresholds in force, found one from before they were "
            "tuned or restored"
        ),
    )


def not_counted(
    event_id: str | None, result: Result, reason: str, detail: str
) -> FeedbackLineResult:
    """Return the verdict on an event that was rejected or came too late.

    reason   a code
    detail   a sentence for people
    """
    verdict = FeedbackLineResult(event_id=event_id, result=result, reason=reason, detail=detail)
    if event_id is None:
        del verdict["event_id"]
    return verdict


def _is_of(token: Token, served: ServedVersion) -> bool:
    """Return whether the version has all labels that were predicted according to a token."""
    labels = token.labels
    return not len(labels) or bool(0 <= labels[0] <= labels[-1] < served.labels.n_names)
