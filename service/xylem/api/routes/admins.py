"""Who may call a route: a scope for each router; and the log of what admins did."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from xylem.api.door.responses import etag_of, unless_cached
from xylem.api.routes.operations import OPENAPI, operation_of
from xylem.api.routes.requests import Services
from xylem.base import BEGUN, AccessScope, Principal, XylemError, log
from xylem.serving import code_of


def needs(scope: str) -> Any:
    """Return what a router depends on whose routes need a scope:
    `APIRouter(dependencies=[needs("admin")])`.

    The key is looked at before the body is read. Requests whose scope is open pass without one.
    """
    required_scope = AccessScope(scope)

    async def check(request: Request) -> None:
        services: Services = request.app.state.services
        request.state.principal = services.ring.check(_authorization(request), required_scope)

    return Depends(check)


def may(request: Request, scope: AccessScope) -> bool:
    """Return whether a request may do what needs a scope."""
    services: Services = request.app.state.services
    try:
        services.ring.check(_authorization(request), scope)
    except XylemError:
        return False
    return True


def router_of(
    tag: str, scope: str | None = None, route_class: type[APIRoute] = APIRoute, prefix: str = ""
) -> APIRouter:
    """Return a router whose routes need a scope (None: no key); their
    operations are named as functions.
    """
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=None if scope is None else [needs(scope)],
        route_class=route_class,
        generate_unique_id_function=lambda route: operation_of(route.name),
    )


def _authorization(request: Request) -> bytes | None:
    """Return the last header Authorization."""
    values = [value for name, value in request.scope["headers"] if name == b"authorization"]
    return values[-1] if values else None


def who(request: Request) -> Principal:
    """Return whose key a request brought, once it was checked."""
    principal: Principal = request.state.principal
    return principal


def keeps_rows(request: Request, services: Services, model: str) -> bool:
    """Return whether rows of a model are kept of the feedback of a request."""
    return services.learning.rows.is_on and services.ring.keeps_rows(_authorization(request), model)


class RawRoute(APIRoute):
    """A route whose endpoint takes the request and the services, and
    whose dependencies take the request.

    It calls them itself: what FastAPI does to find out what each takes costs more than a
    prediction, and its stacks of what dependencies leave to be closed half as much. These leave
    nothing.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._checks = [
            dependency.dependency
            for dependency in self.dependencies
            if dependency.dependency is not None
        ]
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        for check in self._checks:
            await check(request)
        response: Response = await self.endpoint(request, request.app.state.services)
        await response(scope, receive, send)


class TaggedRoute(APIRoute):
    """A route whose answers have a tag, and are not sent again to who has them."""

    def get_route_handler(  # type: ignore[override]
        self,
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return FastAPI's handler, with the tag of what it answers."""
        handle = super().get_route_handler()

        async def tagged(request: Request) -> Response:
            answer = await handle(request)
            return unless_cached(request, answer, etag_of(bytes(answer.body)))

        return tagged


class AuditedRoute(APIRoute):
    """A route of admins: what changes something is written to the audit log, with what came of it.

    The body and the query string that its dependencies read are described by these.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for dependency in self.dependant.dependencies:
            self.openapi_extra = {
                **getattr(dependency.call, OPENAPI, {}),
                **(self.openapi_extra or {}),
            }

    def get_route_handler(  # type: ignore[override]
        self,
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return FastAPI's handler, with the log around it.

        An entry is written before anything is changed. Where that cannot be done, nothing is, and
        the answer is 503. What came of it is written into the entry at the end.
        """
        handle = super().get_route_handler()
        if self.methods == {"GET"}:
            return handle

        async def audited(request: Request) -> Response:
            for dependency in self.dependencies:  # whose key it is; the handler checks it again
                if dependency.dependency is not None:
                    await dependency.dependency(request)
            services: Services = request.app.state.services
            target = request.url.path.removeprefix("/v1/admin/")
            request_id = request.scope["request_id"]
            facts = who(request), self.unique_id, target, BEGUN, request_id
            number = await services.admin_work.run(services.audit.append, *facts)

            async def conclude(outcome: str) -> None:
                try:
                    await services.admin_work.run(services.audit.conclude, number, outcome)
                except XylemError as error:
                    log(
                        logging.ERROR,
                        "audit_unwritten",
                        detail=str(error),
                        entry=number,
                        key=who(request).key_id,
                        who=who(request).name,
                        action=self.unique_id,
                        target=target,
                        outcome=outcome,
                        request_id=request_id,
                    )

            try:
                response = await handle(request)
            except Exception as error:
                await conclude(code_of(error))
                raise
            await conclude("done")
            return response

        return audited
