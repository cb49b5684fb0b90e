"""/v1/admin/models/{model}/aliases/{alias}: its canary, its shadow, and its denied labels."""

from collections.abc import Collection
from typing import Annotated

from fastapi import Request

from xylem.admin import Denial, denial_of, denying_known
from xylem.api.routes.admins import AuditedRoute, router_of
from xylem.api.routes.operations import ModelName
from xylem.api.routes.registry import cause_of
from xylem.api.routes.requests import Services, Wired, json_body
from xylem.api.schemas.registry import (
    CanaryRequest,
    DeniedRequest,
    ShadowRequest,
    SplitChanged,
)
from xylem.engine import Branch
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


async def _split(
    services: Services, model: str, alias: str, change: Change, cause: Cause
) -> SplitChanged:
    alias_change = await services.change(
        services.registry.change, model, alias, SPLIT, change, cause
    )
    return SplitChanged(**alias_change.split())


async def _deny(
    services: Services, model: str, alias: str, labels: Collection[str | Branch], cause: Cause
) -> Denial:
    alias_change = await services.change(
        services.registry.change,
        model,
        alias,
        DENIED,
        denying_known(services.store, model, lambda _: labels),
        cause,
    )
    assert alias_change.new_alias is not None  # denying labels never removes an alias
    return await services.admin_work.run(
        denial_of, services.store, model, alias, alias_change.new_alias
    )


@router.put("/canary", summary="Have a version answer a part of the requests to an alias")
async def put_canary(
    model: ModelName,
    alias: str,
    body: Annotated[
        CanaryRequest,
        json_body(
            CanaryRequest,
            {
                "version": 4,
                "weight": 0.1,
                "stable_weight": 0.9,
                "reason": "a tenth of the users first",
            },
        ),
    ],
    request: Request,
    services: Wired,
) -> SplitChanged:
    """The canary version answers a part of the requests from now on.

    Send the request again with another weight to change the part. To finish the canary, promote
    without a version; a rollback ends it.
    """
    return await _split(
        services,
        model,
        alias,
        with_canary(body.version, body.weight, body.stable_weight),
        cause_of(request, body.reason),
    )


@router.delete("/canary", summary="End a canary")
async def end_canary(
    model: ModelName, alias: str, request: Request, services: Wired
) -> SplitChanged:
    """The alias's version answers all requests again. A shadow stays."""
    return await _split(services, model, alias, without_canary, cause_of(request))


@router.put("/shadow", summary="Have a version answer copies of an alias's requests")
async def put_shadow(
    model: ModelName,
    alias: str,
    body: Annotated[
        ShadowRequest,
        json_body(ShadowRequest, {"version": 5, "share": 0.25, "reason": "does it answer alike?"}),
    ],
    request: Request,
    services: Wired,
) -> SplitChanged:
    """The answers of the shadow version are counted in `/metrics`, and never returned.

    They are compared with the returned ones.
    """
    return await _split(
        services,
        model,
        alias,
        with_shadow(body.version, body.share),
        cause_of(request, body.reason),
    )


@router.delete("/shadow", summary="End a shadow")
async def end_shadow(
    model: ModelName, alias: str, request: Request, services: Wired
) -> SplitChanged:
    """Ends the shadow of the alias. A canary stays."""
    return await _split(services, model, alias, without_shadow, cause_of(request))


@router.get("/denied", summary="The denied labels of an alias")
async def show_denied(model: ModelName, alias: str, services: Wired) -> Denial:
    """Answers of the alias never contain these labels.

    Labels that its version does not have are listed, too: they are kept for other versions.
    """

    def show() -> Denial:
        return denial_of(services.store, model, alias, services.store.alias(model, alias))

    return await services.admin_work.run(show)


@router.put("/denied", summary="Deny labels in the answers of an alias")
async def put_denied(
    model: ModelName,
    alias: str,
    body: Annotated[
        DeniedRequest, json_body(DeniedRequest, {"labels": ["role::program"], "reason": "retired"})
    ],
    request: Request,
    services: Wired,
) -> Denial:
    """Replaces the list of denied labels.

    A branch is denied as the labels that it has now.
    The labels stay denied when the alias moves, until they are removed here.
    """
    return await _deny(services, model, alias, body.labels, cause_of(request, body.reason))


@router.delete("/denied", summary="Allow all labels again")
async def end_denied(model: ModelName, alias: str, request: Request, services: Wired) -> Denial:
    """Answers of the alias may contain all labels of its version again."""
    return await _deny(services, model, alias, (), cause_of(request))
