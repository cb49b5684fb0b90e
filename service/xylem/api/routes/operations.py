"""Helpers to declare routes: paths of versions, and parts of the OpenAPI document."""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple, TypeAlias

from fastapi import APIRouter, Path
from pydantic import WithJsonSchema

from xylem.serving import PROBLEMS
from xylem_store import VersionNotFound, is_version

Endpoint: TypeAlias = Callable[..., Awaitable[Any]]

_STRING = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"}

# The model's name in a path: any string. The store tells whether it has such a model.
ModelName: TypeAlias = Annotated[str, Path(description="the model's name"), WithJsonSchema(_STRING)]

# The version's number in a path: any string; see `version_number`.
VersionPath: TypeAlias = Annotated[
    str, Path(description="the version's number"), WithJsonSchema({"type": "integer", "minimum": 1})
]


def version_number(version: str) -> int:
    """Return the number in a VersionPath. Raises VersionNotFound."""
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
    """One of the ways to name a version in a path.

    path        the part of the path
    suffix      the end of the operation's id
    phrase      the end of the operation's summary
    parameters  the parameters of the path, for the OpenAPI document
    """

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
    """Return the id of an operation from the name of its function; the audit log has it, too."""
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
    """Return a decorator that adds an endpoint to a router, below each path of a version.

    resource  the last part of the paths; empty: the paths of the versions themselves
    summary   the summary; it ends with a preposition, as the name of the version follows
    root      "/v1", or "/v2" for the Open Inference Protocol, which has no aliases

    The endpoint gets the version from `find_served`. The parts of the path are no parameters of the
    endpoint: FastAPI would check each, and any string is allowed there.
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


# The attribute of a dependency with the description of the body or query string that it reads.
#
# Its value has the form of FastAPI's `openapi_extra` of a route.
OPENAPI = "openapi_extra"

# Models of the bodies that routes read or write themselves, by the names of their schemas.
COMPONENTS: dict[str, Any] = {}


def content(media: str, model: str | type[Any], example: object = None) -> dict[str, Any]:
    """Return OpenAPI's `content` for one media type.

    model    the model of the body, or the name of a schema of the document
    example  an example of the body
    """
    if not isinstance(model, str):
        COMPONENTS[model.__name__] = model
    name = model if isinstance(model, str) else model.__name__
    media_object: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {media: media_object if example is None else {**media_object, "example": example}}


def takes(*bodies: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route that takes one of several bodies.

    The route reads the body itself, because the limits of its fields depend on the settings.
    """
    return {
        "requestBody": {
            "required": True,
            "content": {
                media: media_object for body in bodies for media, media_object in body.items()
            },
        }
    }


def takes_json(model: str | type[Any], example: object) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route that takes only JSON."""
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
    """Return FastAPI's `responses` for the problems with these statuses."""
    codes_of = {
        status: [code for code, problem in PROBLEMS.items() if problem.status == status]
        for status in statuses
    }
    return {
        status: {
            "description": f"One of: {', '.join(codes)}",
            "content": content("application/problem+json", "Problem"),
        }
        for status, codes in codes_of.items()
    }


def query_parameters(model: type[Any], *without: str) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` of a route whose query string has the fields of a model.

    without  names of fields that the query string does not have
    """
    properties = model.model_json_schema(ref_template="#/components/schemas/{model}")["properties"]
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "schema": schema,
                "description": schema.pop("description", ""),
            }
            for name, schema in properties.items()
            if name not in without
        ]
    }
