"""The OpenAPI document, and checks of values with it; 1.0 is no integer, unlike in JSON schema."""

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import best_match

from xylem.api.app import create_app
from xylem.base.settings import Limits, read_settings

_TYPES = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
_VALIDATOR = validators.extend(Draft202012Validator, type_checker=_TYPES)


@cache
def openapi() -> dict[str, Any]:
    """Return the document of the service with its default limits."""
    return openapi_under(Limits())


def openapi_under(limits: Limits) -> dict[str, Any]:
    """Return the document of the service with other limits."""
    document: dict[str, Any] = create_app(read_settings(limits=limits)).openapi()
    return document


def fault_of(document: dict[str, Any], schema: dict[str, Any], value: Any) -> str | None:
    """Return the fault of a value, or None if the schema allows it."""
    validator = _VALIDATOR({**schema, "components": document["components"]})
    fault = best_match(validator.iter_errors(value))
    return None if fault is None else f"{fault.json_path}: {fault.message}"
