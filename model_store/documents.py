"""Small JSON documents of the store, read strictly: one way to refuse each thing that may be wrong."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from model_store.errors import Corrupt

Scalar = str | int | float | bool | None


def render(document: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a document: sorted keys, ASCII, indented, one line end at the end.

    Raises ValueError for NaN or an infinity.
    """
    text = json.dumps(document, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)
    return f"{text}\n".encode("ascii")


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in `data`; raise Corrupt for anything else, also a repeated key or a NaN."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("a repeated key")
        return found

    def constant(name: str) -> None:
        raise ValueError(name)

    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise Corrupt(where, "a JSON object", str(error)[:200]) from error
    if type(document) is not dict:
        raise Corrupt(where, "a JSON object", type(document).__name__)
    return document


def seal(body: bytes, name: str) -> bytes:
    """Return the line that proves `body`, the bytes of the file `name`, whole: as sha256sum writes it."""
    return f"{hashlib.sha256(body).hexdigest()}  {name}\n".encode("ascii")


class Fields:
    """The fields of one JSON object, taken one by one; every refusal names file and field."""

    def __init__(self, found: object, where: str) -> None:
        if type(found) is not dict:
            raise Corrupt(where, "an object", _shown(found))
        self._left = dict(found)
        self._where = where

    def take(self, name: str) -> Any:
        """Return a field of any type."""
        if name not in self._left:
            raise Corrupt(self._where, f"a field {name!r}", "none")
        return self._left.pop(name)

    def integer(self, name: str, low: int, high: int) -> int:
        """Return an integer of [low, high]."""
        found = self.take(name)
        if type(found) is not int or not low <= found <= high:
            raise self.refusal(name, f"an integer from {low} to {high}", found)
        return found

    def text(self, name: str, pattern: str) -> str:
        """Return a string that matches `pattern` wholly."""
        found = self.take(name)
        if type(found) is not str or not re.fullmatch(pattern, found, re.ASCII):
            raise self.refusal(name, f"a string of {pattern}", found)
        return found

    def choice(self, name: str, allowed: tuple[str, ...]) -> Any:
        """Return one of the allowed strings."""
        found = self.take(name)
        if type(found) is not str or found not in allowed:
            raise self.refusal(name, " or ".join(allowed), found)
        return found

    def items(self, name: str, n_max: int) -> dict[str, Any]:
        """Return an object of at most `n_max` fields."""
        found = self.take(name)
        if type(found) is not dict or len(found) > n_max:
            raise self.refusal(name, f"an object of at most {n_max} fields", found)
        return found

    def done(self) -> None:
        """Raise Corrupt when a field is left that nobody took."""
        if self._left:
            raise Corrupt(self._where, "no further field", _shown(min(self._left)))

    def refusal(self, name: str, expected: str, found: object) -> Corrupt:
        """Return the error for a field."""
        return Corrupt(f"{self._where}: {name}", expected, _shown(found))


def render_sealed(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a small file: the document, and the line that proves it whole."""
    body = render(document)
    return body + seal(body, "-")


def parse_sealed(data: bytes, where: str) -> Fields:
    """Return the fields of a document that `render_sealed` wrote; raise Corrupt for anything else."""
    end = data.rfind(b"\n", 0, -1) + 1
    if data[end:] != seal(data[:end], "-"):
        raise Corrupt(where, "a last line with the sha256 of the lines before it", ascii(data[end:][:80]))
    return Fields(parse(data[:end], where), where)


def is_scalar(value: object) -> bool:
    """Return whether this is a string, a boolean, null, a finite number, or an integer of 64 bits."""
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or type(value) in (str, bool) or (type(value) is float and math.isfinite(value))


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
