"""Parameters of trainers and features: pydantic models whose fields have type, range and meaning.

A field is declared once: `trees: int = Field(default=1, ge=1, le=100, description="...")`, a choice
as `Literal["a", "b"]`. From that come the checks, the error texts, docs/parameters.md and the JSON
Schema (`model_json_schema()`), whether the values come from a command line or a JSON object.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from xylem.base.errors import BadParameter, ParameterFault
from xylem.base.faults import FAULT, sentence_of, shortened, unknown, what_is

Scalar: TypeAlias = bool | int | float | str | None

FAULTS_MAX = 100  # the most parameters whose faults are reported

_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Expected:
    """An annotation of a field: what it takes, in words.

    Needed only where the JSON Schema of the field does not say it all.
    """

    words: str


@dataclass(frozen=True)
class CommandOption:
    """An annotation of a field: commands have an option for it, `--name` with its help.

    panel    the heading below which `--help` shows it; empty: it is among the first ones
    metavar  the word for its value in `--help`, if it is not the type
    """

    panel: str = ""
    metavar: str | None = None


class Parameters(BaseModel):
    """The base of all parameters: frozen, and checked when made, each value of exactly its type.

    Making one raises BadParameter, whose `faults` are all that is wrong. Numbers are finite; an
    integer is taken for a float, nothing else is converted. A manifest stores `model_dump()`.

    name_prefix  the prefix of the names in messages, where other parameters stand beside these
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True
    )

    name_prefix: ClassVar[str] = ""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise BadParameter.from_faults(_faults(type(self), error)) from None

    @classmethod
    def command_options(cls) -> Iterator[tuple[str, FieldInfo, CommandOption]]:
        """Yield the name and the field of each option of a command, and how `--help` shows it."""
        for name, field in cls.model_fields.items():
            for option in field.metadata:
                if isinstance(option, CommandOption):
                    yield name, field, option

    @classmethod
    def parse(cls, items: Iterable[str]) -> Self:
        """Return the parameters from `key=value` items of a command line, others at their defaults.

        Raises BadParameter for an item without `=`, a key that is unknown or appears twice, a value
        of another type or out of its range.
        """
        return cls.from_text(split_items(items))

    @classmethod
    def from_text(cls, values: Mapping[str, str]) -> Self:
        """Return the parameters from texts by name, converted and checked as by `parse`."""
        fields = cls.model_fields
        return cls(
            **{
                name: text if name in fields and fields[name].annotation is str else scalar_of(text)
                for name, text in values.items()
            }
        )

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return the parameters from a JSON object; others have their defaults.

        Raises BadParameter, as `parse`.
        """
        return cls(**json_object(values))


def split_items(items: Iterable[str]) -> dict[str, str]:
    """Return the text of each name from `key=value` items. Raises BadParameter."""
    texts: dict[str, str] = {}
    faults = []
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            faults.append(ParameterFault("", f"expected key=value, found {shortened(item)!r}"))
        elif key in texts:
            faults.append(ParameterFault(shortened(key), "expected once, found twice"))
        texts[key] = text
    if faults:
        raise BadParameter.from_faults(faults)
    return texts


def scalar_of(text: str) -> Scalar:
    """Return the value of a word of a command line: `true`, `null`, `2` and `0.5` as in JSON.

    Any other word is itself, as a string.
    """
    if text in _WORDS:
        return _WORDS[text]
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return text


def json_object(values: object) -> dict[str, Any]:
    """Return a value, checked to be a JSON object. Raises BadParameter."""
    if not isinstance(values, dict):
        raise BadParameter.from_faults(
            [ParameterFault("", f"expected an object, found {what_is(values)}")]
        )
    return values


def expected_of(parameters: type[Parameters], name: str) -> str | None:
    """Return what a parameter takes, in words; None if its JSON Schema is too complex for that."""
    notes = parameters.model_fields[name].metadata
    words = next((note.words for note in notes if isinstance(note, Expected)), None)
    return words or _words(parameters.model_json_schema()["properties"][name])


def _words(schema: Mapping[str, Any]) -> str | None:
    if "anyOf" in schema:
        words_first = sorted(
            schema["anyOf"], key=lambda kind: "const" not in kind and kind.get("type") != "null"
        )
        alternatives = [_words(kind) for kind in words_first]
        return None if None in alternatives else " or ".join(map(str, alternatives))
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    kind = str(schema.get("type"))
    if kind not in ("integer", "number"):
        return {"boolean": "true or false", "string": "a string", "null": "null"}.get(kind)
    if "multipleOf" in schema:
        return None
    noun = "an integer" if kind == "integer" else "a number"
    limits = {
        bound: str(schema[bound]) if kind == "integer" else f"{schema[bound]:g}"
        for bound in _BOUNDS
        if bound in schema
    }
    if limits.keys() == {"minimum", "maximum"}:
        return f"{noun} from {limits['minimum']} to {limits['maximum']}"
    bounds = " and ".join(f"{_BOUNDS[bound]} {value}" for bound, value in limits.items())
    return f"{noun} of {bounds}" if bounds else noun


def _faults(parameters: type[Parameters], error: ValidationError) -> list[ParameterFault]:
    """Return what is wrong with the first FAULTS_MAX faulty parameters, one fault for each."""
    faults: dict[str | None, str] = {}
    for details in error.errors(include_url=False):
        place = details["loc"] or (details.get("ctx", {}).get("path") or None,)
        name = None if place[0] is None else str(place[0])
        if name not in faults and len(faults) < FAULTS_MAX:
            faults[name] = _message(parameters, name, details)
    return [
        ParameterFault("" if name is None else parameters.name_prefix + shortened(name), message)
        for name, message in faults.items()
    ]


def _message(parameters: type[Parameters], name: str | None, details: Any) -> str:
    if details["type"] == FAULT:
        return str(details["ctx"]["message"])
    if name is None:
        return str(details["msg"])
    return (
        unknown(name, list(parameters.model_fields), "parameter")
        if details["type"] == "extra_forbidden"
        else sentence_of(details, expected_of(parameters, name))
    )
