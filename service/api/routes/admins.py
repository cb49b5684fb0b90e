"""Who may call a route: a scope for each router; and the log of what admins did."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from model_store.errors import StoreError
from service.access.ring import Principal
from service.access.scopes import AccessScope
from service.api.routes.services import Services, Wired
from service.errors import DatabaseUnavailable, XylemError
from service.logs import log
from service.serving.problems import code_of

_BEARER = HTTPBearer(scheme_name="key", description="A key of `xylem keys create`", auto_error=False)


def needs(scope: str) -> Any:
    """Return what a router depends on whose routes need a scope: `APIRouter(dependencies=[needs("admin")])`.

    The key is looked at before the body is read. Requests whose scope is open pass without one.
    """
    wanted = AccessScope(scope)

    async def check(request: Request, services: Wired, _: Any = Depends(_BEARER)) -> None:
        request.state.principal = services.ring.check(_authorization(request), wanted)

    check.scope = wanted  # type: ignore[attr-defined]
    return Depends(check)


def _authorization(request: Request) -> bytes | None:
    """Return the last header Authorization."""
    found = [value for name, value in request.scope["headers"] if name == b"authorization"]
    return found[-1] if found else None


def who(request: Request) -> Principal:
    """Return whose key a request brought, once it was checked."""
    principal: Principal = request.state.principal
    return principal


class AuditedRoute(APIRoute):
    """A route of admins: what changes something is written to the audit log, with what came of it."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return FastAPI's handler, with the log around it."""
        handle = super().get_route_handler()
        if self.methods == {"GET"}:
            return handle

        async def audited(request: Request) -> Response:
            try:
                response = await handle(request)
            except (XylemError, StoreError) as error:
                await self._note(request, code_of(error))
                raise
            except Exception:
                await self._note(request, "internal-error")
                raise
            await self._note(request, "done")
            return response

        return audited

    async def _note(self, request: Request, outcome: str) -> None:
        """Write what was done; of a request without a key that fits nothing was."""
        principal = getattr(request.state, "principal", None)
        if principal is None:
            return
        services: Services = request.app.state.services
        target = request.url.path.removeprefix("/v1/admin/")
        action = self.operation_id or self.name
        said = principal, action, target, outcome, request.scope["request_id"]
        try:
            await services.admin_work.run(services.audit.append, *said)
        except (DatabaseUnavailable, XylemError) as error:
            log(logging.ERROR, "audit_unwritten", action=action, target=target, detail=str(error))
