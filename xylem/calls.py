"""The calls that anybody makes: predict, score, batch, feedback, and reading; each is described once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack
from urllib.parse import urlencode

import orjson

from xylem.errors import BadAnswer
from xylem.results import (
    Feedback,
    FeedbackVerdict,
    ModelDetails,
    ModelInfo,
    Predictions,
    Scores,
    Thresholds,
    read_as,
)
from xylem.retries import Retries
from xylem.steps import JSON, Call, Request, Steps, result_of
from xylem.target import model_path, segment

Instance: TypeAlias = str | Mapping[str, Any]
"""A text, or an object as docs/tutorial.md has them; values may be numpy arrays."""

EVENTS_A_REQUEST = 256
EVENT_BYTES_A_REQUEST = 1 << 20


class BatchOptions(TypedDict, total=False):
    """How to predict the lines of a batch; what is left out is the server's default."""

    top_r: int
    threshold: float | Literal["tuned"] | None
    beam_width: int
    exact: bool
    language: str | None
    label_info: bool
    chunk_characters: int | None


class PredictOptions(BatchOptions, total=False):
    """How to predict; what is left out is the server's default."""

    allow_labels: Sequence[str] | None
    deny_labels: Sequence[str] | None
    explain: bool
    deadline_ms: int | None
    label_weights: Literal["propensity"] | Mapping[str, float] | None
    statistics: bool


@dataclass(frozen=True, slots=True)
class _ModelList:
    models: list[ModelInfo]


def instance_of(instance: Instance) -> Mapping[str, Any]:
    """Return an instance as an object. Raises TypeError."""
    if isinstance(instance, str):
        return {"text": instance}
    if not isinstance(instance, Mapping):
        raise TypeError(f"instance: expected a text or a mapping, found {type(instance).__name__}")
    return instance


def dumped(value: object) -> bytes:
    """Return a value as JSON; numpy arrays are lists. Raises TypeError."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def query(**fields: object) -> str:
    """Return a query string, with its question mark, of the fields that are not None."""
    given = {name: _text(value) for name, value in fields.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def predict(
    model: str,
    instances: Iterable[Instance],
    version: int | None,
    alias: str | None,
    **options: Unpack[PredictOptions],
) -> Call[Predictions]:
    """Predict the labels of instances."""
    body = dumped({"instances": _several(instances), **options})
    path = f"{model_path(model, version, alias)}/predict"
    return Call(Request("POST", path, body, JSON, True), lambda found: read_as(Predictions, found))


def score(
    model: str,
    instances: Iterable[Instance],
    version: int | None,
    alias: str | None,
    labels: Sequence[str] | None,
    *,
    sequence: bool,
) -> Call[Scores]:
    """Score labels, or the words of texts; `labels` and `sequence` are of instances that say neither.

    Raises TypeError.
    """
    if isinstance(labels, str):
        raise TypeError("labels: expected several, found one: put it into a list")
    common: dict[str, Any] = {} if labels is None else {"labels": list(labels)}
    if sequence:
        common["sequence"] = True
    asked = [one if {"labels", "sequence"} & one.keys() else {**one, **common} for one in _several(instances)]
    path = f"{model_path(model, version, alias)}/score"
    request = Request("POST", path, dumped({"instances": asked}), JSON, True)
    return Call(request, lambda found: read_as(Scores, found))


def _several(instances: Iterable[Instance]) -> list[Mapping[str, Any]]:
    if isinstance(instances, str | Mapping):
        raise TypeError("instances: expected several, found one: put it into a list")
    return [instance_of(one) for one in instances]


def batch_paths(
    model: str, version: int | None, alias: str | None, **options: Unpack[BatchOptions]
) -> Callable[[int | None], str]:
    """Return what gives the path and query of a batch: as asked for, or of a version. Raises ValueError."""
    asked = query(**options)
    first = f"{model_path(model, version, alias)}/batch{asked}"
    return lambda known: first if known is None else f"{model_path(model, known)}/batch{asked}"


def feedback(
    model: str,
    events: Iterable[Mapping[str, Any]],
    version: int | None,
    alias: str | None,
    retries: Retries,
    seconds_max: float,
) -> Steps[Feedback]:
    """Send events, in as many requests as it takes. An event without an id is given one.

    Each counts once, however often it is sent: so every request may be sent again.
    """
    path = f"{model_path(model, version, alias)}/feedback"
    done: Feedback | None = None
    results: list[FeedbackVerdict] = []
    for body, n_events in _feedback_bodies(events):
        call = Call(Request("POST", path, body, JSON, True), lambda found: read_as(Feedback, found))
        done = yield from result_of(call, retries, seconds_max)
        if len(done.results) != n_events:
            raise BadAnswer(f"expected {n_events} results, found {len(done.results)}")
        results += done.results
    if done is None:
        raise ValueError("events: expected at least one, found none")
    return replace(done, results=results)


def _feedback_bodies(events: Iterable[Mapping[str, Any]]) -> Iterable[tuple[bytes, int]]:
    """Yield the bodies of requests that have these events, and how many each has."""
    waiting: list[bytes] = []
    n_bytes = 0
    for event in events:
        dump = dumped({"event_id": uuid.uuid4().hex, **event})
        if waiting and (len(waiting) == EVENTS_A_REQUEST or n_bytes + len(dump) > EVENT_BYTES_A_REQUEST):
            yield b'{"events":[%b]}' % b",".join(waiting), len(waiting)
            waiting, n_bytes = [], 0
        waiting.append(dump)
        n_bytes += len(dump)
    if waiting:
        yield b'{"events":[%b]}' % b",".join(waiting), len(waiting)


def models() -> Call[list[ModelInfo]]:
    """List the models."""
    request = Request("GET", "/v1/models", repeatable=True)
    return Call(request, lambda found: read_as(_ModelList, found).models)


def model(name: str) -> Call[ModelDetails]:
    """Describe a model."""
    request = Request("GET", f"/v1/models/{segment(name, 'model')}", repeatable=True)
    return Call(request, lambda found: read_as(ModelDetails, found))


def thresholds(
    model: str,
    version: int | None,
    alias: str | None,
    offset: int,
    limit: int,
    marks_below: int | None,
) -> Call[Thresholds]:
    """Return a page of the thresholds of a version."""
    asked = query(offset=offset, limit=limit, marks_below=marks_below)
    request = Request("GET", f"{model_path(model, version, alias)}/thresholds{asked}", repeatable=True)
    return Call(request, _thresholds)


def _thresholds(body: bytes) -> Thresholds:
    page = read_as(Thresholds, body)
    details = {name: value for name, value in orjson.loads(body).items() if name != "labels"}
    return replace(page, details=details)
