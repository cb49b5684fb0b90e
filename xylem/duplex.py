"""A request whose answer is read while its body is sent, on one connection of HTTP/1.1.

httpx sends the whole body before it reads, so that with a long batch both sides would wait for each other.
This is asyncio for the bytes and h11, which httpx uses too, for the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import h11

from xylem.errors import BadAnswer, ProblemError, fault_of_stream
from xylem.steps import Failure, Reply
from xylem.target import Target
from xylem.window import Window

LINE_BYTES_MAX = 64 << 20
"""Of a line of the answer."""

_READ_BYTES = 1 << 18
_CONTINUE_SECONDS = 5.0
_PROBLEM_BYTES_MAX = 1 << 20


class Broken(Exception):
    """The exchange ended too early; `found` is another answer than 200, none, or a fault told in it."""

    def __init__(self, found: Reply | Failure | ProblemError) -> None:
        super().__init__()
        self.found = found


class Duplex:
    """One connection: the lines of a window go out while answers come in.

    seconds_max  to connect, for the head, and for each answer that is waited for
    """

    def __init__(self, target: Target, path: str, window: Window, seconds_max: float) -> None:
        self._target = target
        self._path = f"{target.prefix}{path}"
        self._window = window
        self._seconds_max = seconds_max
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 16)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self.headers: Mapping[str, str] = {}
        """Of the answer, once its head is there."""

    async def answers(self) -> AsyncGenerator[list[bytes], None]:
        """Yield the answers to the lines of the window, in blocks. Raises Broken, BadAnswer."""
        sender: asyncio.Task[None] | None = None
        try:
            await self._connect()
            await self._ask()
            head = await self._head(min(_CONTINUE_SECONDS, self._seconds_max), may_lack=True)
            sender = asyncio.create_task(self._send())
            await self._check(head or await self._head(self._seconds_max, may_lack=False))
            async for lines in self._lines():
                fault = fault_of_stream(lines[-1])
                answers = lines[:-1] if fault else lines
                if len(answers) > self._window.n_sent:
                    raise BadAnswer(f"expected {self._window.n_sent} answers at most, found {len(answers)}")
                self._window.answered(len(answers))
                if answers:
                    yield answers
                if fault:
                    raise Broken(fault)
            if not self._window.is_done:
                raise Broken(Failure("expected an answer to each line, found the end of the answers"))
        finally:
            await self._end(sender)

    async def _connect(self) -> None:
        target = self._target
        try:
            async with asyncio.timeout(self._seconds_max):
                self._reader, self._writer = await asyncio.open_connection(
                    target.host, target.port, ssl=target.tls, limit=_READ_BYTES
                )
        except TimeoutError:
            raise Broken(Failure("expected a connection in time, found none", was_sent=False)) from None
        except OSError as error:
            raise Broken(Failure(f"expected a server, found: {error}", was_sent=False)) from None

    async def _ask(self) -> None:
        """Send the head. The body waits for 100 Continue: a request that is refused is so before its body."""
        headers = {
            "host": self._target.host_header,
            **self._target.authorization,
            "content-type": "application/x-ndjson",
            "transfer-encoding": "chunked",
            "expect": "100-continue",
            "user-agent": "xylem-client",
        }
        try:
            await self._put(h11.Request(method="POST", target=self._path, headers=list(headers.items())))
        except OSError as error:
            raise Broken(Failure(f"expected an answer, found: {error}")) from None

    async def _head(self, seconds: float, *, may_lack: bool) -> h11.Response | None:
        """Return the head of the answer. Raises Broken.

        may_lack  return None if the server asks for the body first, or says nothing so long
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                event = await self._event(deadline)
            except TimeoutError:
                if may_lack:
                    return None
                raise Broken(Failure("expected an answer in time, found none")) from None
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise Broken(Failure("expected an answer, found the end of the connection"))
            if may_lack and event.status_code == 100:
                return None

    async def _check(self, head: h11.Response | None) -> None:
        """Go on after an answer of 200; else raise Broken with all of it."""
        assert head is not None
        self.headers = {bytes(name).decode(): bytes(value).decode("latin-1") for name, value in head.headers}
        if head.status_code == 200:
            return
        body = b""
        deadline = time.monotonic() + self._seconds_max
        with contextlib.suppress(TimeoutError, Broken):
            while (
                isinstance(event := await self._event(deadline), h11.Data) and len(body) < _PROBLEM_BYTES_MAX
            ):
                body += event.data
        raise Broken(Reply(head.status_code, self.headers, body))

    async def _lines(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines of the answer, as they come. Raises Broken where it is cut off."""
        parts: list[bytes] = []
        n_rest = 0
        while True:
            try:
                event = await self._event(None)
            except TimeoutError:
                raise Broken(
                    Failure(f"expected an answer within {self._seconds_max:g} s, found none")
                ) from None
            if not isinstance(event, h11.Data):
                break
            first, *whole = bytes(event.data).split(b"\n")
            parts.append(first)
            n_rest += len(first)
            if n_rest > LINE_BYTES_MAX:
                raise BadAnswer(f"expected lines of at most {LINE_BYTES_MAX} bytes, found a longer one")
            if whole:
                lines = [b"".join(parts), *whole[:-1]]
                parts, n_rest = [whole[-1]], len(whole[-1])
                yield lines
        if n_rest:
            raise Broken(Failure("expected whole lines, found the last one cut off"))

    async def _event(self, deadline: float | None) -> h11.Event | None:
        """Return what comes next; None: nothing more. Raises Broken, TimeoutError.

        deadline  of time.monotonic; None: as long as no line that was sent waits for its answer too long
        """
        begun = time.monotonic()
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                raise Broken(Failure(f"expected an answer of HTTP, found: {error}")) from None
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                return None
            if deadline is not None:
                seconds = deadline - time.monotonic()
            elif self._window.n_sent:
                since = max(begun, self._window.awaited_since)
                seconds = since + self._seconds_max - time.monotonic()
            else:
                seconds = self._seconds_max
            try:
                async with asyncio.timeout(seconds):
                    part = await self._reader.read(_READ_BYTES)
            except TimeoutError:
                if deadline is not None or seconds <= 0:
                    raise
                continue
            except OSError as error:
                raise Broken(Failure(f"expected an answer, found: {error}")) from None
            self._protocol.receive_data(part)

    async def _send(self) -> None:
        """Send the lines of the window until no more come. Of a connection that breaks the reader tells."""
        with contextlib.suppress(OSError, h11.LocalProtocolError):
            while (chunk := await self._window.take()) is not None:
                await self._put(h11.Data(data=chunk))
            await self._put(h11.EndOfMessage())

    async def _put(self, event: h11.Event) -> None:
        data = self._protocol.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def _end(self, sender: asyncio.Task[None] | None) -> None:
        """Stop sending, and close the connection."""
        if sender is not None:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sender
        if hasattr(self, "_writer"):
            self._writer.transport.abort() if not self._window.is_done else self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._writer.wait_closed()
