"""Bytes of a request -> typed values. Strict: a field that is unknown or
of another type is refused by name.

JSON is read as RFC 8259 has it: NaN, infinities, numbers beyond a double and lone surrogates are
not JSON. Of a key that stands twice the last one counts. `true` is not an integer, and neither are
"1" and 1.0. The models in `xylem.serving.schemas` say which fields there are, and what they may be.
"""

from collections.abc import Collection
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from xylem.base import BadRequest, LimitExceeded, Limits, MalformedJson, UnsupportedOption, what_is
from xylem.engine import JsonSize, load_in_pieces, size_of
from xylem.serving.schemas.faults import faults_of
from xylem.serving.schemas.feedback import FeedbackEvents
from xylem.serving.schemas.instances import NAMED, SPARSE, TEXT, RequestModel, kind_of
from xylem.serving.schemas.predict import (
    AnyLine,
    BatchLine,
    InfoQuery,
    NamedLine,
    Options,
    PredictRequest,
    SparseLine,
    TextLine,
)
from xylem_store import DENIED_MAX

M = TypeVar("M", bound=BaseModel)

PREDICT_ONLY = ("explain", "deadline_ms", "statistics")
"""Options that a batch does not have."""

LONG_BYTES = 64 << 10
"""Bytes of a body beyond which the event loop does not read it."""

_EACH_MAX = 8
_OTHERS_MAX = 1000
"""An instance or event has fewer arrays and objects, and so has all
else of a body, and fields of its own.
"""

_DEPTH_MAX = 16  # arrays and objects within each other: no body needs half as many
_SIZE_NOUNS = (
    "arrays and objects",
    "arrays and objects within each other",
    "items in an array or an object",
    "fields in the outer object",
    "bytes in a string",
)
"""What is counted in a body: the fields of JsonSize, in words."""

_LISTS = ("allow_labels", "deny_labels")
_LINE: TypeAdapter[AnyLine] = TypeAdapter(BatchLine)
_LINES: dict[str | None, type[AnyLine]] = {TEXT: TextLine, SPARSE: SparseLine, NAMED: NamedLine}


def parse_body(body: bytes, model: type[M], limits: Limits) -> M:
    """Return what `body` says.

    Raises MalformedJson, BadRequest or LimitExceeded, naming the field.
    """
    return validated(parse_json(body, limits), model, limits)


def validated(value: Any, model: type[M], limits: Limits) -> M:
    """Return what a JSON value says.

    Raises BadRequest or LimitExceeded, naming the field by its path.
    """
    try:
        return model.model_validate(value, context=limits)
    except ValidationError as error:
        raise faults_of(error, [model]) from None


def parse_line(line: bytes, limits: Limits) -> AnyLine:
    """Return what a line of a batch says; `labels` in it are ignored. Raises as `parse_body`."""
    value = parse_json(line, limits)
    try:
        model = _LINES.get(kind_of(value))  # the union's own way to it costs a quarter of the whole
        return (
            model.model_validate(value, context=limits) if model else _LINE.validate_python(value)
        )
    except ValidationError as error:
        raise faults_of(error, [model or TextLine]) from None


def parse_feedback(body: bytes, limits: Limits) -> list[Any]:
    """Return the events of a feedback request, not validated yet: of
    {"events": [...]}, or the one it is.

    Raises MalformedJson, BadRequest or LimitExceeded.
    """
    value = parse_json(body, limits)
    if type(value) is not dict:
        raise BadRequest(f"expected an object, found {what_is(value)}").at("")
    return validated(value, FeedbackEvents, limits).events if "events" in value else [value]


def parse_options(query_string: bytes, limits: Limits) -> Options:
    """Return the options that a batch's query string says.

    Raises as `parse_query`, and UnsupportedOption.
    """
    options = parse_query(query_string, Options, limits)
    for key in PREDICT_ONLY:
        if getattr(options, key):
            raise UnsupportedOption(
                "expected an option of a batch, found one that only predict has"
            ).at(key)
    return options


