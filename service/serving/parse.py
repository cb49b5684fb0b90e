"""Bytes of a request -> typed values. Strict: a field that is unknown or of another type is refused by name.

JSON is read as RFC 8259 has it: NaN, infinities, numbers beyond a double and lone surrogates are not JSON. Of
a key that stands twice the last one counts. `true` is not an integer, and neither are "1" and 1.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import orjson

from service.errors import BadInput, BadRequest, LimitExceeded, MalformedJson, UnsupportedOption
from service.settings import Limits

TUNED: Literal["tuned"] = "tuned"
PROPENSITY: Literal["propensity"] = "propensity"

WEIGHT_MIN, WEIGHT_MAX = 1e-6, 1e6
"""Between these is the weight of a label: products with probabilities stay numbers."""

_INTEGERS = frozenset({int})
_NUMBERS = frozenset({int, float})
_STRINGS = frozenset({str})
_KINDS = ("text", "indices", "values", "features")
_SHAPE = 'one of {"text"}, {"indices", "values"} and {"features"}'


class TextInstance(NamedTuple):
    """An instance that is a text."""

    text: str


class RawInstance(NamedTuple):
    """An instance that is sparse already: `indices` are integers of any size, in any order, not unique."""

    indices: list[int]
    values: list[float]


class NamedInstance(NamedTuple):
    """An instance that is a value for each of some named features."""

    features: dict[str, float]


Instance: TypeAlias = TextInstance | RawInstance | NamedInstance


class Options(NamedTuple):
    """How to predict, as a request says it; `service.serving.rows` makes the engine's options of it."""

    top_r: int = 5
    threshold: float | Literal["tuned"] | None = None
    beam_width: int = 10
    exact: bool = False
    allow_labels: list[str] | None = None
    deny_labels: list[str] | None = None
    explain: bool = False
    deadline_ms: int | None = None
    label_weights: Literal["propensity"] | dict[str, float] | None = None
    statistics: bool = False


class PredictQuery(NamedTuple):
    """A predict request."""

    instances: list[Instance]
    options: Options


class Line(NamedTuple):
    """A line of a batch: an instance, and the identity that its answer repeats (None: it has none)."""

    instance: Instance
    identity: str | int | None


class Feedback(NamedTuple):
    """An event of feedback: the true labels of an instance, or of what a prediction was made for."""

    event_id: str
    instance: Instance | None
    prediction_id: str | None
    labels: list[str]


_DEFAULT = Options()
_EVENT_KEYS = frozenset(Feedback._fields)
_OPTION_KEYS = frozenset(Options._fields)
_PREDICT_KEYS = _OPTION_KEYS | {"instances"}
PREDICT_ONLY = ("explain", "deadline_ms", "statistics")
"""Options that a batch does not have."""
_PLAIN_KEYS = frozenset({"instances", "top_r", "beam_width"})
_LISTS = ("allow_labels", "deny_labels")


def parse_predict(body: bytes, limits: Limits) -> PredictQuery:
    """Return the request that `body` is.

    Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, naming the field by its path.
    """
    fields = _object(parse_json(body), "")
    _refuse_unknown(fields, _PREDICT_KEYS, "")
    if "instances" not in fields:
        raise BadRequest("expected the field instances, found none").at("instances")
    items = _array(fields["instances"], "instances")
    if not items:
        raise BadRequest("expected at least one instance, found none").at("instances")
    _check_limit(len(items), "instances", limits.instances_max, "instances_max", "instances")
    instances = _instances(items, limits)
    options = _options(fields, limits)
    n_labels = len(instances) * options.top_r
    _check_limit(n_labels, "labels asked for", limits.answer_labels_max, "answer_labels_max", "top_r")
    if options.explain:
        most = limits.explained_labels_max
        _check_limit(n_labels, "labels to explain", most, "explained_labels_max", "explain")
    return PredictQuery(instances, options)


def parse_line(line: bytes, limits: Limits) -> Line:
    """Return what a line of a batch says; `labels` in it are ignored. Raises as `parse_predict`."""
    fields = _object(parse_json(line), "")
    identity = fields.pop("id", None)
    fields.pop("labels", None)  # of a labelled file, which can be predicted as it is
    if identity is not None and type(identity) not in (str, int):
        raise BadRequest(f"expected a string or an integer, found {what_is(identity)}").at("id")
    return Line(_instance(fields, limits), identity)


def parse_feedback(body: bytes, limits: Limits) -> list[Any]:
    """Return the events of a feedback request, for `parse_event`: of {"events": [...]}, or the one it is.

    Raises MalformedJson, BadRequest or LimitExceeded.
    """
    fields = _object(parse_json(body), "")
    if "events" not in fields:
        return [fields]
    _refuse_unknown(fields, frozenset({"events"}), "")
    events = _array(fields["events"], "events")
    _check_limit(len(events), "events", limits.events_max, "events_max", "events")
    return events


