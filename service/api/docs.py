"""/openapi.json, and /docs: a page that renders it with nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from service.api.routing import RawRoute
from service.api.wire import dump

_STATIC = Path(__file__).parent / "static"
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
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
        return [
            RawRoute("/openapi.json", self.show_openapi, methods=["GET"]),
            RawRoute("/docs", self.show_page, methods=["GET"]),
            RawRoute("/docs/docs.js", self.show_script, methods=["GET"]),
            RawRoute("/docs/docs.css", self.show_style, methods=["GET"]),
        ]

    async def show_openapi(self, request: Request) -> Response:
        """Answer with the OpenAPI document."""
        return Response(dump(self.openapi), headers=_HEADERS, media_type="application/json")

    async def show_page(self, request: Request) -> Response:
        """Answer with the page."""
        return _file("docs.html")

    async def show_script(self, request: Request) -> Response:
        """Answer with the page's script."""
        return _file("docs.js")

    async def show_style(self, request: Request) -> Response:
        """Answer with the page's style."""
        return _file("docs.css")


def _file(name: str) -> Response:
    path = _STATIC / name
    return Response(path.read_bytes(), headers=_HEADERS, media_type=_TYPES[path.suffix])
