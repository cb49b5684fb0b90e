"""What pydantic finds wrong with a value -> "expected X, found Y", for requests and parameters alike."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic_core import PydanticCustomError

from service.base.nearest import did_you_mean
from service.base.what_is import shortened, what_is

FAULT = "bad-request"
"""The type of errors of our own: the value is not what was expected, and the context's `message` says why."""

_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_RANGES = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}
_LENGTHS = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}


def fault(message: str, path: str = "") -> PydanticCustomError:
    """Return the error of a value that is not what was expected; `path` leads to it from here."""
    return PydanticCustomError(FAULT, "{message}", {"message": message, "path": path})


def sentence_of(found: Any, expected: str | None = None) -> str:
    """Return what one of the errors of a ValidationError says.

    expected  what the field takes, in words; None: what the type of the error tells of it
    """
    kind, context = found["type"], found.get("ctx", {})
    if kind == "missing":
        return f"expected the field {found['loc'][-1]}, found none"
    if expected is None and kind in _LENGTHS:
        word, key = _LENGTHS[kind]
        return f"expected {word} {context[key]} items, found {context['actual_length']}"
    if expected is None and kind in _RANGES:
        word, key = _RANGES[kind]
        expected = f"{word} {context[key]}"
    if expected is None and kind == "literal_error":
        expected = str(context["expected"])
    if expected is None:
        expected = _EXPECTED.get(kind, found["msg"])
    return f"expected {expected}, found {what_is(found['input'])}"


def unknown(name: str, known: Collection[str], what: str) -> str:
    """Return what is wrong with a name that is not known, and which one may have been meant."""
    hint = did_you_mean(shortened(name), known)
    return f"expected {'only ' if known else 'none'}{', '.join(known)}, found another {what}{hint}"
