"""Answers of a stream that its client does not read yet: a bounded temporary file takes them.

Clients such as `requests` and `httpx` read nothing before they have sent all. If the server stopped
reading their lines meanwhile, as it does without room in the file, both would wait for each other.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

from starlette.types import Send

from xylem.base import log

# A stream that waits this long for its client to read has stalled: then the file is used.
#
# A client that reads, but more slowly than the server answers, makes the server wait instead.
STALLED_SECONDS = 1.0

_PIECE_BYTES = 1 << 20  # read from the file at once


class Spool:
    """Sends the answers of one stream in their order; those of a stalled stream through a file.

    The file has no name: the system frees it with the process, however that ends. A disk that is
    full is like a file that is full. Call `write` in one task, and `close` at the end.

    n_bytes      the size of the file; it becomes 0 when the client has read everything
    sends_since  since when an answer is being sent; infinity while nothing is sent
    """

    def __init__(self, send: Send, bytes_max: int) -> None:
        self.n_bytes = 0
        self.sends_since = math.inf
        self._send = send
        self._bytes_max = bytes_max
        self._file: Any = None
        self._offset = 0  # where the bytes of the file begin that are not sent yet
        self._lock = asyncio.Lock()
        self._sending: asyncio.Task[None] | None = None
        self._file_call: asyncio.Future[Any] | None = None

    async def write(self, lines: bytes) -> None:
        """Send an answer, or append it to the file if the stream has stalled and there is room."""
        async with self._lock:
            is_stalled = self._sending is not None and not self._sending.done()
            if is_stalled and await self._in_thread(self._append, lines):
                self.n_bytes += len(lines)
                return
        await self.flush()
        self._sending = asyncio.create_task(self._send_all(lines))
        await asyncio.wait((self._sending,), timeout=STALLED_SECONDS)

    async def flush(self) -> None:
        """Wait until all answers are sent."""
        if self._sending is not None:
            await self._sending

    def close(self) -> None:
        """Stop sending, and close the file as soon as no thread uses it."""
        if self._sending is not None:
            self._sending.cancel()
        if self._file_call is not None:
            self._file_call.add_done_callback(lambda _: self._file and self._file.close())

    async def _send_all(self, lines: bytes) -> None:
        """Send an answer, and those that are appended to the file meanwhile."""
        while lines:
            self.sends_since = time.monotonic()
            # if the client does not read, this waits until the protocol gives it up
            await self._send({"type": "http.response.body", "body": lines, "more_body": True})
            self.sends_since = math.inf
            async with self._lock:
                lines = await self._in_thread(self._read) if self.n_bytes else b""

    async def _in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a call in a thread; if that is cancelled, the thread goes on."""
        self._file_call = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
        return await asyncio.shield(self._file_call)

    def _append(self, lines: bytes) -> bool:
        """Write an answer at the end of the file; return whether there was room."""
        if self.n_bytes + len(lines) > self._bytes_max:
            return False
        try:
            if self._file is None:
                self._file = TemporaryFile(buffering=0)  # noqa: SIM115 -- `close` closes it
            return os.pwrite(self._file.fileno(), lines, self.n_bytes) == len(lines)
        except OSError as error:
            log(logging.WARNING, "answers_not_spooled", error=error)
            return False

    def _read(self) -> bytes:
        """Return the next bytes of the file; empty the file after the last ones."""
        lines = os.pread(
            self._file.fileno(), min(_PIECE_BYTES, self.n_bytes - self._offset), self._offset
        )
        self._offset += len(lines)
        if self._offset == self.n_bytes:
            os.ftruncate(self._file.fileno(), 0)
            self._offset = self.n_bytes = 0
        return lines
