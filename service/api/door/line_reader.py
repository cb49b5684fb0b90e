"""The lines of a streamed body: read ahead as far as a limit, taken in blocks."""

from __future__ import annotations

import asyncio
import codecs
import time

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from service.api.door.problems import BodyTimeout
from service.base.errors import BadInput
from service.base.settings import Limits
from service.serving.lines import LineBlock


class LineReader:
    """Splits a streamed body into lines while earlier ones are worked on; drops a byte order mark in front.

    It holds at most `block_bytes_max` bytes and what one more message brings. Ask for `take` in one task and
    run `read` in another.
    """

    def __init__(self, receive: Receive, limits: Limits, rows_max: int) -> None:
        self._receive = receive
        self._limits = limits
        self._rows_max = rows_max
        self._waiting: list[bytes | None] = []
        self._bytes = 0
        self._taken = 0
        self._rest = bytearray()
        self._skipping = False
        self._begun = False
        self._ended = False
        self._changed = asyncio.Condition()
        self.fault: BadInput | None = None
        """What ended the body before its end."""

    async def read(self) -> None:
        """Read the body to its end.

        Raises ClientDisconnect. A body that brings too little in the time that it is waited for, which is not
        all the time, ends with a `fault`.
        """
        more = True
        n_bytes, seconds = 0, 0.0
        while more:
            started = time.monotonic()
            try:
                async with asyncio.timeout(self._limits.body_seconds_max - seconds):
                    message = await self._receive()
            except TimeoutError:
                self.fault = self._too_slow(n_bytes)
                break
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            chunk = message.get("body", b"")
            n_bytes, seconds = n_bytes + len(chunk), seconds + time.monotonic() - started
            if n_bytes >= self._limits.batch_bytes_min:
                n_bytes, seconds = 0, 0.0
            self._split(chunk)
            if not more and (self._rest or self._skipping):
                self._end_line()
            async with self._changed:
                self._changed.notify_all()
                await self._changed.wait_for(self._has_room)
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def take(self) -> LineBlock:
        """Return the lines that wait, as many as a block may have; wait for one; none: the body has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting or self._ended)
            lines = self._waiting[: self._rows_max]
            del self._waiting[: self._rows_max]
            self._bytes -= sum(map(_size, lines))
            self._changed.notify_all()
        block = LineBlock(self._taken + 1, lines)
        self._taken += len(lines)
        return block

    def _too_slow(self, n_bytes: int) -> BodyTimeout:
        least, seconds = self._limits.batch_bytes_min, self._limits.body_seconds_max
        return BodyTimeout(
            f"expected {least} bytes of the body (limit batch_bytes_min), or its end, within {seconds:g} "
            f"seconds, found {n_bytes}"
        )

    def _has_room(self) -> bool:
        return self._bytes < self._limits.block_bytes_max and len(self._waiting) < self._rows_max

    def _split(self, chunk: bytes) -> None:
        """Append the lines that `chunk` ends; keep what it begins."""
        first, *whole = chunk.split(b"\n")
        self._keep(first)
        if not whole:
            return
        self._end_line()
        rest = whole.pop()
        most = self._limits.line_bytes_max
        lines = [line if len(line) <= most else None for line in whole]
        self._waiting += lines
        self._bytes += sum(map(_size, lines))
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        """Add a part to the line that is being read, unless that is too long already."""
        if self._skipping:
            return
        if len(self._rest) + len(part) > self._limits.line_bytes_max:
            self._skipping = True
            self._rest.clear()
        else:
            self._rest += part

    def _end_line(self) -> None:
        line = None if self._skipping else bytes(self._rest)
        if not self._begun:
            self._begun = True
            line = line and line.removeprefix(codecs.BOM_UTF8)
        self._waiting.append(line)
        self._bytes += _size(line)
        self._rest.clear()
        self._skipping = False


def _size(line: bytes | None) -> int:
    return len(line or b"") + 1