def parse_event(value: Any, limits: Limits) -> Feedback:
    """Return the event that a JSON value is. Raises BadRequest or LimitExceeded, naming the field."""
    fields = _object(value, "")
    _refuse_unknown(fields, _EVENT_KEYS, "")
    for key in ("event_id", "labels"):
        if key not in fields:
            raise BadRequest(f"expected the field {key}, found none").at(key)
    event_id, token = fields["event_id"], fields.get("prediction_id", "")
    for key, text in (("event_id", event_id), ("prediction_id", token)):
        if type(text) is not str:
            raise BadRequest(f"expected a string, found {what_is(text)}").at(key)
    n_bytes = _utf8_length(event_id)
    _check_limit(n_bytes, "bytes of an id", limits.event_id_bytes_max, "event_id_bytes_max", "event_id")
    if not event_id:
        raise BadRequest("expected an id of at least one character, found none").at("event_id")
    labels = _names(_array(fields["labels"], "labels"), "labels", limits)
    assert labels is not None
    if ("instance" in fields) == ("prediction_id" in fields):
        found = "both" if "instance" in fields else "neither"
        raise BadRequest(f"expected either instance or prediction_id, found {found}")
    if "instance" not in fields:
        return Feedback(event_id, None, token, labels)
    try:
        return Feedback(event_id, _instance(fields["instance"], limits), None, labels)
    except BadInput as fault:
        raise fault.at(_join("instance", fault.path) if fault.path else "instance") from None


def parse_options(query_string: bytes, limits: Limits) -> Options:
    """Return the options that a batch's query string says: `top_r=5&allow_labels=a&allow_labels=b`.

    A value is written as in JSON, strings without quotes. Raises as `parse_predict`.
    """
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=2 * limits.label_list_max + len(_OPTION_KEYS),
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
    _refuse_unknown(fields, _OPTION_KEYS, "")
    options = _options(fields, limits)
    for key in PREDICT_ONLY:
        if getattr(options, key):
            raise UnsupportedOption("expected an option of a batch, found one that only predict has").at(key)
    return options


def check_keys(value: Any, needed: Iterable[str], known: Iterable[str]) -> dict[str, Any]:
    """Return the object that a JSON value is, of known fields, the needed ones there. Raises BadRequest."""
    fields = _object(value, "")
    _refuse_unknown(fields, frozenset(known), "")
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


def _options(fields: dict[str, Any], limits: Limits) -> Options:
    """Return the options among `fields`, whose keys are known; of most requests two at most."""
    get = fields.get
    top_r = _count(get("top_r", _DEFAULT.top_r), "top_r", limits.top_r_max)
    beam_width = _count(get("beam_width", _DEFAULT.beam_width), "beam_width", limits.beam_width_max)
    if fields.keys() <= _PLAIN_KEYS:
        return Options(top_r, beam_width=beam_width)
    return Options(
        top_r=top_r,
        threshold=_threshold(get("threshold")),
        beam_width=beam_width,
        exact=_boolean(get("exact", _DEFAULT.exact), "exact"),
        allow_labels=_names(get("allow_labels"), "allow_labels", limits),
        deny_labels=_names(get("deny_labels"), "deny_labels", limits),
        explain=_boolean(get("explain", _DEFAULT.explain), "explain"),
        deadline_ms=_deadline(get("deadline_ms"), limits),
        label_weights=_label_weights(get("label_weights"), limits),
        statistics=_boolean(get("statistics", _DEFAULT.statistics), "statistics"),
    )


def _instances(items: list[Any], limits: Limits) -> list[Instance]:
    """Return the instances of a request; their places are only written for one that is refused."""
    instances: list[Instance] = []
    try:
        for item in items:
            instances.append(_instance(item, limits))
    except BadInput as fault:
        place = f"instances[{len(instances)}]"
        raise fault.at(_join(place, fault.path) if fault.path else place) from None
    return instances


def _instance(value: Any, limits: Limits) -> Instance:
    """Return the instance that `value` is. The paths of what it raises begin at the instance."""
    fields = _object(value, "")
    if len(fields) == 1:
        if "text" in fields:
            return TextInstance(_text(fields["text"], "text", limits))
        if "features" in fields:
            return NamedInstance(_features(fields["features"], "features", limits))
    if len(fields) == 2 and "indices" in fields and "values" in fields:
        return _raw(fields["indices"], fields["values"], limits)
    _refuse_unknown(fields, frozenset(_KINDS), "")
    found = " and ".join(key for key in _KINDS if key in fields) or "none of them"
    raise BadRequest(f"expected {_SHAPE}, found {found}").at("")


def _text(value: Any, path: str, limits: Limits) -> str:
    if type(value) is not str:
        raise BadRequest(f"expected a string, found {what_is(value)}").at(path)
    _check_limit(_utf8_length(value), "bytes of text", limits.text_bytes_max, "text_bytes_max", path)
    return value


