"""The HTTP/1.1 protocol of the server: uvicorn's, with bounds on all that is not a body."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from xylem.api.door.admission import BODY_IS_RECEIVED
from xylem.api.door.answering import WholeRequests
from xylem.api.door.joined_writes import JoinedWrites
from xylem.api.door.slow_clients import SlowClients, UnreadAnswers
from xylem.base import Limits

# the ASGI extensions of a request whose body has been received
_RECEIVED_EXTENSIONS: dict[str, dict[str, object]] = {BODY_IS_RECEIVED: {}}


# Makes the last answer to bytes that are no request: `refuse_unparsed`, with what it needs.
RefuseUnparsed = Callable[[bytes, int, BaseException | None], tuple[int, bytes, bytes]]


class BoundedProtocol(HttpToolsProtocol):
    """Refuses a request whose head is too long, and closes connections that take too long.

    The length of a head is that of the target and of the names and values of the headers. A head
    that never ends is cut off at the limit plus one read of the socket. So are other bytes that are
    no body: trailers (which are not kept), the framing of chunks, and empty lines between requests.
    After the answer, the rest of a request may have as many bytes as a body, and take as long; then
    its connection is closed.

    While a client has not read its answers, no further request of it is begun. The bytes that it
    has not read count among the `answers` that are held for all clients.
    """

    limits: Limits
    answers: SlowClients
    unparsed: RefuseUnparsed
    whole_request: WholeRequests | None
    on_abort: Callable[[], None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        # so `pause_writing` is called whenever something could not be sent at once
        transport.set_write_buffer_limits(0)
        self._unread: UnreadAnswers | None = None
        self._current: RequestResponseCycle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_head = True  # False from the end of a head to the beginning of the next one
        self._is_between = True  # whether no part of a request has come since the last whole one
        self._n_begun = 0  # the number of requests that have begun
        self._answered_at = 0.0
        self._default_headers: list[tuple[bytes, bytes]] = []
        self._headers_joined = b""
        self._bare_bytes = 0  # bytes that came since the last end of a head or part of a body
        self._unwanted_bytes = 0  # bytes that came after the answer, or after a refusal
        self._head_bytes = 0  # the length of a head that is too long; else 0
        self._is_refused = False  # whether the rest of the connection is dropped
        self._answered_body_bytes = 0  # bytes that came of bodies whose answers had begun
        self._close_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers of the connection."""
        self._end_head()
        self._stop_waiting_for_reader()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Return whether to keep the connection, although the client will send no more.

        A client may wait for the answers to its requests. The connection ends with the last answer.
        """
        if not self._is_between or self.cycle is None or self.cycle.response_complete:
            return None
        self._end_after_answers()
        return True

    def _end_after_answers(self) -> None:
        last = self.pipeline[0][0] if self.pipeline else self.cycle
        last.keep_alive = False

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser, unless too many came without the end of a head or a body.

        If they leave a head unfinished, start a timer for the rest of it. Most requests come in one
        piece, and need no timer.
        """
        if self._is_refused:
            self._count_unwanted(len(data))
            return
        if (
            self._is_between
            and self.whole_request is not None
            and self._answer_whole(self.whole_request, data)
        ):
            return
        if self._bare_bytes > self.limits.head_bytes_max:
            self._head_bytes = self._bare_bytes
            self.send_400_response("")
            return
        is_first = self._is_between
        n_begun = self._n_begun
        self._bare_bytes += len(data)
        self._parse(data)
        if (
            is_first
            and self._is_between
            and self._n_begun == n_begun + 1
            and self.whole_request is not None
        ):
            self.whole_request.learn(data, cast(Scope, self.scope))
        if self._head_timer is None and (self._in_head or self._is_idle):
            self._close_later()

    def _parse(self, data: bytes) -> None:
        """Pass bytes to the parser, and answer 400 to what is not HTTP.

        The parser stops after a head that asks for another protocol, and takes the bytes that
        follow for that protocol's. The server offers none: so the head is read again without that
        request (RFC 9110, 7.8), and its body is an ordinary one.
        """
        self._unset_keepalive_if_required()
        remainder: bytes | memoryview = data
        try:
            while remainder:
                try:
                    self.parser.feed_data(remainder)
                    return
                except httptools.HttpParserUpgrade as upgrade:
                    remainder = memoryview(remainder)[upgrade.args[0] :]
                    self._read_head_again()
        except httptools.HttpParserError:
            self.send_400_response("")

    def _read_head_again(self) -> None:
        """Parse the head at which the parser stopped, without its request for another protocol.

        Raises HttpParserError for CONNECT: the bytes after it are for a tunnel, and are no request.
        """
        method = self.parser.get_method()
        version = self.parser.get_http_version().encode()
        if method == b"CONNECT":
            raise httptools.HttpParserError("CONNECT, which asks for a tunnel")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (
            method,
            self.url,
            version,
            b"".join(
                [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            ),
        )
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self.parser.feed_data(head)

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head = True
        self._is_between = False
        self._n_begun += 1
        self._unwanted_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; ignore a trailer."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the timer of the head.

        Raises ValueError, for the parser, if the head is too long.
        """
        self._end_head()
        n_bytes = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if n_bytes > self.limits.head_bytes_max:
            self._head_bytes = n_bytes
            raise ValueError(n_bytes)
        if self.parser.should_upgrade():
            return  # the head is read again
        super().on_headers_complete()
        self._in_head = False

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body.

        After the answer, count it instead, and close the connection beyond the limit.
        """
        self._bare_bytes = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._count_unwanted(len(body))
        elif self.cycle is self._current and self.cycle.response_started:
            self._answered_body_bytes += len(body)

    def on_message_complete(self) -> None:
        """Stop the timer, and tell the app that the whole request has been received."""
        if self.parser.should_upgrade():
            return  # only the head is complete, and it is read again
        self._end_head()
        super().on_message_complete()
        self._is_between = True
        self.scope["extensions"] = _RECEIVED_EXTENSIONS  # type: ignore[typeddict-item]

    def pause_writing(self) -> None:
        """Wait for the client to read its answers: see `UnreadAnswers`."""
        super().pause_writing()
        self._unread = UnreadAnswers(
            transport=self.transport,
            limits=self.limits,
            answers=self.answers,
            is_answered=self._is_answered,
            n_received=lambda: self._answered_body_bytes,
            on_abort=self.on_abort,
        )

    def resume_writing(self) -> None:
        """Stop waiting, because the client has read, and begin the next request that waited."""
        super().resume_writing()
        self._stop_waiting_for_reader()
        if self.pipeline and self._is_answered() and not self.transport.is_closing():
            self._start_asgi_task(*self.pipeline.pop())

    def _is_answered(self) -> bool:
        """Return whether the request that was begun last is answered, even if not read."""
        return self._current is None or self._current.response_complete

    def _stop_waiting_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.stop()
            self._unread = None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if no request came in the time allowed.

        Whole requests, which `_answer_whole` answers, count too, although uvicorn does not see
        them.
        """
        seconds_left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if seconds_left > 0:
            self._close_idle_after(seconds_left)
        else:
            super().timeout_keep_alive_handler()

    def _answer_whole(self, answerer: WholeRequests, data: bytes) -> bool:
        """Answer data that are one whole request; return whether that was done.

        Called only between requests: the parser has not seen a part of another one.
        """
        cycle = self.cycle
        if (
            (cycle is not None and not cycle.response_complete)
            or self.flow.write_paused
            or self.transport.is_closing()
        ):
            return False
        answer = answerer.answer(data, self._default_header_bytes())
        if answer is None:
            return False
        if self._head_timer is not None:
            self._end_head()
        self._answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._close_idle_after(self.timeout_keep_alive)
        self.transport.write(answer)
        self.server_state.total_requests += 1
        return True

    def _default_header_bytes(self) -> bytes:
        headers = self.server_state.default_headers
        if (
            headers is not self._default_headers
        ):  # uvicorn makes a new list each second, for the date
            self._default_headers = headers
            self._headers_joined = b"".join([b"%b: %b\r\n" % header for header in headers])
        return self._headers_joined

    def _close_idle_after(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    @property
    def _is_idle(self) -> bool:
        """Return whether no request is being answered, and no timer of uvicorn waits for one."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self.pipeline
            and self.timeout_keep_alive_task is None
        )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self.flow.write_paused:  # `resume_writing` begins the request
            self.flow.pause_reading()
            self.pipeline.append((cycle, app))
            return
        self._current = cycle
        cycle.transport = JoinedWrites(cycle)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """End the connection: with a problem, or after the answers to earlier requests.

        The rest of what the client sends is read for a while and dropped: a connection that is
        closed with unread bytes is reset, and the client might never see the answer.
        """
        cycle = self.cycle
        is_in_body = not self._in_head and not self._is_between
        self._end_head()
        self._is_refused = True
        if cycle is not None and not cycle.response_complete:
            if not is_in_body:
                self._end_after_answers()
                return
            if self.pipeline or cycle.response_started:
                self.transport.close()
                return
        status, headers, body = self.unparsed(
            b"" if self._is_between else self.url, self._head_bytes, sys.exception()
        )
        end = b"connection: close\r\n\r\n" + (b"" if self.parser.get_method() == b"HEAD" else body)
        self.transport.write(STATUS_LINE[status] + self._default_header_bytes() + headers + end)
        self.transport.write_eof()
        self._close_later()

    def _count_unwanted(self, n_bytes: int) -> None:
        """Count bytes that come after the answer, and close the connection beyond the limit."""
        self._unwanted_bytes += n_bytes
        if self._head_timer is None:
            self._close_later()
        if self._unwanted_bytes > self.limits.body_bytes_max:
            self.transport.close()

    def _close_later(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.body_seconds_max, self.transport.close)

    def _end_head(self) -> None:
        self._bare_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def bounded_protocol(
    limits: Limits,
    answers: SlowClients,
    unparsed: RefuseUnparsed,
    whole_request: WholeRequests | None,
    on_abort: Callable[[], None],
) -> type[Any]:
    """Return the protocol class with these limits; uvicorn makes its instances.

    answers        clients that have not read their answers
    unparsed       makes the answers to requests that cannot be parsed
    whole_request  answers whole requests from their bytes; None: routes answer all requests
    on_abort       called when a connection was ended because its client did not read
    """
    return type(
        "BoundedProtocol",
        (BoundedProtocol,),
        {
            "limits": limits,
            "answers": answers,
            "unparsed": staticmethod(unparsed),
            "whole_request": whole_request,
            "on_abort": staticmethod(on_abort),
        },
    )
