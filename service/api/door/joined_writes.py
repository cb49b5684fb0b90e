"""An answer as it is written: fewer system calls, and what uvicorn makes of streams put right."""

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class JoinedWrites:
    """The transport of one answer, which keeps its head until the body comes: one system call, not two.

    Only where Content-Length says that a body follows at once; the head of a stream goes out by itself. What
    uvicorn makes of streams is put right. One that begins before its request was read would leave a client
    waiting that sends its body only when it is told to (RFC 9110, 10.1.1); and a client of HTTP/1.0 does not
    know chunks (RFC 9112, 6.1): for it the end of the connection ends the stream.
    """

    __slots__ = ("_cycle", "_head", "_is_awaited", "_is_begun", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._head = b""
        self._is_awaited = cycle.waiting_for_100_continue
        self._is_begun = False

    def write(self, data: bytes) -> None:
        """Write, or keep a head for the next call."""
        cycle = self._cycle
        if not cycle.response_started:
            self._is_awaited = False  # any more: this tells the client to go on
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
            size, _, rest = data.partition(b"\r\n")  # a chunk; the last one may be behind it
            data = rest[: int(size, 16)] if size else b""
        if self._head:
            data, self._head = self._head + data, b""
        self._transport.write(data)

    def _knows_no_chunks(self) -> bool:
        return self._cycle.scope["http_version"] == "1.0"

    def close(self) -> None:
        """Write what is kept, and close."""
        if self._head:
            self.write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is being closed."""
        return self._transport.is_closing()
