"""/openapi.json, and /docs: a page that renders it with nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from service.api.door.routing import RawRoute
from service.serving.wire import dump

_STATIC = Path(__file__).parent / "static"
_FILES = {
    "/docs": _STATIC / "docs.html",
    "/docs/docs.js": _STATIC / "docs.js",
    "/docs/docs.css": _STATIC / "docs.css",
    "/docs/swagger-ui-bundle.js": _STATIC / "swagger-ui" / "swagger-ui-bundle.js",
    "/docs/swagger-ui.css": _STATIC / "swagger-ui" / "swagger-ui.css",
}
"""Swagger UI renders the document; its files are those of its release (swagger-ui/README.md)."""

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


class DocsRoutes(NamedTuple):
    """The routes, and the document that they show."""

    openapi: dict[str, Any]

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        files = [RawRoute(path, self.show_file, methods=["GET"]) for path in _FILES]
        return [RawRoute("/openapi.json", self.show_openapi, methods=["GET"]), *files]

    async def show_openapi(self, request: Request) -> Response:
        """Answer with the OpenAPI document."""
        return Response(dump(self.openapi), headers=_HEADERS, media_type="application/json")

    async def show_file(self, request: Request) -> Response:
        """Answer with a file of the page."""
        path = _FILES[request.scope["path"]]
        return Response(path.read_bytes(), headers=_HEADERS, media_type=_TYPES[path.suffix])
