"""Who may call the routes below /v1/admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.api.routes.services import Wired

_BEARER = HTTPBearer(scheme_name="adminKey", auto_error=False)


async def _check(
    request: Request,
    services: Wired,
    _: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> None:
    """Raise Unauthorized unless the request brings the admin key. The parameter is for the document."""
    services.admin.check(request.scope)


ADMINS_ONLY = Depends(_check)
"""`APIRouter(dependencies=[ADMINS_ONLY])`: the key is looked at before the body."""
