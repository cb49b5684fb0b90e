"""Parse the bytes of requests into typed values. Unknown fields and wrong types are refused.

JSON is read as RFC 8259 defines it: NaN, infinities, numbers beyond a double and lone surrogates
are not JSON. If a key occurs twice, the last one counts. `true` is not an integer, and neither are
"1" and 1.0. The models in `xylem.serving.schemas` define the fields and their values.
"""

import codecs
from collections.abc import Collection
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from xylem.base import BadInput, BadRequest, LimitExceeded, Limits, UnsupportedOption, what_is
from xylem.serving.dialects.predict.schema import (
    AnyLine,
    BatchLine,
    FieldsLine,
    InfoQuery,
    NamedLine,
    Options,
    PredictRequest,
    SparseLine,
    TextLine,
)
from xylem.serving.feedback.schema import FeedbackEvents
from xylem.serving.long_json import JsonSize, load_in_pieces, size_of
from xylem.serving.schemas.faults import faults_of
from xylem.serving.schemas.fields import (
    NAMED_FEATURES,
    SPARSE,
    TEXT,
    TEXT_FIELDS,
    RequestModel,
    kind_of,
)
from xylem_store import DENIED_MAX

M = TypeVar("M", bound=BaseModel)

# Options of predict that a batch does not have.
PREDICT_ONLY = ("deadline_ms", "statistics")

# Bodies of more bytes are not read on the event loop.
LONG_BYTES = 64 << 10

# the most arrays and objects of one instance or event, and of all else in a body together.
# _OTHER_CONTAINERS_MAX is also the most fields of the outer object
_INSTANCE_CONTAINERS_MAX = 8
_OTHER_CONTAINERS_MAX = 1000

_DEPTH_MAX = 16  # the deepest nesting of arrays and objects; no body needs half as much
# the sizes that are limited, in words: one for each field of JsonSize
_SIZE_NOUNS = (
    "arrays and objects",
    "arrays and objects within each other",
    "items in an array or an object",
    "fields in the outer object",
    "bytes in a string",
)

_LISTS = ("allow_labels", "deny_labels")
_LINE: TypeAdapter[AnyLine] = TypeAdapter(BatchLine)
_LINES: dict[str | None, type[AnyLine]] = {
    TEXT: TextLine,
    SPARSE: SparseLine,
    NAMED_FEATURES: NamedLine,
    TEXT_FIELDS: FieldsLine,
}


def parse_body(body: bytes, model: type[M], limits: Limits) -> M:
    """Parse the JSON of a body into a model.

    Raises MalformedJson, BadRequest or LimitExceeded, which name the field.
    """
    return validated(parse_json(body, limits), model, limits)


def validated(value: Any, model: type[M], limits: Limits) -> M:
    """Turn a JSON value into a model.

    Raises BadRequest or LimitExceeded, which name the field by its path.
    """
    try:
        return model.model_validate(value, context=limits)
    except ValidationError as error:
        raise faults_of(error, [model]) from None


def parse_line(line: bytes, limits: Limits) -> AnyLine:
    """Parse a line of a batch; its field `labels` is ignored. Raises as `parse_body`."""
    value = parse_json(line, limits)
    try:
        # the union would find the model too, but costs a quarter of the time to parse a line
        model = _LINES.get(kind_of(value))
        return (
            model.model_validate(value, context=limits) if model else _LINE.validate_python(value)
        )
    except ValidationError as error:
        raise faults_of(error, [model or TextLine]) from None


def parse_feedback(body: bytes, limits: Limits) -> list[Any]:
    """Return the events of {"events": [...]}, or the one event that a body is; not validated yet.

    Raises MalformedJson, BadRequest or LimitExceeded.
    """
    value = parse_json(body, limits)
    if type(value) is not dict:
        raise BadRequest(f"expected an object, found {what_is(value)}").with_path("")
    return validated(value, FeedbackEvents, limits).events if "events" in value else [value]


