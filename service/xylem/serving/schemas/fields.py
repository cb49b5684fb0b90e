"""Fields of requests: limits as annotations, and instances, of texts or of features.

The validation context has the values of the limits.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from xylem.base import LimitExceeded, TextFields, fault

# a long object is validated in parts, so that other threads can run between them
_FIELDS_AT_ONCE = 4096

# The type of our pydantic errors for exceeded limits; see xylem.base.faults.
LIMIT = "limit-exceeded"

# The key that names the limit of a value in a JSON schema.
LIMIT_KEY = "x-limit"


def utf8_length(text: str) -> int:
    """Return the bytes of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def longest(names: Iterable[str]) -> int:
    """Return the bytes of the longest name."""
    names = list(names)
    sizes: Iterable[Sized] = (
        names
        if "".join(names).isascii()
        else [name.encode(errors="surrogatepass") for name in names]
    )
    return max(map(len, sizes), default=0)


def total_length(texts: Mapping[str, str | None]) -> int:
    """Return the bytes of all texts of an object together, as UTF-8."""
    return sum(utf8_length(text or "") for text in texts.values())


def exceeded(message: str, path: str = "") -> PydanticCustomError:
    """Return the error for a value beyond a limit; `path` leads to it from the validated field."""
    return PydanticCustomError(LIMIT, "{message}", {"message": message, "path": path})


def limit_fault(size: int, quantity: str, limit: str, limits: Any) -> str | None:
    """Return the message for a value beyond a limit; None if it is within the limit.

    size      the value, or its length
    quantity  what is counted, for the message, such as "bytes of text"
    limit     the name of the limit
    """
    size_max = getattr(limits, limit)
    return (
        f"expected at most {size_max} {quantity} (limit {limit}), found {size}"
        if size > size_max
        else None
    )


def refuse_beyond(size: int, quantity: str, limit: str, limits: Any, place: str) -> None:
    """Raise LimitExceeded, which names the place, for a value beyond a limit."""
    fault = limit_fault(size, quantity, limit, limits)
    if fault is not None:
        raise LimitExceeded(fault).with_path(place)


def check_limit(size: int, quantity: str, limit: str, info: ValidationInfo, path: str = "") -> None:
    """Raise an error for a value beyond a limit; without limits in the context, do nothing."""
    fault = None if info.context is None else limit_fault(size, quantity, limit, info.context)
    if fault is not None:
        raise exceeded(fault, path)


class AtMost(NamedTuple):
    """An annotation: the value, its length, or what `measure` returns is within a named limit.

    limit     the name of the limit
    quantity  what is counted, for the message

    The length of an array or an object is checked before its items, and items only up to the first
    fault: to report a fault for each of a million items takes a gigabyte. A long object is
    validated in parts.
    """

    limit: str
    quantity: str
    measure: Callable[[Any], int] = len

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Check the limit after the value itself; the number of items before."""
        limit, quantity, measure = self

        def check(value: Any, info: ValidationInfo) -> Any:
            limits = info.context  # first, and without a call: this runs for every text
            if limits is not None:
                size = value if type(value) is int else measure(value)
                if size > getattr(limits, limit):
                    check_limit(size, quantity, limit, info)
            return value

        def check_list(value: Any, info: ValidationInfo) -> Any:
            return check(value, info) if type(value) is list else value

        def check_object(value: Any, validate: Callable[[Any], Any], info: ValidationInfo) -> Any:
            if type(value) is not dict or len(check(value, info)) <= _FIELDS_AT_ONCE:
                return validate(value)
            validated: dict[str, Any] = {}
            remaining_items = iter(value.items())
            while part := dict(itertools.islice(remaining_items, _FIELDS_AT_ONCE)):
                validated |= validate(part)
            return validated

        schema = handler(source)
        first_fault: Any = {**schema, "fail_fast": True}
        if measure is len and schema["type"] == "list":
            return core_schema.with_info_before_validator_function(check_list, first_fault)
        if measure is len and schema["type"] == "dict":
            return core_schema.with_info_wrap_validator_function(check_object, first_fault)
        return core_schema.with_info_after_validator_function(check, schema)

    def __get_pydantic_json_schema__(
        self, core: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Add the name of the limit.

        It is left out for `longest`, which limits keys or items: a schema has no word for that.
        """
        schema = dict(handler(core))
        return schema if self.measure is longest else {**schema, LIMIT_KEY: self.limit}


# The most fields of an object; a bound, because each unknown field is a fault.
FIELDS_MAX = 100


