"""Convert pydantic's errors: say what was expected, what was found, and where."""

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from xylem.base import (
    FAULT,
    BadInput,
    BadRequest,
    LimitExceeded,
    sentence_of,
    shortened,
    unknown,
    what_is,
)
from xylem.serving.schemas.fields import FIELDS_MAX, HIDDEN, KINDS, LIMIT, TAGS, too_many_fields

# The most faults that are reported of one request.
FAULTS_MAX = 100


def faults_of(error: ValidationError, models: Sequence[type[BaseModel]]) -> BadInput:
    """Return the first fault of a request.

    models  the models that the request may have been meant for
    """
    return _fault(error.errors(include_url=False)[0], models)


def all_faults_of(error: ValidationError, models: Sequence[type[BaseModel]]) -> list[BadInput]:
    """Return the faults of a request, at most FAULTS_MAX, each with its place.

    models  as `faults_of` takes them
    """
    return [_fault(details, models) for details in error.errors(include_url=False)[:FAULTS_MAX]]


def _fault(details: Any, models: Sequence[type[BaseModel]]) -> BadInput:
    kind = details["type"]
    value = details["input"]
    place = details["loc"]
    path = path_of(place)
    if kind in (FAULT, LIMIT):
        inner_path = details["ctx"]["path"]
        path = f"{path}.{shortened(inner_path)}" if path and inner_path else path or inner_path
        return (LimitExceeded if kind == LIMIT else BadRequest)(
            details["ctx"]["message"]
        ).with_path(path)
    if kind == "extra_forbidden":
        tags = [step for step in place if step in TAGS]
        candidates = (
            [TAGS[tags[-1]]]
            if tags and len(place) > 2
            else [_model_at(place[:-1], m) for m in models]
        )
        return BadRequest(
            unknown(
                str(place[-1]),
                sorted({name for model in candidates for name in model.model_fields}),
                "field",
            )
        ).with_path(path)
    if kind not in ("union_tag_not_found", "union_tag_invalid"):
        return BadRequest(sentence_of(details)).with_path(path)
    if type(value) is not dict:
        return BadRequest(f"expected an object, found {what_is(value)}").with_path(path)
    if len(value) > FIELDS_MAX:
        return BadRequest(too_many_fields(value)).with_path(path)
    kinds_present = " and ".join(key for key in KINDS if key in value) or "none of them"
    return BadRequest(
        'expected one of {"text"}, {"fields"}, {"indices", "values"} and {"features"}, '
        f"with vector beside text or fields alone, found {kinds_present}"
    ).with_path(path)


def path_of(place: Sequence[str | int]) -> str:
    """Return the path of a fault, such as `instances[3].indices[0]`, without tags of unions."""
    path = ""
    for step in place:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith(HIDDEN):
            path += f".{shortened(step)}" if path else shortened(step)
    return path


def _model_at(place: Sequence[str | int], model: type[BaseModel]) -> type[BaseModel]:
    """Return the model of the value at a place within a value of `model`."""
    for step in place:
        field = model.model_fields.get(step) if isinstance(step, str) else None
        model = model if field is None else _model_in(field.annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
