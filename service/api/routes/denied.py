"""/v1/admin/models/{model}/aliases/{alias}/denied: the labels that answers of an alias never have."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request

from service.api.routes.admins import AuditedRoute, needs
from service.api.routes.bodies import json_body
from service.api.routes.operations import ModelName, content, problems, takes
from service.api.routes.registry import cause_of
from service.api.routes.services import Services, Wired
from service.registry.causes import Cause
from service.registry.denials import Change, deny_only
from service.registry.facts import denial_facts
from service.serving.schemas.registry import AliasDenied, DeniedChanged, DeniedRequest

router = APIRouter(
    prefix="/v1/admin/models/{model}/aliases/{alias}",
    tags=["registry"],
    dependencies=[needs("admin")],
    route_class=AuditedRoute,
)

_EXAMPLE = {"labels": ["role::program"], "reason": "retired"}


async def _change(services: Services, model: str, alias: str, change: Change, cause: Cause) -> DeniedChanged:
    def make() -> DeniedChanged:
        found = services.registry.denials.change(model, alias, change, cause, anew=True)
        return DeniedChanged(**denial_facts(found))

    return await services.change(make)


@router.get(
    "/denied",
    operation_id="showDenied",
    summary="Which labels answers of an alias never have",
    responses=problems(401, 403, 404, 503),
)
async def show_denied(model: ModelName, alias: str, services: Wired) -> AliasDenied:
    """And which of them its version does not have: they are kept for one that does."""
    found = await services.admin_work.run(services.registry.denials.show, model, alias)
    return AliasDenied(**denial_facts(found))


@router.put(
    "/denied",
    operation_id="putDenied",
    summary="Have answers of an alias never have these labels",
    responses=problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 503),
    openapi_extra=takes(content("application/json", "DeniedRequest", _EXAMPLE)),
)
async def put_denied(
    model: ModelName,
    alias: str,
    body: Annotated[DeniedRequest, json_body(DeniedRequest)],
    request: Request,
    services: Wired,
) -> DeniedChanged:
    """In place of those before. They stay denied when the alias is moved, until they are taken off."""
    return await _change(services, model, alias, deny_only(body.labels), cause_of(request, body.reason))


@router.delete(
    "/denied",
    operation_id="endDenied",
    summary="Deny no labels any more",
    responses=problems(401, 403, 404, 409, 422, 503),
)
async def end_denied(model: ModelName, alias: str, request: Request, services: Wired) -> DeniedChanged:
    """Answers of the alias may have all labels of its version again."""
    return await _change(services, model, alias, deny_only(()), cause_of(request))