class StrictModel(BaseModel):
    """A model that refuses unknown fields, and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RequestModel(StrictModel):
    """The base of all models of requests but instances, whose fields `kind_of` counts."""

    @model_validator(mode="before")
    @classmethod
    def _check_n_fields(cls, value: Any) -> Any:
        if type(value) is dict and len(value) > FIELDS_MAX:
            raise fault(too_many_fields(value))
        return value


def too_many_fields(value: dict[str, Any]) -> str:
    """Return the error for an object with more fields than FIELDS_MAX."""
    return f"expected at most {FIELDS_MAX} fields, found {len(value)}"


class _WithVector(StrictModel):
    vector: Annotated[list[float], AtMost("features_max", "numbers")] | None = Field(
        default=None,
        description="numbers of the text, as a sentence encoder makes them; as many as in training",
    )


class TextInstance(_WithVector):
    """An instance that is a text, with its vector if the model was trained with vectors."""

    text: Annotated[str, AtMost("text_bytes_max", "bytes of text", utf8_length)]


def _few(value: Any) -> Any:
    """Return the fields of a text; refuse too many before any of them is checked."""
    if type(value) is dict and len(value) > TextFields.n_max:
        raise fault(f"expected at most {TextFields.n_max} fields, found {len(value)}")
    return value


class FieldsInstance(_WithVector):
    """An instance that is a text in fields, as the version was trained on."""

    fields: Annotated[
        dict[str, str | None],
        AtMost("text_bytes_max", "bytes of text", total_length),
        BeforeValidator(_few),
    ] = Field(
        description="the texts of the fields, by name; null or left out: empty",
        json_schema_extra={"minProperties": 1, "maxProperties": TextFields.n_max},
    )


class SparseInstance(StrictModel):
    """A sparse instance. `indices` are integers of any size, in any order, perhaps repeated."""

    indices: Annotated[list[int], AtMost("features_max", "features")]
    values: Annotated[list[float], AtMost("features_max", "features")] = Field(
        description="one for each of the indices"
    )

    @field_validator("values")
    @classmethod
    def _check_lengths(cls, values: list[float], info: ValidationInfo) -> list[float]:
        indices = info.data.get("indices", values)
        if len(indices) != len(values):
            raise fault(f"expected as many values as indices, {len(indices)}, found {len(values)}")
        return values


class NamedInstance(StrictModel):
    """An instance of named features, each with a value."""

    features: Annotated[
        dict[str, float],
        AtMost("features_max", "features"),
        AtMost("name_bytes_max", "bytes of a name", longest),
    ]


KINDS = ("text", "indices", "values", "features", "fields", "vector")

# The prefix of the tags of unions; tags with it are left out of paths that clients see.
HIDDEN = "\0"

TEXT = f"{HIDDEN}text"
SPARSE = f"{HIDDEN}sparse"
NAMED_FEATURES = f"{HIDDEN}named"
TEXT_FIELDS = f"{HIDDEN}fields"

# The model of each kind of instance, by its tag.
TAGS: dict[str, type[StrictModel]] = {
    TEXT: TextInstance,
    SPARSE: SparseInstance,
    NAMED_FEATURES: NamedInstance,
    TEXT_FIELDS: FieldsInstance,
}

# the tag of each kind of instance; the keys tell, for each of KINDS, whether it is a field
_TAG_OF = {
    (True, False, False, False, False, False): TEXT,
    (True, False, False, False, False, True): TEXT,
    (False, True, True, False, False, False): SPARSE,
    (False, False, False, True, False, False): NAMED_FEATURES,
    (False, False, False, False, True, False): TEXT_FIELDS,
    (False, False, False, False, True, True): TEXT_FIELDS,
}


def kind_of(value: Any) -> str | None:
    """Return the tag of an instance, by its fields; None if they fit no kind."""
    if type(value) is dict and len(value) <= FIELDS_MAX:
        return _TAG_OF.get(
            (
                "text" in value,
                "indices" in value,
                "values" in value,
                "features" in value,
                "fields" in value,
                value.get("vector") is not None,
            )
        )
    return next((tag for tag, kind in TAGS.items() if isinstance(value, kind)), None)


Instance: TypeAlias = Annotated[
    Annotated[TextInstance, Tag(TEXT)]
    | Annotated[SparseInstance, Tag(SPARSE)]
    | Annotated[NamedInstance, Tag(NAMED_FEATURES)]
    | Annotated[FieldsInstance, Tag(TEXT_FIELDS)],
    Discriminator(kind_of),
]
AnyInstance: TypeAlias = TextInstance | SparseInstance | NamedInstance | FieldsInstance
