"""As much of JSON Schema as the OpenAPI document uses; an integer is one only when written as one."""

import re
from functools import cache
from typing import Any

from service.base.settings import Limits, read_settings
from service.server.app import create_app

_TYPES: dict[str, Any] = {
    "null": lambda v: v is None,
    "boolean": lambda v: type(v) is bool,
    "integer": lambda v: type(v) is int,
    "number": lambda v: type(v) in (int, float),
    "string": lambda v: type(v) is str,
    "array": lambda v: type(v) is list,
    "object": lambda v: type(v) is dict,
}
_KNOWN = {
    "$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum", "example", "examples",
    "format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength",
    "minimum", "oneOf", "pattern", "properties", "required", "title", "type", "x-limit",
}  # fmt: skip


@cache
def openapi() -> dict[str, Any]:
    """The document of the service under its usual limits."""
    return openapi_under(Limits())


def openapi_under(limits: Limits) -> dict[str, Any]:
    """The document of the service under some limits."""
    document: dict[str, Any] = create_app(read_settings(limits=limits)).openapi()
    return document


def fault_of(document: dict[str, Any], schema: dict[str, Any], value: Any, path: str = "") -> str | None:
    """What is wrong with a value, None when the schema allows it."""
    assert schema.keys() <= _KNOWN, schema.keys() - _KNOWN
    if "$ref" in schema:
        return fault_of(
            document, document["components"]["schemas"][schema["$ref"].split("/")[-1]], value, path
        )
    if "oneOf" in schema:
        fits = [fault_of(document, option, value, path) is None for option in schema["oneOf"]]
        return None if sum(fits) == 1 else f"{path}: {sum(fits)} of the alternatives fit"
    if "anyOf" in schema:
        faults = [fault_of(document, option, value, path) for option in schema["anyOf"]]
        return None if None in faults else f"{path}: none of the alternatives fits"
    if "enum" in schema and not any(value is v or (type(v) is str and v == value) for v in schema["enum"]):
        return f"{path}: not one of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        return f"{path}: not {schema['const']}"
    types = schema.get("type", list(_TYPES))
    if not any(_TYPES[name](value) for name in ([types] if isinstance(types, str) else types)):
        return f"{path}: not {types}"
    if type(value) in (int, float) and not schema.get("minimum", value) <= value <= schema.get(
        "maximum", value
    ):
        return f"{path}: out of range"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return f"{path}: not {schema['pattern']}"
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get(
        "maxLength", len(value)
    ):
        return f"{path}: {len(value)} characters"
    if isinstance(value, list):
        return _fault_of_array(document, schema, value, path)
    return _fault_of_object(document, schema, value, path) if isinstance(value, dict) else None


def _fault_of_array(
    document: dict[str, Any], schema: dict[str, Any], value: list[Any], path: str
) -> str | None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{path}: {len(value)} items"
    faults = (fault_of(document, schema.get("items", {}), v, f"{path}[{i}]") for i, v in enumerate(value))
    return next((fault for fault in faults if fault), None)


def _fault_of_object(
    document: dict[str, Any], schema: dict[str, Any], value: dict[str, Any], path: str
) -> str | None:
    for key in schema.get("required", []):
        if key not in value:
            return f"{path}: no {key}"
    if len(value) > schema.get("maxProperties", len(value)):
        return f"{path}: {len(value)} properties"
    for key, item in value.items():
        inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
        if inner is False:
            return f"{path}: unknown {key}"
        if inner is True:
            continue
        fault = fault_of(document, inner, item, f"{path}.{key}")
        if fault:
            return fault
    return None
