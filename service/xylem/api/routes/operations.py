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


def _in_path(name: str, schema: dict[str, Any], says: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema, "description": says}


_MODEL = _in_path("model", _STRING, "the model's name")
_VERSION = _in_path("version", {"type": "integer", "minimum": 1}, "the version's number")
_ALIAS = _in_path("alias", _STRING, "the alias's name; without one, `latest` answers")


class _Way(NamedTuple):
    """A way to name a version: its part of the path, of operations' ids, and of summaries."""

    path: str
    suffix: str
    says: str
    parameters: list[dict[str, Any]]


_WAYS = (
    _Way("", "", "the version `latest` names", [_MODEL]),
    _Way("/versions/{version}", "Version", "a version", [_MODEL, _VERSION]),
    _Way("/aliases/{alias}", "Alias", "the version an alias names", [_MODEL, _ALIAS]),
)


def operation_of(name: str) -> str:
    """Return the id of an operation, as the audit log has it, by the name of its function."""
    first, *others = re.split("[_-]", name)
    return first + "".join(map(str.capitalize, others))


def of_version(
    router: APIRouter,
    method: str,
    what: str,
    summary: str,
    openapi_extra: dict[str, Any],
    *,
    root: str = "/v1",
    **options: Any,
) -> Callable[[Endpoint], Endpoint]:
    """Return what adds an endpoint to a router under the paths of
    a version's `what`; empty: its own.

    The endpoint asks `find_served` for the version. The path's parts are no parameters of it:
    FastAPI would check each, and any string may stand there.

    summary  ends with a preposition: what follows says which version
    root     or "/v2", that of the Open Inference Protocol, which knows no aliases
    """

    def add(endpoint: Endpoint) -> Endpoint:
        for way in _WAYS if root == "/v1" else _WAYS[:2]:
            router.add_api_route(
                f"{root}/models/{{model}}{way.path}/{what}".removesuffix("/"),
                endpoint,
                methods=[method],
                operation_id=operation_of(endpoint.__name__) + (way.suffix and f"With{way.suffix}"),
                summary=f"{summary} {way.says}",
                openapi_extra={
                    **openapi_extra,
                    "parameters": [*way.parameters, *openapi_extra.get("parameters", ())],
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
    said: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {media: said if example is None else {**said, "example": example}}


def takes(*bodies: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route that takes one of some kinds of bodies.

    The route reads it itself: the limits of its fields are those of the settings.
    """
    kinds = {media: said for body in bodies for media, said in body.items()}
    return {"requestBody": {"required": True, "content": kinds}}


def takes_json(model: str | type[Any], example: object) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route that takes JSON alone."""
    return takes(content("application/json", model, example))


def answers(status: int, says: str, *bodies: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for one status."""
    return {
        status: {"description": says, "content": {m: said for b in bodies for m, said in b.items()}}
    }


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for the problems of some statuses."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        codes = ", ".join(code for code, problem in PROBLEMS.items() if problem.status == status)
        found |= answers(status, f"One of: {codes}", content("application/problem+json", "Problem"))
    return found


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
