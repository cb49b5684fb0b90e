"""Bytes of a request -> typed values. Strict: a field that is unknown or of another type is refused by name.

JSON is read as RFC 8259 has it: NaN, infinities, numbers beyond a double and lone surrogates are not JSON. Of
a key that stands twice the last one counts. `true` is not an integer, and neither are "1" and 1.0. The
models in `service.serving.schemas` say which fields there are, and what they may be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

import orjson
from pydantic import TypeAdapter, ValidationError

from service.errors import BadRequest, LimitExceeded, MalformedJson, UnsupportedOption
from service.serving.schemas.faults import faults_of
from service.serving.schemas.feedback import FeedbackEvent
from service.serving.schemas.instances import NAMED, SPARSE, TEXT, kind_of
from service.serving.schemas.predict import (
    AnyLine,
    BatchLine,
    NamedLine,
    Options,
    PredictRequest,
    SparseLine,
    TextLine,
)
from service.serving.what_is import shortened, what_is
from service.settings import Limits

PREDICT_ONLY = ("explain", "deadline_ms", "statistics")
"""Options that a batch does not have."""

_LISTS = ("allow_labels", "deny_labels")
_LINE: TypeAdapter[AnyLine] = TypeAdapter(BatchLine)
_LINES: dict[str | None, type[AnyLine]] = {TEXT: TextLine, SPARSE: SparseLine, NAMED: NamedLine}


def parse_predict(body: bytes, limits: Limits) -> PredictRequest:
    """Return the request that `body` is.

    Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, naming the field by its path.
    """
    try:
        return PredictRequest.model_validate(parse_json(body), context=limits)
    except ValidationError as error:
        raise faults_of(error, [PredictRequest]) from None


def parse_line(line: bytes, limits: Limits) -> AnyLine:
    """Return what a line of a batch says; `labels` in it are ignored. Raises as `parse_predict`."""
    value = parse_json(line)
    try:
        model = _LINES.get(kind_of(value))  # the union's own way to it costs a quarter of the whole
        return model.model_validate(value, context=limits) if model else _LINE.validate_python(value)
    except ValidationError as error:
        raise faults_of(error, [model or TextLine]) from None


def parse_feedback(body: bytes, limits: Limits) -> list[Any]:
    """Return the events of a feedback request, for `parse_event`: of {"events": [...]}, or the one it is.

    Raises MalformedJson, BadRequest or LimitExceeded.
    """
    fields = _object(parse_json(body))
    if "events" not in fields:
        return [fields]
    check_keys(fields, (), ("events",))
    events = fields["events"]
    if type(events) is not list:
        raise BadRequest(f"expected an array, found {what_is(events)}").at("events")
    if len(events) > (most := limits.events_max):
        fault = f"expected at most {most} events (limit events_max), found {len(events)}"
        raise LimitExceeded(fault).at("events")
    return events


def parse_event(value: Any, limits: Limits) -> FeedbackEvent:
    """Return the event that a JSON value is. Raises BadRequest or LimitExceeded, naming the field."""
    try:
        return FeedbackEvent.model_validate(value, context=limits)
    except ValidationError as error:
        raise faults_of(error, [FeedbackEvent]) from None


def parse_options(query_string: bytes, limits: Limits) -> Options:
    """Return the options that a batch's query string says: `top_r=5&allow_labels=a&allow_labels=b`.

    A value is written as in JSON, strings without quotes. Raises as `parse_predict`.
    """
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=2 * limits.label_list_max + len(Options.model_fields),
        )
    except ValueError as error:
        raise BadRequest(f"expected a query string of options, found one that is not: {error}") from None
    fields: dict[str, Any] = {}
    for key, text in pairs:
        if key in _LISTS:
            fields.setdefault(key, []).append(text)
        elif key in fields:
            raise BadRequest("expected one value, found several").at(key)
        else:
            fields[key] = _query_value(text)
    try:
        options = Options.model_validate(fields, context=limits)
    except ValidationError as error:
        raise faults_of(error, [Options]) from None
    for key in PREDICT_ONLY:
        if getattr(options, key):
            raise UnsupportedOption("expected an option of a batch, found one that only predict has").at(key)
    return options


def check_keys(value: Any, needed: Iterable[str], known: Iterable[str]) -> dict[str, Any]:
    """Return the object that a JSON value is, of known fields, the needed ones there. Raises BadRequest."""
    fields = _object(value)
    if not fields.keys() <= (names := set(known)):
        key = next(key for key in fields if key not in names)
        fault = f"expected only {', '.join(sorted(names))}, found another field"
        raise BadRequest(fault).at(shortened(key))
    for key in needed:
        if key not in fields:
            raise BadRequest(f"expected the field {key}, found none").at(key)
    return fields


def parse_json(body: bytes) -> Any:
    """Return the JSON value that `body` is. Raises MalformedJson."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(f"expected JSON, found bytes that are not: {error}") from None


def _query_value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise BadRequest(f"expected an object, found {what_is(value)}").at("")
    return value
