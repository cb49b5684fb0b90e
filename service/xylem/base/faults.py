"""What is wrong with a value, in words: "expected X, found Y", for requests and
parameters alike.
"""

import difflib
import functools
from collections.abc import Collection, Iterable
from typing import Any

from pydantic_core import PydanticCustomError

FAULT = "bad-request"
"""The type of errors of our own: the value is not what was expected,
and the context's `message` says why.
"""

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


def sentence_of(error: Any, expected: str | None = None) -> str:
    """Return what one of the errors of a ValidationError says.

    expected  what the field takes, in words; None: what the type of the error tells of it
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
    if expected is None and kind == "literal_error":
        expected = str(context["expected"])
    if expected is None:
        expected = _EXPECTED.get(kind, error["msg"])
    return f"expected {expected}, found {what_is(error['input'])}"


def unknown(name: str, known_names: Collection[str], noun: str) -> str:
    """Return what is wrong with a name that is not known, and which one may have been meant."""
    hint = did_you_mean(shortened(name), known_names)
    return f"expected {'only ' if known_names else 'none'}{', '.join(known_names)}, found another {noun}{hint}"


_ELSEWHERE = {
    "k": "top_r",
    "top_k": "top_r",
    "topk": "top_r",
    "limit": "top_r",
    "beam": "beam_width",
    "beam_size": "beam_width",
    "timeout": "deadline_ms",
}
"""What other libraries and services call things, where our name for it looks different."""


def did_you_mean(name: str, candidates: Iterable[str], *, is_quoted: bool = False) -> str:
    """Return "; did you mean ...?" with the name that is most alike; empty where none is."""
    near = _nearest(name, tuple(candidates))
    if near is None:
        return ""
    return f"; did you mean {near!r:.80}?" if is_quoted else f"; did you mean {near}?"


@functools.lru_cache(256)
def _nearest(name: str, candidates: tuple[str, ...]) -> str | None:
    """Return the name that is most alike; kept, as a client makes the same mistake in
    each request.
    """
    if (equivalent := _ELSEWHERE.get(name)) in candidates:
        return equivalent
    return next(iter(difflib.get_close_matches(name, candidates, n=1)), None)


SHOWN = 60
"""Characters of a text that are shown."""


def what_is(value: object) -> str:
    """Return what a JSON value is, in a few words: never its whole
    content, and no deeper than itself.
    """
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{shortened(value)}"'
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    return str(value)


def shortened(text: str) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
