"""One request and its answer on their way between the server and the app: ASGI's `receive` and `send`.

An answer that leaves bytes of the body unread closes the connection if it is a refusal, and reads a little on
before it does: closing with unread bytes would reset the connection, and the client could lose the answer.
"""

from __future__ import annotations

import asyncio
from http.client import BAD_REQUEST, REQUEST_TIMEOUT

from starlette.types import Message, Receive, Scope, Send

from service.api.door.problems import BadHead, BodyTooLarge, UnsupportedEncoding

LINGER_SECONDS = 1.0
UNREAD_BYTES_MAX = 64 << 10
"""An unread body of up to this size does not close its connection: most likely it has come already."""


class BodyGuard:
    """Counts the bytes of a request's body on their way in, and completes the head of the answer.

    request_id   what the answer repeats
    bytes_max    the most that the body may have; None: it is never held whole, and has no limit
    closing      whether the connection ends with the answer
    status       the answer's status; 0 until it begins
    """

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_closing",
        "_declared",
        "_linger",
        "_receive",
        "_request_id",
        "_scope",
        "_send",
        "_unread",
        "status",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: str,
        bytes_max: int | None,
        closing: bool,
    ) -> None:
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._scope = scope
        self._bytes_max = bytes_max
        self._closing = closing
        self._bytes = 0
        self._declared = _declared_bytes(scope)
        self._unread = self._declared != 0
        self._linger = False
        self.status = 0

    def check_head(self) -> None:
        """Raise what is wrong with the head: Host (RFC 9112, 3.2), codings (6.1), a body beyond the limit."""
        n_hosts = 0
        for name, value in self._scope["headers"]:
            if name == b"host":
                n_hosts += 1
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                found = ascii(value.decode("latin-1"))[:100]
                raise UnsupportedEncoding(f"Transfer-Encoding: expected chunked, found {found}")
        if n_hosts > 1 or (n_hosts == 0 and self._scope["http_version"] == "1.1"):
            raise BadHead(f"expected one Host header, found {n_hosts or 'none'}")
        self._check_bytes(self._declared or 0)

    async def receive(self) -> Message:
        """Return the next message; raise BodyTooLarge once the bytes are more than the limit."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._check_bytes(self._bytes)
            self._unread = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the answer."""
        if message["type"] == "http.response.start":
            message = self._begin(message)
        elif self._linger and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._read_on()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def _check_bytes(self, n_bytes: int) -> None:
        if self._bytes_max is not None and n_bytes > self._bytes_max:
            most = self._bytes_max
            raise BodyTooLarge(f"expected at most {most} bytes (limit body_bytes_max), found more")

    def _begin(self, message: Message) -> Message:
        """Return the answer's head with what every answer has."""
        self.status = status = message["status"]
        is_long = self._declared is None or self._declared > UNREAD_BYTES_MAX
        self._linger = self._unread and (status == REQUEST_TIMEOUT or (is_long and status >= BAD_REQUEST))
        headers = [*message["headers"], (b"x-request-id", self._request_id.encode())]
        if self._linger or self._closing:
            headers.append((b"connection", b"close"))
        return {"type": "http.response.start", "status": status, "headers": headers}

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
