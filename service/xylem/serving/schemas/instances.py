"""Instances: a text, its fields, a sparse row, or named features."""

from typing import Annotated, Any, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from xylem.base import TextFields, fault
from xylem.serving.schemas.limits import AtMost, longest, total_length, utf8_length

FIELDS_MAX = 100
"""The most fields of an object; a bound, because each unknown field is a fault."""


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


KINDS = ("text", "indices", "values", "features", "fields")
HIDDEN = "\0"
"""The prefix of the tags of unions; tags with it are left out of paths that clients see."""

TEXT = f"{HIDDEN}text"
SPARSE = f"{HIDDEN}sparse"
NAMED_FEATURES = f"{HIDDEN}named"
TEXT_FIELDS = f"{HIDDEN}fields"
TAGS: dict[str, type[StrictModel]] = {
    TEXT: TextInstance,
    SPARSE: SparseInstance,
    NAMED_FEATURES: NamedInstance,
    TEXT_FIELDS: FieldsInstance,
}
"""The model of each kind of instance, by its tag."""

# the tag of each kind of instance; the keys tell, for each of KINDS, whether it is a field
_TAG_OF = {
    (True, False, False, False, False): TEXT,
    (False, True, True, False, False): SPARSE,
    (False, False, False, True, False): NAMED_FEATURES,
    (False, False, False, False, True): TEXT_FIELDS,
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
