"""/openapi.json, and /docs: a page that renders it with nothing from elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response

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


router = APIRouter(tags=["service"])


@router.get(
    "/openapi.json",
    operation_id="openapi",
    summary="This document",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def show_openapi(request: Request) -> Response:
    """Answer with the OpenAPI document."""
    document = await asyncio.to_thread(request.app.openapi)  # made when it is first asked for
    return Response(dump(document), headers=_HEADERS, media_type="application/json")


async def show_file(request: Request) -> Response:
    """Answer with a file of the page."""
    path = _FILES[request.scope["path"]]
    return Response(path.read_bytes(), headers=_HEADERS, media_type=_TYPES[path.suffix])


def _text(media: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media: {"schema": {"type": "string"}}}}}


for _path, _file in _FILES.items():
    router.add_api_route(
        _path,
        show_file,
        operation_id=_file.name.translate(str.maketrans("-.", "__")),
        summary=f"The page that shows the document: {_file.name}",
        response_class=Response,
        responses=_text(_TYPES[_file.suffix]),
    )
