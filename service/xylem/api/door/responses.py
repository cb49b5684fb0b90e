"""Answers of JSON, and streams: of what threads make, and such that say when they are over."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from xylem.serving import dump

_JSON = b"content-type", b"application/json"


class RawResponse(Response):
    """A 200 of headers and a body, made without a look at headers that could be given."""

    def __init__(self, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (_JSON,)) -> None:
        self.status_code = 200
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *headers]


def json_response(value: object) -> Response:
    """Return the 200 that answers with `value`."""
    return RawResponse(dump(value))


def etag_of(content: bytes) -> str:
    """Return the tag of what may be sent packed or not: a weak one, for their bytes differ."""
    return f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'


def unless_cached(request: Request, answer: Response, etag: str) -> Response:
    """Return a 200 with its tag, or the 304 for a client that has
    what the tag says (RFC 9110, 13.1.2).
    """
    answer.headers.update({"etag": etag, "cache-control": "no-cache", "vary": "Accept-Encoding"})
    cached_tags = request.headers.get("if-none-match", "").replace("W/", "").split(",")
    if etag.removeprefix("W/") in map(str.strip, cached_tags) or cached_tags == ["*"]:
        answer.status_code = 304
        answer.body = b""
        del answer.headers["content-length"], answer.headers["content-type"]
    return answer


class ClosingStream(StreamingResponse):
    """A streamed answer that says when it is over, also if nobody asks for its first byte.

    An asynchronous generator's own `finally` is no place for that: one that was not begun has none.
    """

    def __init__(
        self,
        content: AsyncIterable[bytes],
        on_end: Callable[[], None],
        headers: dict[str, str],
        media: str,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def stream_of(
    pieces: Iterator[bytes],
    run: Callable[..., Awaitable[bytes]],
    media: str,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return the answer that is sent in pieces, none of them empty.

    run  makes a piece elsewhere, by a function and its arguments; the first one before the answer
         begins: it may be a refusal
    """
    first = await run(next, pieces, b"")

    async def sent() -> AsyncIterator[bytes]:
        piece = first
        while piece:
            yield piece
            piece = await run(next, pieces, b"")

    return StreamingResponse(sent(), headers=headers, media_type=media)
