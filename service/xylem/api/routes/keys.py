"""/v1/admin/keys and /v1/admin/audit: the keys that have access, and the actions of admins."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Request

from xylem.api.routes.admins import AuditedRoute, of_seen_models, router_of
from xylem.api.routes.requests import Services, Wired, json_body, query_of, who
from xylem.api.schemas.registry import (
    AuditPage,
    AuditQuery,
    CreateKeyRequest,
    KeyFacts,
    KeyList,
    NewKey,
    RotateKeyRequest,
    UsageLine,
    UsageList,
    UsageQuery,
)
from xylem.base import AccessKeys, Unavailable

router = router_of("keys", "admin", AuditedRoute, "/v1/admin")


@router.get("/keys", summary="All keys")
async def list_keys(services: Wired) -> KeyList:
    """The newest keys come first. Keys that are no longer valid are listed, too.

    Secrets are never shown.
    """
    return KeyList(
        keys=[
            KeyFacts(**key.facts())
            for key in await services.admin_work.run(AccessKeys(services.learning.database).list)
        ]
    )


@router.post("/keys", summary="Make a key")
async def create_key(
    body: Annotated[
        CreateKeyRequest,
        json_body(
            CreateKeyRequest,
            {"name": "shop", "scopes": ["predict", "feedback"], "models": ["shop-*"]},
        ),
    ],
    services: Wired,
) -> NewKey:
    """Only this answer contains the text of the key.

    All servers accept the key within two seconds.
    """
    new_key = await _change(
        services,
        partial(
            AccessKeys.create, **body.model_dump(exclude={"name", "scopes", "lifetime_seconds"})
        ),
        body.name,
        body.scopes,
        body.lifetime_seconds,
    )
    return NewKey(**new_key.facts(services.live.models))


@router.post("/keys/{key}/rotate", summary="Make the next key of the same name and scopes")
async def rotate_key(
    key: str,
    body: Annotated[RotateKeyRequest, json_body(RotateKeyRequest, {"overlap_seconds": 86400})],
    services: Wired,
) -> NewKey:
    """The old key stays valid during the overlap."""
    new_key = await _change(
        services, AccessKeys.rotate, key, body.overlap_seconds, body.lifetime_seconds
    )
    return NewKey(**new_key.facts(services.live.models))


@router.delete("/keys/{key}", summary="Revoke a key")
async def revoke_key(key: str, services: Wired) -> KeyFacts:
    """Revokes the key with this id for ever. All servers refuse it within two seconds."""
    return KeyFacts(**(await _change(services, AccessKeys.revoke, key)).facts())


async def _change(services: Services, change: Callable[..., Any], *arguments: object) -> Any:
    """Change the keys, and have this process use the change at once.

    If reading the keys again fails, this process uses the change a little later.
    """
    key = await services.admin_work.run(change, AccessKeys(services.learning.database), *arguments)
    with contextlib.suppress(Unavailable):
        await services.admin_work.run(services.ring.refresh)
    return key


@router.get(
    "/usage",
    summary="What keys sent to models, by hour",
    response_model_exclude_unset=True,
)
@of_seen_models
async def show_usage(
    query: Annotated[UsageQuery, query_of(UsageQuery)], request: Request, services: Wired
) -> UsageList:
    """Counts of requests, rows and characters, and the seconds of search.

    They are written some seconds later. Hours are those of UTC.
    """
    return UsageList(
        usage=[
            UsageLine(**line)
            for line in (
                await services.admin_work.run(
                    partial(services.ring.usage.read, sees=who(request).sees),
                    query.begin,
                    query.end,
                    query.groups,
                )
            )
        ]
    )


@router.get("/audit", summary="The audit log")
async def show_audit(
    query: Annotated[AuditQuery, query_of(AuditQuery)], services: Wired
) -> AuditPage:
    """Each entry tells whose key it was, when, which action, and its outcome.

    The newest entries come first. Reads are not logged.
    """
    return AuditPage(
        entries=await services.admin_work.run(services.audit.page, query.before, query.limit)
    )
