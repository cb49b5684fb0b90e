"""Instances: a text, a sparse row, or named features."""

from typing import Annotated, Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from xylem.base import fault
from xylem.serving.schemas.limits import AtMost, longest, utf8_length

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


class TextInstance(StrictModel):
    """An instance that is a text, with its vector if the model was trained with vectors."""

    text: Annotated[str, AtMost("text_bytes_max", "bytes of text", utf8_length)]
    vector: Annotated[list[float], AtMost("features_max", "numbers")] | None = Field(
        default=None,
        description="numbers of the text, as a sentence encoder makes them; as many as in training",
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


KINDS = ("text", "indices", "values", "features")
HIDDEN = "\0"
"""The prefix of the tags of unions; tags with it are left out of paths that clients see."""

TEXT = f"{HIDDEN}text"
SPARSE = f"{HIDDEN}sparse"
NAMED_FEATURES = f"{HIDDEN}named"
TAGS: dict[str, type[StrictModel]] = {
    TEXT: TextInstance,
    SPARSE: SparseInstance,
    NAMED_FEATURES: NamedInstance,
}
"""The model of each kind of instance, by its tag."""

_TAG_OF = {
    (True, False, False, False): TEXT,
    (False, True, True, False): SPARSE,
    (False, False, False, True): NAMED_FEATURES,
}
"""The tag of each kind of instance; the keys tell, for each of KINDS, whether it is a field."""


def kind_of(value: Any) -> str | None:
    """Return the tag of an instance, by its fields; None if they fit no kind."""
    if type(value) is dict and len(value) <= FIELDS_MAX:
        fields_present = (
            "text" in value,
            "indices" in value,
            "values" in value,
            "features" in value,
        )
        return _TAG_OF.get(fields_present)
    if isinstance(value, StrictModel):
        return next(tag for tag, kind in TAGS.items() if isinstance(value, kind))
    return None


Instance: TypeAlias = Annotated[
    Annotated[TextInstance, Tag(TEXT)]
    | Annotated[SparseInstance, Tag(SPARSE)]
    | Annotated[NamedInstance, Tag(NAMED_FEATURES)],
    Discriminator(kind_of),
]
AnyInstance: TypeAlias = TextInstance | SparseInstance | NamedInstance
