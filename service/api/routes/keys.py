"""/v1/admin/keys and /v1/admin/audit: who may, and what admins did."""

import contextlib
from typing import Annotated

from fastapi import APIRouter, Request

from service.access.keys import AccessKey, AccessKeys, MadeKey
from service.access.scopes import parse_scopes
from service.api.routes.admins import AuditedRoute, needs
from service.api.routes.operations import problems, query_parameters, takes_json
from service.api.routes.requests import json_body
from service.api.routes.services import Services, Wired
from service.base.errors import Unavailable
from service.serving.parse import parse_query
from service.serving.schemas.registry import (
    AuditFacts,
    AuditPage,
    AuditQuery,
    CreateKeyRequest,
    KeyFacts,
    KeyList,
    NewKey,
    RotateKeyRequest,
)

router = APIRouter(prefix="/v1/admin", tags=["keys"], dependencies=[needs("admin")], route_class=AuditedRoute)

_REFUSALS = problems(400, 401, 403, 404, 408, 413, 415, 422, 503)


@router.get("/keys", operation_id="listKeys", summary="All keys", responses=problems(401, 403, 503))
async def list_keys(services: Wired) -> KeyList:
    """All keys, the newest first, also those that are not in force any more. Nothing shows their secrets."""
    keys = AccessKeys(services.learning.database)
    found = await services.admin_work.run(keys.list)
    return KeyList(keys=[KeyFacts(**key.facts()) for key in found])


@router.post(
    "/keys",
    operation_id="createKey",
    summary="Make a key",
    responses=_REFUSALS,
    openapi_extra=takes_json(CreateKeyRequest, {"name": "shop", "scopes": ["predict", "feedback"]}),
)
async def create_key(
    body: Annotated[CreateKeyRequest, json_body(CreateKeyRequest)], services: Wired
) -> NewKey:
    """The answer shows its text, which nothing shows again. It is in force everywhere within two seconds."""

    def create(keys: AccessKeys) -> MadeKey:
        return keys.create(body.name, parse_scopes(body.scopes), body.lifetime_seconds, body.no_rows)

    return NewKey(**(await _change(services, create)).facts())


@router.post(
    "/keys/{key}/rotate",
    operation_id="rotateKey",
    summary="Make the next key of the same name and scopes",
    responses=_REFUSALS,
    openapi_extra=takes_json(RotateKeyRequest, {"overlap_seconds": 86400}),
)
async def rotate_key(
    key: str, body: Annotated[RotateKeyRequest, json_body(RotateKeyRequest)], services: Wired
) -> NewKey:
    """The old one is in force until the overlap is over."""

    def rotate(keys: AccessKeys) -> MadeKey:
        return keys.rotate(key, body.overlap_seconds, body.lifetime_seconds)

    return NewKey(**(await _change(services, rotate)).facts())


@router.delete(
    "/keys/{key}", operation_id="revokeKey", summary="Revoke a key", responses=problems(401, 403, 404, 503)
)
async def revoke_key(key: str, services: Wired) -> KeyFacts:
    """By its id. It is out of force everywhere within two seconds, and stays so."""

    def revoke(keys: AccessKeys) -> AccessKey:
        return keys.revoke(key)

    found: AccessKey = await _change(services, revoke)
    return KeyFacts(**found.facts())


async def _change(services: Services, change):  # type: ignore[no-untyped-def]
    """Change the keys, and have that in force here at once; should that fail, it is soon."""
    found = await services.admin_work.run(change, AccessKeys(services.learning.database))
    with contextlib.suppress(Unavailable):
        await services.admin_work.run(services.ring.refresh)
    return found


@router.get(
    "/audit",
    operation_id="showAudit",
    summary="What admins did",
    responses=problems(401, 403, 422, 503),
    openapi_extra=query_parameters(AuditQuery),
)
async def show_audit(request: Request, services: Wired) -> AuditPage:
    """The newest first: whose key, when, what, with what outcome. Reads are not written down."""
    query = parse_query(request.scope["query_string"], AuditQuery, services.limits)
    entries = await services.admin_work.run(services.audit.page, query.before, query.limit)
    return AuditPage(entries=[AuditFacts(**entry.facts()) for entry in entries])
