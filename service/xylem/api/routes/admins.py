"""Access to routes: the scope that each router needs, and the audit log of admins."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from xylem.api.door.responses import etag_of, unless_cached
from xylem.api.routes.operations import OPENAPI, operation_of
from xylem.api.routes.requests import Services, who
from xylem.base import BEGUN, AccessScope, Principal, XylemError, log
from xylem.serving import code_of

# the attribute of an endpoint whose path names no model, and that keys of some models may call
_FILTERS = "filters"

E = TypeVar("E", bound=Callable[..., Any])


def of_seen_models(endpoint: E) -> E:
    """Let keys of some models call an endpoint whose path names no model.

    The endpoint must show and change only what `who(request)` sees.
    """
    setattr(endpoint, _FILTERS, True)
    return endpoint


def needs(scope: str) -> Any:
    """Return the dependency of a router whose routes need a key with this scope.

    Use it as `APIRouter(dependencies=[needs("admin")])`. The key is checked before the body is
    read, and for the model that the path names. If the scope is open, requests need no key.
    """
    required_scope = AccessScope(scope)

    async def check(request: Request) -> None:
        if "principal" in request.scope.get("state", ()):  # an AuditedRoute has checked the key
            return
        services: Services = request.app.state.services
        request.state.principal = sender = services.ring.sender_of(
            _authorization(request),
            required_scope,
            _model_of(request.path_params),
            filters=getattr(request.scope["endpoint"], _FILTERS, False),
        )
        sender.meter.enter()
        request.state.meter = sender.meter  # the request scope counts the request out
        if required_scope is not AccessScope.ADMIN:
            services.refuse_above_share(sender)

    return Depends(check)


def _model_of(parts: Mapping[str, str]) -> str | None:
    """Return the model that a path names, in each dialect; None if it names none."""
    # the project_id is Annif's: NAME, NAME@ALIAS or NAME@VERSION
    return parts.get("model") or parts.get("project_id", "").partition("@")[0] or None


def may(request: Request, scope: AccessScope) -> Principal | None:
    """Return the sender of a request with a key for this scope and some models, or an open one.

    None if the request has no such key.
    """
    services: Services = request.app.state.services
    try:
        return services.ring.sender_of(_authorization(request), scope, None, filters=True)
    except XylemError:
        return None


def router_of(
    tag: str, scope: str | None = None, route_class: type[APIRoute] = APIRoute, prefix: str = ""
) -> APIRouter:
    """Return a router whose routes need a key with this scope, or no key if it is None.

    The id of an operation is the name of its function, in camel case.
    """
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=None if scope is None else [needs(scope)],
        route_class=route_class,
        generate_unique_id_function=lambda route: operation_of(route.name),
    )


def _authorization(request: Request) -> bytes | None:
    values = [value for name, value in request.scope["headers"] if name == b"authorization"]
    return values[-1] if values else None


def row_sender(request: Request, services: Services, model: str) -> str | None:
    """Return the name of the key that stored rows of a request belong to; None if none are stored.

    It is empty if the request has no key.
    """
    return (
        services.ring.row_sender(_authorization(request), model)
        if services.learning.rows.is_on
        else None
    )


class RawRoute(APIRoute):
    """A route that calls its endpoint and its dependencies itself.

    The endpoint takes the request and the services; the dependencies take the request, and have
    nothing to close. FastAPI would look up the parameters of each, which costs more than a
    prediction, and keep stacks of objects to close, which cost half as much.
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
    """A route whose answers have an ETag; a client that has an answer gets status 304."""

    def get_route_handler(  # type: ignore[override]
        self,
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return FastAPI's handler, which adds an ETag to its answers."""
        handle = super().get_route_handler()

        async def tagged(request: Request) -> Response:
            answer = await handle(request)
            return unless_cached(request, answer, etag_of(bytes(answer.body)))

        return tagged


class AuditedRoute(APIRoute):
    """A route of admins. Requests that change something are written to the audit log.

    The OpenAPI document describes the body and the query string as the dependencies that read them
    do.
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
        """Return FastAPI's handler, which writes to the audit log unless the method is GET.

        An entry is written before anything is changed. If it cannot be written, nothing is changed,
        and the answer is 503. The outcome is added to the entry at the end.
        """
        handle = super().get_route_handler()
        if self.methods == {"GET"}:
            return handle

        async def audited(request: Request) -> Response:
            for dependency in self.dependencies:  # checks the key; the handler does so again
                if dependency.dependency is not None:
                    await dependency.dependency(request)
            services: Services = request.app.state.services
            target = request.url.path.removeprefix("/v1/admin/")
            request_id = request.scope["request_id"]
            number = await services.admin_work.run(
                services.audit.append, who(request), self.unique_id, target, BEGUN, request_id
            )

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
