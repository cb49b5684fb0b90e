"""Small JSON documents of the store, read strictly, with one form of error for each fault."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from xylem_store.errors import Corrupt

Scalar = str | int | float | bool | None


def render(document: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a document: sorted keys, ASCII, indented, one final line end.

    Raises ValueError for NaN or an infinity.
    """
    text = json.dumps(document, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)
    return f"{text}\n".encode("ascii")


def _fields(items: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(items)
    if len(fields) != len(items):
        raise ValueError("a repeated key")
    return fields


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(object_pairs_hook=_fields, parse_constant=_refuse)


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in `data`.

    Raises Corrupt for anything else, including a repeated key and NaN.
    """

    try:
        document = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Corrupt(where, "a JSON object", str(error)[:200]) from error
    if type(document) is not dict:
        raise Corrupt(where, "a JSON object", type(document).__name__)
    return document


def seal(body: bytes, name: str) -> bytes:
    """Return the checksum line of the file `name` with the bytes `body`, as sha256sum writes it."""
    return f"{hashlib.sha256(body).hexdigest()}  {name}\n".encode("ascii")


# A function of a value and its place. It returns the value in the form in which it is used.
#
# It raises Corrupt for a value that does not fit.
Check = Callable[[Any, str], Any]


def checked(expected: str, fits: Callable[[Any], object]) -> Check:
    """Return the check that returns a value unchanged if `fits` is true of it."""

    def check(value: Any, where: str) -> Any:
        if not fits(value):
            raise refusal(where, expected, value)
        return value

    return check


def integer(low: int, high: int) -> Check:
    """Return the check of an integer from `low` to `high`."""
    return checked(
        f"an integer from {low} to {high}", lambda x: type(x) is int and low <= x <= high
    )


def text(pattern: str) -> Check:
    """Return the check of a string that `pattern` matches as a whole."""
    expression = re.compile(pattern, re.ASCII)
    return checked(
        f"a string of {pattern}", lambda value: type(value) is str and expression.fullmatch(value)
    )


DIGEST = text("[0-9a-f]{64}")


def choice(*allowed: str) -> Check:
    """Return the check of a string that is one of `allowed`."""
    return checked(" or ".join(allowed), lambda value: type(value) is str and value in allowed)


def optional(check: Check) -> Check:
    """Return the check of a value that may be null, which gives None."""
    return lambda value, where: None if value is None else check(value, where)


def list_of(check: Check, n_min: int, n_max: int) -> Check:
    """Return the check of a list of `n_min` to `n_max` values, which gives a tuple."""
    is_list = checked(
        f"a list of {n_min} to {n_max}",
        lambda value: type(value) is list and n_min <= len(value) <= n_max,
    )
    return lambda value, where: tuple(
        check(item, f"{where}[{i}]") for i, item in enumerate(is_list(value, where))
    )


def object_of(check: Check, n_max: int, names: str = "(?s:.*)") -> Check:
    """Return the check of an object of at most `n_max` fields.

    names  a pattern that matches each field's name as a whole
    """
    is_object = checked(
        f"an object of at most {n_max} fields",
        lambda document: type(document) is dict and len(document) <= n_max,
    )

    def check_all(document: Any, where: str) -> dict[str, Any]:
        for name in is_object(document, where):
            if not re.fullmatch(names, name, re.ASCII):
                raise refusal(where, f"names of {names}", name)
        return {name: check(value, f"{where}.{name}") for name, value in document.items()}

    return check_all


def record(kind: Callable[..., Any], /, **checks: Check) -> Check:
    """Return the check of an object with exactly these fields, which gives `kind(**fields)`."""

    def check_all(document: Any, where: str) -> Any:
        if type(document) is not dict:
            raise refusal(where, "an object", document)
        fields = {}
        for name, check in checks.items():
            if name not in document:
                raise Corrupt(where, f"a field {name!r}", "none")
            fields[name] = check(document[name], f"{where}: {name}")
        if len(document) > len(fields):
            raise refusal(where, "no further field", min(document.keys() - fields.keys()))
        return kind(**fields)

    return check_all


def refusal(where: str, expected: str, value: object) -> Corrupt:
    """Return the error of a value that does not fit, which shows at most 80 characters of it."""
    excerpt = ascii(value)
    return Corrupt(where, expected, excerpt if len(excerpt) <= 80 else f"{excerpt[:80]}...")


def render_sealed(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a small file: the document, and a last line with its checksum."""
    body = render(document)
    return body + seal(body, "-")


def parse_sealed(data: bytes, where: str) -> dict[str, Any]:
    """Return a document that `render_sealed` wrote. Raises Corrupt for any other bytes."""
    end = data.rfind(b"\n", 0, -1) + 1
    if data[end:] != seal(data[:end], "-"):
        raise Corrupt(
            where, "a last line with the sha256 of the lines before it", ascii(data[end:][:80])
        )
    return parse(data[:end], where)


def is_scalar(value: object) -> bool:
    """Return whether this is a string, a boolean, null, a finite float or an integer of 64 bits."""
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return (
        value is None
        or type(value) in (str, bool)
        or (type(value) is float and math.isfinite(value))
    )
