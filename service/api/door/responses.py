"""Answers of JSON, and streams that say when they are over."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from service.serving.wire import dump

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


class ClosingStream(StreamingResponse):
    """A streamed answer that says when it is over, also if nobody asks for its first byte.

    An asynchronous generator's own `finally` is no place for that: one that was not begun has none.
    """

    def __init__(
        self, content: AsyncIterable[bytes], on_end: Callable[[], None], headers: dict[str, str], media: str
    ) -> None:
        super().__init__(content, headers=headers, media_type=media)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
