"""A route that tells the edge which one it is."""

from __future__ import annotations

from starlette.routing import Route
from starlette.types import Receive, Scope, Send


class RawRoute(Route):
    """A route whose handler takes the request as it is: no parameter is parsed on its way."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that matched the path, and perhaps not the method."""
        scope["route"] = self
        await super().handle(scope, receive, send)
