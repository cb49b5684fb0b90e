"""Limits as annotations of fields; the validation context has the values of the limits."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from xylem.base import LimitExceeded

# a long object is validated in parts, so that other threads can run between them
_FIELDS_AT_ONCE = 4096
LIMIT = "limit-exceeded"
"""The type of our pydantic errors for exceeded limits; see xylem.base.faults."""

LIMIT_KEY = "x-limit"
"""The key that names the limit of a value in a JSON schema."""


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
