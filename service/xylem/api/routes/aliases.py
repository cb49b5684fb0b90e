"""/v1/admin/models/{model}/aliases/{alias}: its canary, its shadow, and the labels
that it denies.
"""

from collections.abc import Collection
from typing import Annotated

from fastapi import Request

from xylem.admin import Denial, denial_of, denying_known, split_facts
from xylem.api.routes.admins import AuditedRoute, router_of
from xylem.api.routes.operations import ModelName
from xylem.api.routes.registry import cause_of
from xylem.api.routes.requests import Services, Wired, json_body
from xylem.api.schemas.registry import (
    AliasDenied,
    CanaryRequest,
    DeniedRequest,
    ShadowRequest,
    SplitChanged,
)
from xylem_store import (
    DENIED,
    SPLIT,
    Cause,
    Change,
    with_canary,
    with_shadow,
    without_canary,
    without_shadow,
)

router = router_of("registry", "admin", AuditedRoute, "/v1/admin/models/{model}/aliases/{alias}")

_CANARY = {
    "version": 4,
    "weight": 0.1,
    "stable_weight": 0.9,
    "reason": "a tenth of the users first",
}
_SHADOW = {"version": 5, "share": 0.25, "reason": "does it answer alike?"}
_DENIED = {"labels": ["role::program"], "reason": "retired"}
_Canary = Annotated[CanaryRequest, json_body(CanaryRequest, _CANARY)]
_Shadow = Annotated[ShadowRequest, json_body(ShadowRequest, _SHADOW)]
_Denied = Annotated[DeniedRequest, json_body(DeniedRequest, _DENIED)]


async def _split(
    services: Services, model: str, alias: str, change: Change, cause: Cause
) -> SplitChanged:
    alias_change = await services.change(
        services.registry.change, model, alias, SPLIT, change, cause
    )
    return SplitChanged(**split_facts(alias_change))


async def _deny(
    services: Services, model: str, alias: str, labels: Collection[str], cause: Cause
) -> AliasDenied:
    change = denying_known(services.store, model, alias, lambda _: labels)
    alias_change = await services.change(
        services.registry.change, model, alias, DENIED, change, cause
    )
    assert alias_change.new_alias is not None  # it denies something else, and is not removed
    denial = await services.admin_work.run(
        denial_of, services.store, model, alias, alias_change.new_alias
    )
    return AliasDenied(**denial._asdict())


@router.put("/canary", summary="Have a version answer a part of the requests to an alias")
async def put_canary(
    model: ModelName, alias: str, body: _Canary, request: Request, services: Wired
) -> SplitChanged:
    """Repeat it for another share.

    A promotion without a version finishes it; a rollback ends it.
    """
    change = with_canary(body.version, body.weight, body.stable_weight)
    return await _split(services, model, alias, change, cause_of(request, body.reason))


@router.delete("/canary", summary="End a canary")
async def end_canary(
    model: ModelName, alias: str, request: Request, services: Wired
) -> SplitChanged:
    """The alias's version answers all requests; a shadow stays."""
    return await _split(services, model, alias, without_canary, cause_of(request))


@router.put("/shadow", summary="Have a version answer copies of an alias's requests")
async def put_shadow(
    model: ModelName, alias: str, body: _Shadow, request: Request, services: Wired
) -> SplitChanged:
    """Its answers are compared with the returned ones and counted (`/metrics`), and
    never returned.
    """
    change = with_shadow(body.version, body.share)
    return await _split(services, model, alias, change, cause_of(request, body.reason))


@router.delete("/shadow", summary="End a shadow")
async def end_shadow(
    model: ModelName, alias: str, request: Request, services: Wired
) -> SplitChanged:
    """A canary stays."""
    return await _split(services, model, alias, without_shadow, cause_of(request))


@router.get("/denied", summary="The denied labels of an alias")
async def show_denied(model: ModelName, alias: str, services: Wired) -> AliasDenied:
    """Answers of the alias never have them. Labels that its version does not have are kept too."""

    def show() -> Denial:
        return denial_of(services.store, model, alias, services.store.alias(model, alias))

    return AliasDenied(**(await services.admin_work.run(show))._asdict())


@router.put("/denied", summary="Deny labels in the answers of an alias")
async def put_denied(
    model: ModelName, alias: str, body: _Denied, request: Request, services: Wired
) -> AliasDenied:
    """Replaces the labels before.

    They stay denied when the alias moves, until they are removed here.
    """
    return await _deny(services, model, alias, body.labels, cause_of(request, body.reason))


@router.delete("/denied", summary="Allow all labels again")
async def end_denied(
    model: ModelName, alias: str, request: Request, services: Wired
) -> AliasDenied:
    """Answers of the alias may have all labels of its version again."""
    return await _deny(services, model, alias, (), cause_of(request))
