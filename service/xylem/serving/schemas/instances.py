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
"""Fields of an object, known or not: each that is not is a fault."""


class StrictModel(BaseModel):
    """What has no field but its own, each of just its type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RequestModel(StrictModel):
    """What a request says, but for its instances: `kind_of` counts the fields of those."""

    @model_validator(mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        if type(value) is dict and len(value) > FIELDS_MAX:
            raise fault(too_many_fields(value))
        return value


def too_many_fields(value: dict[str, Any]) -> str:
    """Return what is told of an object with more fields than FIELDS_MAX."""
    return f"expected at most {FIELDS_MAX} fields, found {len(value)}"


class TextInstance(StrictModel):
    """An instance that is a text."""

    text: Annotated[str, AtMost("text_bytes_max", "bytes of text", utf8_length)]


class SparseInstance(StrictModel):
    """An instance that is sparse already: `indices` are integers of
    any size, in any order, not unique.
    """

    indices: Annotated[list[int], AtMost("features_max", "features")]
    values: Annotated[list[float], AtMost("features_max", "features")] = Field(
        description="one for each of the indices"
    )

    @field_validator("values")
    @classmethod
    def _as_many(cls, values: list[float], info: ValidationInfo) -> list[float]:
        indices = info.data.get("indices", values)
        if len(indices) != len(values):
            raise fault(f"expected as many values as indices, {len(indices)}, found {len(values)}")
        return values


class NamedInstance(StrictModel):
    """An instance that is a value for each of some named features."""

    features: Annotated[
        dict[str, float],
        AtMost("features_max", "features"),
        AtMost("name_bytes_max", "bytes of a name", longest),
    ]


KINDS = ("text", "indices", "values", "features")
HIDDEN = "\0"
"""What the tags of unions begin with: no such word stands in a path that a client sees."""

TEXT = f"{HIDDEN}text"
SPARSE = f"{HIDDEN}sparse"
NAMED = f"{HIDDEN}named"
TAGS: dict[str, type[StrictModel]] = {
    TEXT: TextInstance,
    SPARSE: SparseInstance,
    NAMED: NamedInstance,
}
"""How the kinds are told apart."""

_TAG_OF = {
    (True, False, False, False): TEXT,
    (False, True, True, False): SPARSE,
    (False, False, False, True): NAMED,
}
"""By which of KINDS a value has."""


def kind_of(value: Any) -> str | None:
    """Return the tag of what looks like an instance: which of the fields it has tells its kind."""
    if type(value) is dict and len(value) <= FIELDS_MAX:
        has = ("text" in value, "indices" in value, "values" in value, "features" in value)
        return _TAG_OF.get(has)
    if isinstance(value, StrictModel):
        return next(tag for tag, kind in TAGS.items() if isinstance(value, kind))
    return None


Instance: TypeAlias = Annotated[
    Annotated[TextInstance, Tag(TEXT)]
    | Annotated[SparseInstance, Tag(SPARSE)]
    | Annotated[NamedInstance, Tag(NAMED)],
    Discriminator(kind_of),
]
AnyInstance: TypeAlias = TextInstance | SparseInstance | NamedInstance
