"""The writes of one answer, joined: its head and its body leave in one system call."""

from uvicorn.protocols.http.httptools_impl import (
    RequestResponseCycle,
)


class JoinedWrites:
    """The transport of one answer: it joins the head and the body, to save a system call.

    The head waits for the body only if Content-Length says that a body follows at once; the head of
    a stream is sent by itself.

    It also corrects what uvicorn writes for streams. If a stream begins before its request was
    read, a client that sends its body only after 100 Continue would wait for ever (RFC 9110,
    10.1.1): so that line is sent first. And a client of HTTP/1.0 does not know chunks (RFC 9112,
    6.1): for it, the end of the connection ends the stream.
    """

    __slots__ = ("_cycle", "_head", "_is_awaited", "_is_begun", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._head = b""
        self._is_awaited = cycle.waiting_for_100_continue
        self._is_begun = False

    def write(self, data: bytes) -> None:
        """Write data, or keep a head until the next call."""
        cycle = self._cycle
        if not cycle.response_started:
            self._is_awaited = False  # this is 100 Continue: the client sends its body now
        elif not self._is_begun:
            self._is_begun = True
            if cycle.chunked_encoding is False and cycle.scope["method"] != "HEAD":
                self._head = data
                return
            if cycle.chunked_encoding and self._knows_no_chunks():
                data = data.replace(b"transfer-encoding: chunked\r\n", b"", 1)
            elif cycle.chunked_encoding and self._is_awaited:
                data = b"HTTP/1.1 100 Continue\r\n\r\n" + data
        elif cycle.chunked_encoding and self._knows_no_chunks():
            size, _, remainder = data.partition(b"\r\n")  # a chunk; the last one may follow
            data = remainder[: int(size, 16)] if size else b""
        if self._head:
            data = self._head + data
            self._head = b""
        self._transport.write(data)

    def _knows_no_chunks(self) -> bool:
        return self._cycle.scope["http_version"] == "1.0"

    def close(self) -> None:
        """Write the head that is kept, if any, and close the connection."""
        if self._head:
            self.write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is being closed."""
        return self._transport.is_closing()
