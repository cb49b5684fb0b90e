"""What pydantic finds wrong with a request -> our errors: what was expected, what was found, and where."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from service.errors import BadInput, BadRequest, LimitExceeded
from service.serving.schemas.instances import KINDS, TAGS
from service.serving.schemas.limits import FAULT, LIMIT
from service.serving.what_is import shortened, what_is

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
_SHAPE = 'one of {"text"}, {"indices", "values"} and {"features"}'


def faults_of(error: ValidationError, models: Sequence[type[BaseModel]]) -> BadInput:
    """Return what is wrong with a request: the first fault. `models` are those that it may have been."""
    return _fault(error.errors(include_url=False)[0], models)


def all_faults_of(error: ValidationError, models: Sequence[type[BaseModel]]) -> list[BadInput]:
    """Return everything that is wrong with a request, each with its place; `models` as in `faults_of`."""
    return [_fault(found, models) for found in error.errors(include_url=False)]


def _fault(found: Any, models: Sequence[type[BaseModel]]) -> BadInput:
    kind, value, place = found["type"], found["input"], found["loc"]
    path = path_of(place)
    if kind in (FAULT, LIMIT):
        within = found["ctx"]["path"]
        path = f"{path}.{shortened(within)}" if path and within else path or within
        return (LimitExceeded if kind == LIMIT else BadRequest)(found["ctx"]["message"]).at(path)
    if kind == "missing":
        return BadRequest(f"expected the field {place[-1]}, found none").at(path)
    if kind == "extra_forbidden":
        return _unknown(place, path, models)
    if kind in _RANGES:
        word, key = _RANGES[kind]
        return BadRequest(f"expected {word} {found['ctx'][key]}, found {what_is(value)}").at(path)
    if kind in _LENGTHS:
        word, key = _LENGTHS[kind]
        n_items = found["ctx"]["actual_length"]
        return BadRequest(f"expected {word} {found['ctx'][key]} items, found {n_items}").at(path)
    if kind == "literal_error":
        return BadRequest(f"expected {found['ctx']['expected']}, found {what_is(value)}").at(path)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _no_instance(value, path)
    return BadRequest(f"expected {_EXPECTED.get(kind, found['msg'])}, found {what_is(value)}").at(path)


def path_of(place: Sequence[str | int]) -> str:
    """Return where a fault is: `instances[3].indices[0]`. Tags of the kinds of instances are left out."""
    path = ""
    for step in place:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step not in TAGS:
            path += f".{shortened(step)}" if path else shortened(step)
    return path


def _unknown(place: Sequence[str | int], path: str, models: Sequence[type[BaseModel]]) -> BadRequest:
    """Return the fault of a field that is not known, and which one may have been meant."""
    tags = [step for step in place if step in TAGS]
    kinds = [TAGS[tags[-1]]] if tags and len(place) > 2 else models
    known = sorted({name for kind in kinds for name in kind.model_fields})
    near = difflib.get_close_matches(str(place[-1]), known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return BadRequest(f"expected only {', '.join(known)}, found another field{hint}").at(path)


def _no_instance(value: Any, path: str) -> BadRequest:
    """Return why a value is none of the kinds of instances."""
    if type(value) is not dict:
        return BadRequest(f"expected an object, found {what_is(value)}").at(path)
    has = [key for key in KINDS if key in value]
    return BadRequest(f"expected {_SHAPE}, found {' and '.join(has) or 'none of them'}").at(path)
