"""What may come in: how many requests at a time, and how many bytes each.

A refusal that leaves bytes of the body unread closes the connection, and reads a little on before it does:
closing with unread bytes would reset the connection, and the client could lose the answer.
"""

from __future__ import annotations

import asyncio
import re
from http.client import BAD_REQUEST, REQUEST_TIMEOUT

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import (
    BodyTimeout,
    BodyTooLarge,
    UnsupportedEncoding,
    UnsupportedMediaType,
    error_response,
)
from service.errors import Overloaded
from service.settings import Limits

LINGER_SECONDS = 1.0
UNREAD_BYTES_MAX = 64 << 10
"""An unread body of up to this size does not close its connection: most likely it has come already."""

ALWAYS = frozenset({"/livez", "/readyz", "/metrics"})
"""Routes that answer however many requests are in flight."""

JSON = frozenset({b"application/json"})
NDJSON = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl"})


class Admission:
    """ASGI middleware: refuses one request too many, and cuts off a body at the limit of bytes.

    streams   matches the paths whose bodies have no limit, because they are never held whole
    """

    def __init__(self, app: ASGIApp, limits: Limits, streams: re.Pattern[str]) -> None:
        self._app = app
        self._limits = limits
        self._streams = streams
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        unlimited = self._streams.fullmatch(scope["path"]) is not None
        body = _Body(scope, receive, send, None if unlimited else self._limits.body_bytes_max)
        if self._in_flight >= self._limits.requests_max and scope["path"] not in ALWAYS:
            found = f"expected at most {self._limits.requests_max} requests at a time, found more"
            await error_response(scope, Overloaded(found))(scope, body.receive, body.send)
            return
        self._in_flight += 1
        try:
            if body.declared_too_large:
                await error_response(scope, body.too_large())(scope, body.receive, body.send)
            else:
                await self._app(scope, body.receive, body.send)
        finally:
            self._in_flight -= 1


class _Body:
    """Counts the bytes of one request's body on their way in, and sees to the unread ones at the answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, bytes_max: int | None) -> None:
        self._receive = receive
        self._send = send
        self._bytes_max = bytes_max
        self._bytes = 0
        self._declared = _declared_bytes(scope)
        self._unread = self._declared != 0
        self._linger = False

    @property
    def declared_too_large(self) -> bool:
        """Return whether Content-Length says more bytes than the limit."""
        return self._bytes_max is not None and (self._declared or 0) > self._bytes_max

    def too_large(self) -> BodyTooLarge:
        """Return the refusal of this body."""
        return BodyTooLarge(f"expected at most {self._bytes_max} bytes (limit body_bytes_max), found more")

    async def receive(self) -> Message:
        """Return the next message; raise BodyTooLarge once the bytes are more than the limit."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            if self._bytes_max is not None and self._bytes > self._bytes_max:
                raise self.too_large()
            self._unread = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the answer."""
        if message["type"] == "http.response.start":
            status = message["status"]
            is_long = self._declared is None or self._declared > UNREAD_BYTES_MAX
            self._linger = self._unread and (status == REQUEST_TIMEOUT or (is_long and status >= BAD_REQUEST))
            if self._linger:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        elif self._linger and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._read_on()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _read_on(self) -> None:
        """Read and forget for a while, until the body or the connection ends."""
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while (await self._receive()).get("more_body", False):
                    pass
        except TimeoutError:
            pass


def _declared_bytes(scope: Scope) -> int | None:
    """Return the length that the headers say the body has, None when they leave it open."""
    chunked = False
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
        chunked = chunked or name == b"transfer-encoding"
    return None if chunked else 0


def check_media(scope: Scope, allowed: frozenset[bytes]) -> None:
    """Raise UnsupportedMediaType or UnsupportedEncoding unless the body is one of `allowed`, not encoded."""
    content_type = encoding = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-encoding":
            encoding = value
    if content_type not in allowed:
        media, _, parameters = content_type.lower().partition(b";")
        charset = parameters.replace(b" ", b"").replace(b'"', b"")
        if media.strip() not in allowed or charset not in (b"", b"charset=utf-8"):
            expected = b" or ".join(sorted(allowed)).decode()
            found = ascii(content_type.decode("latin-1"))[:100]
            raise UnsupportedMediaType(f"Content-Type: expected {expected}, in UTF-8, found {found}")
    if encoding.strip().lower() not in (b"", b"identity"):
        found = ascii(encoding.decode("latin-1"))[:100]
        raise UnsupportedEncoding(f"Content-Encoding: expected none, found {found}")


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the whole body of a request that says it is JSON.

    Raises UnsupportedMediaType, UnsupportedEncoding, BodyTooLarge (through the middleware), BodyTimeout and
    ClientDisconnect.
    """
    check_media(request.scope, JSON)
    parts = []
    more = True
    try:
        async with asyncio.timeout(limits.body_seconds_max):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        raise BodyTimeout(f"expected the whole body within {limits.body_seconds_max:g} seconds") from None
    return b"".join(parts)