def parse_predict_and_query(body: bytes, query_string: bytes, limits: Limits) -> PredictRequest:
    """Return the request that `body` is, with `language` and `label_info` of a query string.

    Whatever else the query string says is passed over. Raises as `parse_body`, and BadRequest for
    an option that both say, and for one that only the body may say.
    """
    query = parse_body(body, PredictRequest, limits)
    info_query_string = _only(query_string, InfoQuery)
    if info_query_string != _only(query_string, PredictRequest):
        raise BadRequest(
            "expected language and label_info in the query string, other options in the body"
        )
    info_query = parse_query(info_query_string, InfoQuery, limits)
    for key in info_query.model_fields_set & query.model_fields_set:
        raise BadRequest("expected it in the body or in the query string, found it in both").at(key)
    return query.model_copy(update=info_query.model_dump(exclude_unset=True))


def _only(query_string: bytes, model: type[RequestModel]) -> bytes:
    """Return the parts of a query string that say fields of a model, also those that
    say no value.
    """
    names = {name.encode() for name in model.model_fields}
    parts = query_string.split(b"&")
    return b"&".join(part for part in parts if unquote_to_bytes(part.partition(b"=")[0]) in names)


def parse_query(query_string: bytes, model: type[M], limits: Limits) -> M:
    """Return what a query string says: `top_r=5&allow_labels=a&allow_labels=b`.

    A value is written as in JSON, strings without quotes. Raises as `parse_body`.
    """
    fields_max = 2 * limits.label_list_max + len(model.model_fields)
    texts = split_fields(query_string, "a query string", fields_max, _LISTS)
    fields = {key: text if key in _LISTS else _query_value(text) for key, text in texts.items()}
    return validated(fields, model, limits)


def split_fields(
    encoded: bytes, source: str, fields_max: int, lists: Collection[str] = ()
) -> dict[str, Any]:
    """Return the fields of a form or a query string: a text each,
    of those in `lists` a list of texts.

    Raises BadRequest, which calls it `source`: for more than `fields_max`, and for a field that
    stands twice.
    """
    try:
        pairs = parse_qsl(
            encoded.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=fields_max,
        )
    except ValueError as error:
        expected = f"expected {source} of at most {fields_max} fields, in UTF-8 and percent-encoded"
        raise BadRequest(f"{expected}, found another: {error}") from None
    fields: dict[str, Any] = {}
    for name, text in pairs:
        if name in lists:
            fields.setdefault(name, []).append(text)
        elif name in fields:
            raise BadRequest("expected one value, found several").at(name[:100])
        else:
            fields[name] = text
    return fields


def parse_json(body: bytes, limits: Limits, items_max: int = 0) -> Any:
    """Return the JSON value that `body` is. Raises MalformedJson.

    Raises LimitExceeded where a long one holds more than any body may: arrays and objects, items of
    one (items_max if that is more), fields of the outer object, bytes of a string. Nothing is made
    before.
    """
    is_long = len(body) > LONG_BYTES
    if is_long:
        _check_size(body, limits, items_max)
    try:
        return load_in_pieces(body) if is_long else orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(f"expected JSON, found bytes that are not: {error}") from None


def _check_size(body: bytes, limits: Limits, items_max: int) -> None:
    request_limits = limits.instances_max, limits.events_max
    size_limits = JsonSize(
        containers=_OTHERS_MAX + _EACH_MAX * max(request_limits),
        depth=_DEPTH_MAX,
        items=max(
            items_max, DENIED_MAX, limits.features_max, limits.label_list_max, *request_limits
        ),
        outer_fields=_OTHERS_MAX,
        string_bytes=max(limits.text_bytes_max, limits.name_bytes_max, limits.event_id_bytes_max),
    )
    for size, size_max, noun in zip(size_of(body), size_limits, _SIZE_NOUNS, strict=True):
        if size > size_max:
            raise LimitExceeded(f"expected at most {size_max} {noun}, found {size}")


def _query_value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