def parse_options(query_string: bytes, limits: Limits) -> Options:
    """Parse the query string of a batch into options.

    Raises as `parse_query`, and UnsupportedOption.
    """
    options = parse_query(query_string, Options, limits)
    for key in PREDICT_ONLY:
        if getattr(options, key):
            raise UnsupportedOption(
                "expected an option of a batch, found one that only predict has"
            ).with_path(key)
    return options


def parse_predict_and_query(body: bytes, query_string: bytes, limits: Limits) -> PredictRequest:
    """Parse a body of predict, with `language` and `label_info` from the query string.

    Other parameters of the query string are ignored. Raises as `parse_body`, and BadRequest for an
    option in both places, and for an option in the query string that belongs into the body.
    """
    query = parse_body(body, PredictRequest, limits)
    info_query_string = _only(query_string, InfoQuery)
    if info_query_string != _only(query_string, PredictRequest):
        raise BadRequest(
            "expected language and label_info in the query string, other options in the body"
        )
    info_query = parse_query(info_query_string, InfoQuery, limits)
    for key in info_query.model_fields_set & query.model_fields_set:
        raise BadRequest(
            "expected it in the body or in the query string, found it in both"
        ).with_path(key)
    return query.model_copy(update=info_query.model_dump(exclude_unset=True))


def _only(query_string: bytes, model: type[RequestModel]) -> bytes:
    """Return the parts of a query string that name fields of a model, with or without a value."""
    names = {name.encode() for name in model.model_fields}
    return b"&".join(
        part
        for part in query_string.split(b"&")
        if unquote_to_bytes(part.partition(b"=")[0]) in names
    )


def parse_query(query_string: bytes, model: type[M], limits: Limits) -> M:
    """Parse a query string into a model: `top_r=5&allow_labels=a&allow_labels=b`.

    A value is written as in JSON, but strings without quotes. In a list of labels only a branch is
    JSON: {"under": CONCEPT}. Raises as `parse_body`.
    """
    texts = split_fields(
        query_string, "a query string", 2 * limits.label_list_max + len(model.model_fields), _LISTS
    )
    return validated(
        {
            key: [_query_value(item) if item.startswith('{"under":') else item for item in text]
            if key in _LISTS
            else _query_value(text)
            for key, text in texts.items()
        },
        model,
        limits,
    )


def split_fields(
    encoded: bytes, source: str, fields_max: int, lists: Collection[str] = ()
) -> dict[str, Any]:
    """Return the fields of a form or a query string; those in `lists` as lists of texts.

    source   "a form" or "a query string", for the error

    Raises BadRequest for more than `fields_max` fields, and for a field that occurs twice, unless
    it is in `lists`.
    """
    try:
        pairs = parse_qsl(
            encoded.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=fields_max,
        )
    except ValueError as error:
        raise BadRequest(
            f"expected {source} of at most {fields_max} fields, in UTF-8 and percent-encoded, "
            f"found another: {error}"
        ) from None
    fields: dict[str, Any] = {}
    for name, text in pairs:
        if name in lists:
            fields.setdefault(name, []).append(text)
        elif name in fields:
            raise BadRequest("expected one value, found several").with_path(name[:100])
        else:
            fields[name] = text
    return fields


def parse_json(body: bytes, limits: Limits, items_max: int = 0) -> Any:
    """Parse JSON, without a byte order mark at its beginning. Raises MalformedJson.

    A long body is measured before anything is built. Raises LimitExceeded if it holds more than any
    body may: arrays and objects, items of one of them (items_max if that is more), fields of the
    outer object, bytes of a string.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
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
        containers=_OTHER_CONTAINERS_MAX + _INSTANCE_CONTAINERS_MAX * max(request_limits),
        depth=_DEPTH_MAX,
        items=max(
            items_max, DENIED_MAX, limits.features_max, limits.label_list_max, *request_limits
        ),
        outer_fields=_OTHER_CONTAINERS_MAX,
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


class MalformedJson(BadInput, code="malformed-json"):
    """Bytes that are not JSON."""
