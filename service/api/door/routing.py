"""Routes of ours, which take requests as they are, and the short way to them past the framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]

PATHS_KEPT = 1024
"""Paths whose routes are remembered."""

PATH_LENGTH_KEPT = 256
"""Characters of a path up to which it is."""


class RawRoute(Route):
    """A route whose handler takes the request as it is: no parameter is parsed on its way."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path the framework found to match, having told the request scope so."""
        scope["route"] = self
        await super().handle(scope, receive, send)


class RouteMatch(NamedTuple):
    """Where a request goes, and what its path says."""

    route: RawRoute
    handler: Handler
    path_params: dict[str, Any]


class Direct:
    """ASGI app: hands a request to its route's handler, and what no route takes to the framework.

    The framework would look at each route, and enter and leave five contexts around the handler.
    """

    def __init__(self, routes: Sequence[RawRoute], framework: ASGIApp) -> None:
        self._routes = routes
        self._framework = framework
        self._kept: dict[tuple[str, str], RouteMatch] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = self.find(scope["method"], scope["path"])
        if found is None:
            await self._framework(scope, receive, send)
            return
        scope["route"], scope["path_params"] = found.route, found.path_params
        response = await found.handler(Request(scope, receive, send))
        await response(scope, receive, send)

    def find(self, method: str, path: str) -> RouteMatch | None:
        """Return where a request goes, and remember it; None: to the framework, which refuses it."""
        kept = self._kept.get((method, path))
        if kept is not None:
            return kept
        scope = {"type": "http", "method": method, "path": path}
        for route in self._routes:
            match, more = route.matches(scope)
            if match is Match.FULL:
                found = RouteMatch(route, route.endpoint, more["path_params"])
                if len(path) <= PATH_LENGTH_KEPT:
                    if len(self._kept) >= PATHS_KEPT:
                        self._kept.clear()
                    self._kept[method, path] = found
                return found
        return None
