"""/: a page to try models, correct them, train and promote; its files are in `service/console`."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, HTTPException, Request, Response

DIRECTORY = Path(__file__).parents[2] / "console"
PAGE = "index.html"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing from elsewhere, no script or style but in these files, and no markup made of text."""

_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # kept, and asked for with its tag
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class StaticFile(NamedTuple):
    """A file of the page, its media type, and its ETag."""

    content: bytes
    media: str
    etag: str


router = APIRouter(include_in_schema=False)


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by name, read once: at the first request, so that nothing waits for them before."""
    found = {}
    for path in DIRECTORY.iterdir():
        if path.suffix in _TYPES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            found[path.name] = StaticFile(content, _TYPES[path.suffix], f'"{digest[:32]}"')
    return found


@router.get("/")
async def show_page(request: Request) -> Response:
    """Answer with the page. Anybody may see it: what it shows asks for keys where they are needed."""
    return await show_part(PAGE, request)


@router.get("/console/{name}")
async def show_part(name: str, request: Request) -> Response:
    """Answer with a file of the page, or that it is as the browser has it."""
    found = (await asyncio.to_thread(static_files)).get(name)
    if found is None:
        raise HTTPException(404)
    headers = {**_HEADERS, "etag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media)
