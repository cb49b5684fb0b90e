"""The pages: `/`, to try models, correct them, train and promote; and `/docs`, which renders `/openapi.json`.

Anybody may see them: what they show asks for keys where they are needed.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, HTTPException, Request, Response

from service.serving.lines import dump

CONSOLE = Path(__file__).parents[2] / "console"
_STATIC = Path(__file__).parent / "static"
_DOCS = {
    "/docs": _STATIC / "docs.html",
    "/docs/docs.js": _STATIC / "docs.js",
    "/docs/docs.css": _STATIC / "docs.css",
    "/docs/swagger-ui-bundle.js": _STATIC / "swagger-ui" / "swagger-ui-bundle.js",
    "/docs/swagger-ui.css": _STATIC / "swagger-ui" / "swagger-ui.css",
}
"""Swagger UI renders the document; its files are those of its release (swagger-ui/README.md)."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'%s; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_OF_DOCS = _POLICY % " data:"
_OF_CONSOLE = _POLICY % "" + "; require-trusted-types-for 'script'; trusted-types 'none'"
"""Nothing from elsewhere, no script or style but in these files, and no markup made of text."""

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # kept, and asked for with its tag
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class StaticFile(NamedTuple):
    """A file of a page, its media type, and the headers of its answer."""

    content: bytes
    media: str
    headers: dict[str, str]


router = APIRouter(include_in_schema=False)
docs_router = APIRouter(tags=["service"])


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by path, read once: at the first request, so that nothing waits for them before."""
    console = {f"/console/{path.name}": path for path in CONSOLE.iterdir() if path.suffix in _TYPES}
    found = {}
    for url, path in {"/": CONSOLE / "index.html", **console, **_DOCS}.items():
        content = path.read_bytes()
        headers = {
            **_HEADERS,
            "content-security-policy": _OF_DOCS if url in _DOCS else _OF_CONSOLE,
            "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        }
        found[url] = StaticFile(content, _TYPES[path.suffix], headers)
    return found


@router.get("/")
@router.get("/console/{name}")
async def show_file(request: Request) -> Response:
    """Answer with a file of a page, or that it is as the browser has it."""
    found = (await asyncio.to_thread(static_files)).get(request.scope["path"])
    if found is None:
        raise HTTPException(404)
    if request.headers.get("if-none-match") == found.headers["etag"]:
        return Response(status_code=304, headers=found.headers)
    return Response(found.content, headers=found.headers, media_type=found.media)


@docs_router.get(
    "/openapi.json",
    operation_id="openapi",
    summary="This document",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def show_openapi(request: Request) -> Response:
    """Answer with the OpenAPI document."""
    document = await asyncio.to_thread(request.app.openapi)  # made when it is first asked for
    headers = {**_HEADERS, "content-security-policy": _OF_DOCS}
    return Response(dump(document), headers=headers, media_type="application/json")


for _path, _file in _DOCS.items():
    docs_router.add_api_route(
        _path,
        show_file,
        operation_id=_file.name.translate(str.maketrans("-.", "__")),
        summary=f"The page that shows the document: {_file.name}",
        response_class=Response,
        responses={200: {"content": {_TYPES[_file.suffix]: {"schema": {"type": "string"}}}}},
    )
