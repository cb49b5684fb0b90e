"""How routes are declared: their paths, and what the OpenAPI document says that their
types do not.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple, TypeAlias

from fastapi import APIRouter, Path
from pydantic import WithJsonSchema

from xylem.serving import PROBLEMS
from xylem_store import VersionNotFound, is_version

Endpoint: TypeAlias = Callable[..., Awaitable[Any]]

_STRING = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"}

ModelName: TypeAlias = Annotated[str, Path(description="the model's name"), WithJsonSchema(_STRING)]
"""A part of a path: any string. The store says whether it has such a model."""

VersionPath: TypeAlias = Annotated[
    str, Path(description="the version's number"), WithJsonSchema({"type": "integer", "minimum": 1})
]
"""A part of a path: any string."""


def version_number(version: str) -> int:
    """Return the number that a VersionPath is. Raises VersionNotFound."""
    if not is_version(version):
        raise VersionNotFound(f"version: expected a number from 1, found {version[:80]!r}")
    return int(version)


def _in_path(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": schema,
        "description": description,
    }


_MODEL = _in_path("model", _STRING, "the model's name")
_VERSION = _in_path("version", {"type": "integer", "minimum": 1}, "the version's number")
_ALIAS = _in_path("alias", _STRING, "the alias's name; without one, `latest` answers")


class _VersionForm(NamedTuple):
    """A way to name a version: its part of the path, of operations' ids, and of summaries."""

    path: str
    suffix: str
    phrase: str
    parameters: list[dict[str, Any]]


_VERSION_FORMS = (
    _VersionForm("", "", "the version `latest` names", [_MODEL]),
    _VersionForm("/versions/{version}", "Version", "a version", [_MODEL, _VERSION]),
    _VersionForm("/aliases/{alias}", "Alias", "the version an alias names", [_MODEL, _ALIAS]),
)


def operation_of(name: str) -> str:
    """Return the id of an operation, as the audit log has it, by the name of its function."""
    first_word, *other_words = re.split("[_-]", name)
    return first_word + "".join(map(str.capitalize, other_words))


def of_version(
    router: APIRouter,
    method: str,
    resource: str,
    summary: str,
    openapi_extra: dict[str, Any],
    *,
    root: str = "/v1",
    **options: Any,
) -> Callable[[Endpoint], Endpoint]:
    """Return what adds an endpoint to a router under the paths of
    a version's `resource`; empty: its own.

    The endpoint asks `find_served` for the version. The path's parts are no parameters of it:
    FastAPI would check each, and any string may stand there.

    summary  ends with a preposition: what follows says which version
    root     or "/v2", that of the Open Inference Protocol, which knows no aliases
    """

    def add(endpoint: Endpoint) -> Endpoint:
        for form in _VERSION_FORMS if root == "/v1" else _VERSION_FORMS[:2]:
            router.add_api_route(
                f"{root}/models/{{model}}{form.path}/{resource}".removesuffix("/"),
                endpoint,
                methods=[method],
                operation_id=operation_of(endpoint.__name__)
                + (form.suffix and f"With{form.suffix}"),
                summary=f"{summary} {form.phrase}",
                openapi_extra={
                    **openapi_extra,
                    "parameters": [*form.parameters, *openapi_extra.get("parameters", ())],
                },
                **options,
            )
        return endpoint

    return add


OPENAPI = "openapi_extra"
"""The attribute of a dependency that says what it reads, as FastAPI's `openapi_extra`
of its route.
"""

COMPONENTS: dict[str, Any] = {}
"""Models of bodies that routes read or write themselves, by the
names under which operations name them.
"""


def content(media: str, model: str | type[Any], example: object = None) -> dict[str, Any]:
    """Return a body of one kind: of a model, or of what has this name in the
    document's components.
    """
    if not isinstance(model, str):
        COMPONENTS[model.__name__] = model
    name = model if isinstance(model, str) else model.__name__
    media_object: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {media: media_object if example is None else {**media_object, "example": example}}


def takes(*bodies: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route that takes one of some kinds of bodies.

    The route reads it itself: the limits of its fields are those of the settings.
    """
    kinds = {media: media_object for body in bodies for media, media_object in body.items()}
    return {"requestBody": {"required": True, "content": kinds}}


def takes_json(model: str | type[Any], example: object) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route that takes JSON alone."""
    return takes(content("application/json", model, example))


def answers(
    status: int, description: str, *bodies: dict[str, Any]
) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for one status."""
    return {
        status: {
            "description": description,
            "content": {
                media: media_object for body in bodies for media, media_object in body.items()
            },
        }
    }


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for the problems of some statuses."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        codes = ", ".join(code for code, problem in PROBLEMS.items() if problem.status == status)
        responses |= answers(
            status, f"One of: {codes}", content("application/problem+json", "Problem")
        )
    return responses


def query_parameters(model: type[Any], *without: str) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route that takes the
    fields of a model as its query string.
    """
    properties = model.model_json_schema(ref_template="#/components/schemas/{model}")["properties"]
    parameters = [
        {
            "name": name,
            "in": "query",
            "schema": schema,
            "description": schema.pop("description", ""),
        }
        for name, schema in properties.items()
        if name not in without
    ]
    return {"parameters": parameters}
