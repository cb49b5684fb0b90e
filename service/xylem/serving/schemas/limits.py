"""Limits as annotations of fields: values are held against the settings
that are the validation's context.
"""

import itertools
from collections.abc import Callable, Iterable, Sized
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from xylem.base import LimitExceeded

# of a long object; between two parts other threads get the interpreter's lock
_FIELDS_AT_ONCE = 4096
LIMIT = "limit-exceeded"
"""The type of errors of our own where what was asked is too much; see xylem.base.faults."""

LIMIT_KEY = "x-limit"
"""The key by which a JSON schema names the limit of a value."""


def utf8_length(text: str) -> int:
    """Return the bytes of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def longest(names: Iterable[str]) -> int:
    """Return the bytes of the longest of some names."""
    names = list(names)
    is_ascii = "".join(names).isascii()
    sizes: Iterable[Sized] = (
        names if is_ascii else [name.encode(errors="surrogatepass") for name in names]
    )
    return max(map(len, sizes), default=0)


def exceeded(message: str, path: str = "") -> PydanticCustomError:
    """Return the error of a value beyond a limit; `path` leads to it from here."""
    return PydanticCustomError(LIMIT, "{message}", {"message": message, "path": path})


def limit_fault(size: int, quantity: str, limit: str, limits: Any) -> str | None:
    """Return what is told of a value beyond a limit; None where it is within."""
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
        raise LimitExceeded(fault).at(place)


def check_limit(size: int, quantity: str, limit: str, info: ValidationInfo, path: str = "") -> None:
    """Raise what is told of a limit that is exceeded; without
    settings as context nothing is limited.
    """
    fault = None if info.context is None else limit_fault(size, quantity, limit, info.context)
    if fault is not None:
        raise exceeded(fault, path)


class AtMost(NamedTuple):
    """An annotation: the value, or its length, or what `measure` says,
    is at most the limit of that name.

    How many items an array or an object has is looked at before they are, and these only up to the
    first that is at fault: to tell of each of a million takes a gigabyte. A long object is
    validated in pieces.
    """

    limit: str
    quantity: str
    measure: Callable[[Any], int] = len

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Check after the value itself; how many items it has, before."""
        limit = self.limit
        quantity = self.quantity
        measure = self.measure

        def check(value: Any, info: ValidationInfo) -> Any:
            limits = info.context  # looked at first and at once: this is called for every text
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
        """Name the limit; `longest` is of keys or items, for which a schema has no word."""
        schema = dict(handler(core))
        return schema if self.measure is longest else {**schema, LIMIT_KEY: self.limit}
