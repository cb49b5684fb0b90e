"""/v1/admin/models/{model}/aliases/{alias}: its canary, its shadow, and the labels that it denies."""

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Request

from model_store.alias import Change, with_canary, with_shadow, without_canary, without_shadow
from model_store.moves import DENIED, SPLIT, Cause
from service.api.routes.admins import AuditedRoute, needs
from service.api.routes.operations import ModelName, problems, takes_json
from service.api.routes.registry import cause_of
from service.api.routes.requests import json_body
from service.api.routes.services import Services, Wired
from service.registry.denials import Denial, denial_of, deny_only, denying_known
from service.registry.facts import denial_facts, split_facts
from service.serving.schemas.registry import (
    AliasDenied,
    CanaryRequest,
    DeniedRequest,
    ShadowRequest,
    SplitChanged,
)

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
_DENIED = {"labels": ["role::program"], "reason": "retired"}


async def _split(services: Services, model: str, alias: str, change: Change, cause: Cause) -> SplitChanged:
    found = await services.change(services.registry.change, model, alias, SPLIT, change, cause)
    return SplitChanged(**split_facts(found))


async def _deny(
    services: Services, model: str, alias: str, labels: Collection[str], cause: Cause
) -> AliasDenied:
    change = denying_known(services.store, model, alias, deny_only(labels))
    found = await services.change(services.registry.change, model, alias, DENIED, change, cause)
    assert found.after is not None  # it denies something else, and is not removed
    denial = await services.admin_work.run(denial_of, services.store, model, alias, found.after)
    return AliasDenied(**denial_facts(denial))


@router.put(
    "/canary",
    operation_id="putCanary",
    summary="Have a version answer a part of the requests to an alias",
    responses=_REFUSALS,
    openapi_extra=takes_json(CanaryRequest, _CANARY),
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
    return await _split(services, model, alias, change, cause_of(request, body.reason))


@router.delete("/canary", operation_id="endCanary", summary="End a canary", responses=_WITHOUT_BODY)
async def end_canary(model: ModelName, alias: str, request: Request, services: Wired) -> SplitChanged:
    """The alias's version answers all requests; a shadow stays."""
    return await _split(services, model, alias, without_canary, cause_of(request))


@router.put(
    "/shadow",
    operation_id="putShadow",
    summary="Have a version answer requests to an alias too, without being returned",
    responses=_REFUSALS,
    openapi_extra=takes_json(ShadowRequest, _SHADOW),
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
    return await _split(services, model, alias, change, cause_of(request, body.reason))


@router.delete("/shadow", operation_id="endShadow", summary="End a shadow", responses=_WITHOUT_BODY)
async def end_shadow(model: ModelName, alias: str, request: Request, services: Wired) -> SplitChanged:
    """A canary stays."""
    return await _split(services, model, alias, without_shadow, cause_of(request))


@router.get(
    "/denied",
    operation_id="showDenied",
    summary="Which labels answers of an alias never have",
    responses=problems(401, 403, 404, 503),
)
async def show_denied(model: ModelName, alias: str, services: Wired) -> AliasDenied:
    """And which of them its version does not have: they are kept for one that does."""

    def show() -> Denial:
        return denial_of(services.store, model, alias, services.store.alias(model, alias))

    return AliasDenied(**denial_facts(await services.admin_work.run(show)))


@router.put(
    "/denied",
    operation_id="putDenied",
    summary="Have answers of an alias never have these labels",
    responses=_REFUSALS,
    openapi_extra=takes_json(DeniedRequest, _DENIED),
)
async def put_denied(
    model: ModelName,
    alias: str,
    body: Annotated[DeniedRequest, json_body(DeniedRequest)],
    request: Request,
    services: Wired,
) -> AliasDenied:
    """In place of those before. They stay denied when the alias is moved, until they are taken off."""
    return await _deny(services, model, alias, body.labels, cause_of(request, body.reason))


@router.delete(
    "/denied", operation_id="endDenied", summary="Deny no labels any more", responses=_WITHOUT_BODY
)
async def end_denied(model: ModelName, alias: str, request: Request, services: Wired) -> AliasDenied:
    """Answers of the alias may have all labels of its version again."""
    return await _deny(services, model, alias, (), cause_of(request))
