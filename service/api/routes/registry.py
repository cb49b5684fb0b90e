"""/v1/admin/models: aliases moved and removed, versions and models deleted, and the history of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Request

from model_store.alias_writing import AliasChange
from model_store.errors import VersionNotFound
from model_store.identifiers import is_version
from model_store.moves import Cause
from service.api.routes.admins import AuditedRoute, needs, who
from service.api.routes.bodies import json_body
from service.api.routes.operations import ModelName, VersionPath, content, problems, query_parameters, takes
from service.api.routes.services import Services, Wired
from service.registry.facts import history_facts, move_facts, provenance
from service.registry.registry import Removal
from service.serving.parse import parse_query
from service.serving.schemas.registry import (
    AliasChanged,
    AliasMoved,
    DeleteModelQuery,
    DeleteVersionQuery,
    History,
    HistoryQuery,
    PromoteRequest,
    Provenance,
    Removed,
    RollbackRequest,
)

router = APIRouter(
    prefix="/v1/admin/models/{model}",
    tags=["registry"],
    dependencies=[needs("admin")],
    route_class=AuditedRoute,
)

_REFUSALS = problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 503)
_WITHOUT_BODY = problems(401, 403, 404, 409, 422, 503)


def cause_of(request: Request, why: str = "") -> Cause:
    """Return who asks, and why: the key's name, with its id."""
    principal = who(request)
    return Cause(f"{principal.name} ({principal.key_id})", why)


async def _move(services: Services, call: Callable[..., AliasChange], *arguments: Any) -> AliasMoved:
    return AliasMoved(**move_facts(await services.change(call, *arguments)))


async def _remove(services: Services, call: Callable[..., Removal], *arguments: Any) -> Removed:
    found = await services.change(call, *arguments)
    return Removed(**found._asdict())


@router.post(
    "/promote",
    operation_id="promote",
    summary="Make an alias name a version",
    responses=_REFUSALS,
    openapi_extra=takes(
        content("application/json", "PromoteRequest", {"version": 3, "alias": "latest", "reason": "better"})
    ),
)
async def promote(
    model: ModelName,
    body: Annotated[PromoteRequest, json_body(PromoteRequest)],
    request: Request,
    services: Wired,
) -> AliasMoved:
    """All of the version is verified before: one that is damaged, or another model's, is refused."""
    cause = cause_of(request, body.reason)
    return await _move(services, services.registry.promote, model, body.version, body.alias, cause)


@router.post(
    "/rollback",
    operation_id="rollback",
    summary="Let an alias go back to a version that it named before",
    responses=_REFUSALS,
    openapi_extra=takes(content("application/json", "RollbackRequest", {"alias": "latest", "to": None})),
)
async def rollback(
    model: ModelName,
    body: Annotated[RollbackRequest, json_body(RollbackRequest)],
    request: Request,
    services: Wired,
) -> AliasMoved:
    """One step back in the history of the alias, or to a version."""
    cause = cause_of(request, body.reason)
    return await _move(services, services.registry.rollback, model, body.alias, cause, body.to)


@router.delete(
    "",
    operation_id="deleteModel",
    summary="Delete a model",
    responses=_WITHOUT_BODY,
    openapi_extra=query_parameters(DeleteModelQuery),
)
async def delete_model(model: ModelName, request: Request, services: Wired) -> Removed:
    """All its versions, aliases and thresholds go. `confirm` is its name, once more: `?confirm=NAME`."""
    query = parse_query(request.scope["query_string"], DeleteModelQuery, services.limits)

    def delete() -> Removal:
        return services.registry.delete_model(model, cause_of(request), confirm=query.confirm)

    return await _remove(services, delete)


@router.delete(
    "/versions/{version}",
    operation_id="deleteVersion",
    summary="Delete a version",
    responses=_WITHOUT_BODY,
    openapi_extra=query_parameters(DeleteVersionQuery),
)
async def delete_version(
    model: ModelName, version: VersionPath, request: Request, services: Wired
) -> Removed:
    """One that an alias names is refused; `with_aliases=true` removes those too, though never `latest`."""
    query = parse_query(request.scope["query_string"], DeleteVersionQuery, services.limits)
    number = _number(version)

    def delete() -> Removal:
        return services.registry.delete_version(
            model, number, cause_of(request), with_aliases=query.with_aliases
        )

    return await _remove(services, delete)


@router.delete(
    "/aliases/{alias}", operation_id="deleteAlias", summary="Remove an alias", responses=_WITHOUT_BODY
)
async def delete_alias(model: ModelName, alias: str, request: Request, services: Wired) -> AliasMoved:
    """The version that it names stays. `latest` cannot be removed."""
    return await _move(services, services.registry.delete_alias, model, alias, cause_of(request))


@router.get(
    "/history",
    operation_id="showHistory",
    summary="What the aliases of a model named",
    responses=problems(401, 403, 404, 422, 503),
    openapi_extra=query_parameters(HistoryQuery),
)
async def history(model: ModelName, request: Request, services: Wired) -> History:
    """Who moved which alias, when, from where to where, why, and by which job; the newest first."""
    query = parse_query(request.scope["query_string"], HistoryQuery, services.limits)
    moves = await services.admin_work.run(
        services.registry.history, model, query.alias, query.before, query.limit
    )
    return History(model=model, changes=[AliasChanged(**history_facts(model, move)) for move in moves])


@router.get(
    "/versions/{version}/provenance",
    operation_id="showProvenance",
    summary="Where a version came from",
    responses=problems(401, 403, 404, 503),
)
async def show_provenance(model: ModelName, version: VersionPath, services: Wired) -> Provenance:
    """The data, the code, the parameters, the version it follows, its figures, and what became of it."""
    found = await services.admin_work.run(
        provenance, services.registry, services.store, model, _number(version)
    )
    return Provenance(**found)


def _number(version: str) -> int:
    if not is_version(version):
        raise VersionNotFound(f"version: expected a number from 1, found {version[:80]!r}")
    return int(version)
