"""/v1/admin/models/{model}/aliases/{alias}/canary and /shadow: what stands beside an alias's version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Request

from model_store.splits import Split
from service.api.routes.admins import AuditedRoute, needs
from service.api.routes.bodies import json_body
from service.api.routes.operations import ModelName, content, problems, takes
from service.api.routes.registry import cause_of
from service.api.routes.services import Services, Wired
from service.registry.causes import Cause
from service.registry.facts import split_facts
from service.registry.splits import with_canary, with_shadow, without_canary, without_shadow
from service.serving.schemas.registry import CanaryRequest, ShadowRequest, SplitChanged

router = APIRouter(
    prefix="/v1/admin/models/{model}/aliases/{alias}",
    tags=["registry"],
    dependencies=[needs("admin")],
    route_class=AuditedRoute,
)

_REFUSALS = problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 503)
_WITHOUT_BODY = problems(401, 403, 404, 409, 422, 503)
_CANARY = {"version": 4, "weight": 0.1, "stable_weight": 0.9, "reason": "a tenth of the users first"}
_SHADOW = {"version": 5, "share": 0.25, "reason": "does it answer alike?"}


async def _change(
    services: Services, model: str, alias: str, change: Callable[[Split], Split], cause: Cause
) -> SplitChanged:
    move = await services.change(services.registry.change_split, model, alias, change, cause)
    return SplitChanged(**split_facts(move))


@router.put(
    "/canary",
    operation_id="putCanary",
    summary="Have a version answer a part of the requests to an alias",
    responses=_REFUSALS,
    openapi_extra=takes(content("application/json", "CanaryRequest", _CANARY)),
)
async def put_canary(
    model: ModelName,
    alias: str,
    body: Annotated[CanaryRequest, json_body(CanaryRequest)],
    request: Request,
    services: Wired,
) -> SplitChanged:
    """Or another part of them. Promoting it without naming a version finishes it; a rollback ends it."""
    change = with_canary(body.version, body.weight, body.stable_weight)
    return await _change(services, model, alias, change, cause_of(request, body.reason))


@router.delete("/canary", operation_id="endCanary", summary="End a canary", responses=_WITHOUT_BODY)
async def end_canary(model: ModelName, alias: str, request: Request, services: Wired) -> SplitChanged:
    """The alias's version answers all requests; a shadow stays."""
    return await _change(services, model, alias, without_canary, cause_of(request))


@router.put(
    "/shadow",
    operation_id="putShadow",
    summary="Have a version answer requests to an alias too, without being returned",
    responses=_REFUSALS,
    openapi_extra=takes(content("application/json", "ShadowRequest", _SHADOW)),
)
async def put_shadow(
    model: ModelName,
    alias: str,
    body: Annotated[ShadowRequest, json_body(ShadowRequest)],
    request: Request,
    services: Wired,
) -> SplitChanged:
    """What it answers is compared with what was returned, and counted: see the figures of `/metrics`."""
    change = with_shadow(body.version, body.share)
    return await _change(services, model, alias, change, cause_of(request, body.reason))


@router.delete("/shadow", operation_id="endShadow", summary="End a shadow", responses=_WITHOUT_BODY)
async def end_shadow(model: ModelName, alias: str, request: Request, services: Wired) -> SplitChanged:
    """A canary stays."""
    return await _change(services, model, alias, without_shadow, cause_of(request))