def _raw(indices: Any, values: Any, limits: Limits) -> RawInstance:
    indices = _array(indices, "indices")
    values = _array(values, "values")
    if len(indices) != len(values):
        raise BadRequest(f"expected as many values as indices, {len(indices)}, found {len(values)}").at(
            "values"
        )
    _check_limit(len(indices), "features", limits.features_max, "features_max", "")
    _check_types(indices, _INTEGERS, "an integer", "indices")
    _check_types(values, _NUMBERS, "a number", "values")
    return RawInstance(indices, values)


def _features(value: Any, path: str, limits: Limits) -> dict[str, float]:
    features = _object(value, path)
    _check_limit(len(features), "features", limits.features_max, "features_max", path)
    if not _NUMBERS.issuperset(map(type, features.values())):
        name, fault = next((k, v) for k, v in features.items() if type(v) not in _NUMBERS)
        raise BadRequest(f"expected a number, found {what_is(fault)}").at(_join(path, _shortened(name)))
    _check_names(features, path, limits)
    return features


def _names(value: Any, path: str, limits: Limits) -> list[str] | None:
    if value is None:
        return None
    names = _array(value, path)
    _check_limit(len(names), "labels", limits.label_list_max, "label_list_max", path)
    _check_types(names, _STRINGS, "a string", path)
    _check_names(names, path, limits)
    return names


def _threshold(value: Any) -> float | Literal["tuned"] | None:
    if value is None or value == TUNED:
        return value  # type: ignore[no-any-return]
    if type(value) not in _NUMBERS or not 0 <= value <= 1:
        raise BadRequest(f'expected null, a number from 0 to 1, or "tuned", found {what_is(value)}').at(
            "threshold"
        )
    return float(value)


def _label_weights(value: Any, limits: Limits) -> Literal["propensity"] | dict[str, float] | None:
    if value is None or value == PROPENSITY:
        return value  # type: ignore[no-any-return]
    if type(value) is not dict:
        raise BadRequest(f'expected null, "propensity" or an object, found {what_is(value)}').at(
            "label_weights"
        )
    _check_limit(len(value), "labels", limits.label_list_max, "label_list_max", "label_weights")
    _check_names(value, "label_weights", limits)
    for name, weight in value.items():
        if type(weight) not in _NUMBERS or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
            raise BadRequest(
                f"expected a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, found {what_is(weight)}"
            ).at(_join("label_weights", _shortened(name)))
    return value


def _deadline(value: Any, limits: Limits) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise BadRequest(f"expected null or an integer of at least 1, found {what_is(value)}").at(
            "deadline_ms"
        )
    most = int(limits.request_seconds_max * 1000)
    _check_limit(value, "milliseconds", most, "request_seconds_max", "deadline_ms")
    return value


def _count(value: Any, path: str, most: int) -> int:
    """Return `value`, an integer of at least 1 and at most the limit that is named after the path."""
    if type(value) is not int:
        raise BadRequest(f"expected an integer, found {what_is(value)}").at(path)
    if value < 1:
        raise BadRequest(f"expected at least 1, found {value}").at(path)
    _check_limit(value, path, most, f"{path}_max", path)
    return value


def _boolean(value: Any, path: str) -> bool:
    if type(value) is not bool:
        raise BadRequest(f"expected true or false, found {what_is(value)}").at(path)
    return value


def _object(value: Any, path: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise BadRequest(f"expected an object, found {what_is(value)}").at(path)
    return value


def _array(value: Any, path: str) -> list[Any]:
    if type(value) is not list:
        raise BadRequest(f"expected an array, found {what_is(value)}").at(path)
    return value


def _refuse_unknown(fields: dict[str, Any], known: frozenset[str], path: str) -> None:
    if not fields.keys() <= known:
        key = next(key for key in fields if key not in known)
        raise BadRequest(f"expected only {', '.join(sorted(known))}, found another field").at(
            _join(path, _shortened(key))
        )


def _check_types(items: list[Any], allowed: frozenset[type], expected: str, path: str) -> None:
    if not allowed.issuperset(map(type, items)):
        i, fault = next((i, item) for i, item in enumerate(items) if type(item) not in allowed)
        raise BadRequest(f"expected {expected}, found {what_is(fault)}").at(f"{path}[{i}]")


def _check_names(names: Iterable[str], path: str, limits: Limits) -> None:
    longest = max(map(_utf8_length, names), default=0)
    _check_limit(longest, "bytes of a name", limits.name_bytes_max, "name_bytes_max", path)


def _check_limit(found: int, what: str, most: int, limit: str, path: str) -> None:
    if found > most:
        raise LimitExceeded(f"expected at most {most} {what} (limit {limit}), found {found}").at(path)


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def what_is(value: Any) -> str:
    """Return what a JSON value is, in a few words: never its whole content, and no deeper than itself."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{_shortened(value)}"'
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    return str(value)
