"""Messages for values that cannot be used, "expected X, found Y": for requests and parameters."""

import difflib
import functools
from collections.abc import Collection, Iterable
from typing import Any

from pydantic_core import PydanticCustomError

# The type of the service's own pydantic errors: a value that is not what was expected.
#
# The context of the error has the message as `message`.
FAULT = "bad-request"

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
    """Return the pydantic error of a value that is not what was expected.

    path  leads from the validated value to the faulty one
    """
    return PydanticCustomError(FAULT, "{message}", {"message": message, "path": path})


def sentence_of(error: Any, expected: str | None = None) -> str:
    """Return the message for one of the errors of a ValidationError.

    expected  what the field takes, in words; None: derived from the type of the error
    """
    kind = error["type"]
    context = error.get("ctx", {})
    if kind == "missing":
        return f"expected the field {error['loc'][-1]}, found none"
    if expected is None and kind in _LENGTHS:
        word, key = _LENGTHS[kind]
        return f"expected {word} {context[key]} items, found {context['actual_length']}"
    if expected is None and kind in _RANGES:
        word, key = _RANGES[kind]
        expected = f"{word} {context[key]}"
    if expected is None:
        expected = (
            context["expected"] if kind == "literal_error" else _EXPECTED.get(kind, error["msg"])
        )
    return f"expected {expected}, found {what_is(error['input'])}"


def unknown(name: str, known_names: Collection[str], noun: str) -> str:
    """Return the message for an unknown name, with a similar known name as a hint.

    noun  a word for the thing that has the name: "field", "parameter"
    """
    return (
        f"expected {'only ' if known_names else 'none'}{', '.join(known_names)}, "
        f"found another {noun}{did_you_mean(shortened(name), known_names)}"
    )


# Names that other libraries and services use for options whose names here look different.
_ELSEWHERE = {
    "k": "top_r",
    "top_k": "top_r",
    "topk": "top_r",
    "limit": "top_r",
    "beam": "beam_width",
    "beam_size": "beam_width",
    "timeout": "deadline_ms",
}

_HINTS_MAX = 256  # cached hints: a client makes the same mistake in each request


def did_you_mean(name: str, candidates: Iterable[str], *, is_quoted: bool = False) -> str:
    """Return '; did you mean ...?' with the most similar candidate; empty if none is similar."""
    nearest = _nearest(name, tuple(candidates))
    if nearest is None:
        return ""
    return f"; did you mean {nearest!r:.80}?" if is_quoted else f"; did you mean {nearest}?"


@functools.lru_cache(_HINTS_MAX)
def _nearest(name: str, candidates: tuple[str, ...]) -> str | None:
    if (equivalent := _ELSEWHERE.get(name)) in candidates:
        return equivalent
    return next(iter(difflib.get_close_matches(name, candidates, n=1)), None)


TEXT_CHARACTERS_MAX = 60  # the most characters of a text that a message shows


def what_is(value: object) -> str:
    """Return a short description of a JSON value.

    It never has the whole content of a long value, and never looks into nested ones.
    """
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{shortened(value)}"'
    if isinstance(value, list):
        return f"an array of {len(value)}"
    return f"an object of {len(value)}" if isinstance(value, dict) else str(value)


def shortened(text: str) -> str:
    """Return a text, cut off after TEXT_CHARACTERS_MAX characters."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}…"
