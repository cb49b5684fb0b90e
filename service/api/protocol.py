"""The server's HTTP/1.1 protocol, with the bounds on a request's head that uvicorn's does not have."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.settings import Limits


class BoundedProtocol(HttpToolsProtocol):
    """Answers 400 to a request whose head is too long, and closes a connection on which it takes too long.

    The bytes that count are those of the target and of the headers' names and values. A head that never ends
    is cut off when it has come to the limit and one more read of the socket.
    """

    limits = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._late: asyncio.TimerHandle | None = None
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Hand received bytes to the parser, unless they are too many without the end of a head."""
        if self._late is not None and self._received_bytes > self.limits.head_bytes_max:
            self._refuse_head()
            return
        self._received_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Start to wait for the rest of a head."""
        super().on_message_begin()
        if self._late is None:
            self._begin_head()

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is there. Raises ValueError, for the parser, when it is too long."""
        self._end_head()
        n_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if n_bytes > self.limits.head_bytes_max:
            raise ValueError(n_bytes)
        super().on_headers_complete()

    def _refuse_head(self) -> None:
        self._end_head()
        self.send_400_response("Invalid HTTP request received.")

    def _begin_head(self) -> None:
        self._received_bytes = 0
        self._late = self.loop.call_later(self.limits.body_seconds_max, self.transport.close)

    def _end_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def bounded_protocol(limits: Limits) -> type[Any]:
    """Return the protocol class with these limits; uvicorn makes its own instances."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits})
