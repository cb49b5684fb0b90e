"""Responses: JSON, answers with an ETag, and streams."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from xylem.api.door.problems import BadRange, error_response
from xylem.serving import dump

_JSON = b"content-type", b"application/json"


class RawResponse(Response):
    """A response with status 200, a body, and exactly these headers and the length of the body.

    Faster than Starlette's own, which looks for the headers that it would add.
    """

    def __init__(self, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (_JSON,)) -> None:
        self.status_code = 200
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *headers]


def json_response(value: object) -> Response:
    """Return the response with status 200 whose body is `value` as JSON."""
    return RawResponse(dump(value))


def etag_of(content: bytes) -> str:
    """Return the ETag of content that may be sent packed or not.

    It is a weak one, because the two have different bytes.
    """
    return f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'


def unless_cached(request: Request, answer: Response, etag: str) -> Response:
    """Return the answer with its ETag, or with status 304 if the client has this version.

    RFC 9110, 13.1.2: the client tells the tags that it has in If-None-Match.
    """
    answer.headers.update({"etag": etag, "cache-control": "no-cache", "vary": "Accept-Encoding"})
    cached_tags = request.headers.get("if-none-match", "").replace("W/", "").split(",")
    if etag.removeprefix("W/") in map(str.strip, cached_tags) or cached_tags == ["*"]:
        answer.status_code = 304
        answer.body = b""
        del answer.headers["content-length"], answer.headers["content-type"]
    return answer


class ClosingStream(StreamingResponse):
    """A streamed answer that calls `on_end` when it is over, even if no byte of it was requested.

    The `finally` of an asynchronous generator is not enough: it does not run if the generator was
    never started.
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
    """Return an answer that is sent in pieces, none of them empty.

    run  calls a function with its arguments in a thread; the first piece is made before the answer
         begins, because that may raise an error
    """
    first = await run(next, pieces, b"")

    async def sent() -> AsyncIterator[bytes]:
        piece = first
        while piece:
            yield piece
            piece = await run(next, pieces, b"")

    return StreamingResponse(sent(), headers=headers, media_type=media)


class RangedFile(FileResponse):
    """A file of which a client may request a range; one that is not in the file is a problem."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def send_unless_refused(message: Message) -> None:
            if message.get("status", HTTPStatus.OK) >= HTTPStatus.BAD_REQUEST:
                raise BadRange("Range: expected bytes=FIRST-LAST within the file, found another")
            await send(message)

        try:
            await super().__call__(scope, receive, send_unless_refused)
        except BadRange as error:
            answer = error_response(scope, error)
            answer.headers["content-range"] = f"bytes */{self.headers['content-length']}"
            await answer(scope, receive, send)
