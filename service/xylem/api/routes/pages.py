"""The web pages: `/`, to try models, correct them, train and promote; and `/docs`.

`/docs` shows `/openapi.json`. The pages need no key: the requests that they send need one.
"""

import asyncio
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response

from xylem.api.door.responses import etag_of, unless_cached
from xylem.api.routes.admins import router_of
from xylem.serving import dump

CONSOLE = Path(__file__).parents[2] / "console"
_STATIC = Path(__file__).parent / "static"
# the files of Swagger UI, which shows the document, as in its release (swagger-ui/README.md)
_DOCS = {
    "/docs": _STATIC / "docs.html",
    "/docs/docs.js": _STATIC / "docs.js",
    "/docs/docs.css": _STATIC / "docs.css",
    "/docs/swagger-ui-bundle.js": _STATIC / "swagger-ui" / "swagger-ui-bundle.js",
    "/docs/swagger-ui.css": _STATIC / "swagger-ui" / "swagger-ui.css",
}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "'self'%s; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# content security policies: only scripts and styles of these files, and no markup from text
_DOCS_POLICY = _POLICY % " data:"
_CONSOLE_POLICY = _POLICY % "" + "; require-trusted-types-for 'script'; trusted-types 'none'"

_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """A file of a page.

    content  its bytes
    media    its media type
    etag     its ETag
    headers  more headers of its answer
    """

    content: bytes
    media: str
    etag: str
    headers: dict[str, str]

    def answer(self, request: Request) -> Response:
        """Return the file, or status 304 if the browser has it."""
        return unless_cached(
            request, Response(self.content, 200, self.headers, self.media), self.etag
        )


router = APIRouter(include_in_schema=False)
docs_router = router_of("service")


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by path.

    They are read once, at the first request, so that no start waits for them.
    """
    console = {f"/console/{path.name}": path for path in CONSOLE.iterdir() if path.suffix in _TYPES}
    return {
        url: _file_of(
            path.read_bytes(),
            _TYPES[path.suffix],
            _DOCS_POLICY if url in _DOCS else _CONSOLE_POLICY,
        )
        for url, path in {"/": CONSOLE / "index.html", **console, **_DOCS}.items()
    }


def _file_of(content: bytes, media: str, policy: str) -> StaticFile:
    return StaticFile(
        content, media, etag_of(content), {**_HEADERS, "content-security-policy": policy}
    )


@router.get("/")
@router.get("/console/{name}")
async def show_file(request: Request) -> Response:
    """Return a file of the page, or status 304 if the browser's copy is current."""
    file = (await asyncio.to_thread(static_files)).get(request.scope["path"])
    if file is None:
        raise HTTPException(404)
    return file.answer(request)


@docs_router.get(
    "/openapi.json",
    summary="This document",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def openapi(request: Request) -> Response:
    """The OpenAPI document of this service."""
    return (await asyncio.to_thread(_document, request.app)).answer(request)


@lru_cache(1)
def _document(app: FastAPI) -> StaticFile:
    return _file_of(dump(app.openapi()), "application/json", _DOCS_POLICY)


for _path, _file in _DOCS.items():
    docs_router.add_api_route(
        _path,
        show_file,
        operation_id=_file.name.translate(str.maketrans("-.", "__")),
        summary=f"The page that shows this document: {_file.name}",
        response_class=Response,
        responses={200: {"content": {_TYPES[_file.suffix]: {"schema": {"type": "string"}}}}},
    )
