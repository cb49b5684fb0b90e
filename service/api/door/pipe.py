"""A thread that writes, an event loop that reads: in pieces, with few of them in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Self

PIECES_MAX = 4
"""Pieces that wait to be read."""

_LOOK_SECONDS = 1.0
"""A write that waits looks so often whether the event loop has ended."""


class _Gone(Exception):
    """Nobody reads any more: ends the thread's work."""


class ThreadPipe:
    """What a blocking function writes, as an asynchronous iterator of bytes. One use; event loop only.

    Who starts it closes it. The function's next write raises then, and so ends it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(PIECES_MAX)
        self._gone = threading.Event()
        self._work: Future[None] | None = None
        self._is_over = False

    async def start(self, threads: Executor, function: Callable[..., object], *arguments: object) -> bytes:
        """Call function(*arguments, write) in a thread; return the first piece, or raise what it raises.

        A start that fails, or is cancelled, closes the pipe.
        """
        self._work = threads.submit(self._run, function, arguments)
        try:
            return await self._next() or b""
        except BaseException:
            self.close()
            raise

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece; raise what the function raises, once it has."""
        piece = await self._next()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """Let the function end; wait for nothing. Twice is as once."""
        self._gone.set()
        self._room.release()  # for a write that waits
        if self._work is not None:
            self._work.cancel()

    async def _next(self) -> bytes | None:
        """Return the next piece, None once the function has returned."""
        if self._is_over or self._work is None:
            return None
        piece = await self._pieces.get()
        if piece is None:
            self._is_over = True
            await asyncio.wrap_future(self._work)
            return None
        self._room.release()
        return piece

    def _run(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        try:
            function(*arguments, self._write)
        except _Gone:
            pass
        finally:
            self._hand_over(None)

    def _write(self, piece: Any) -> None:
        """Hand a piece over. Blocks while enough of them wait; raises _Gone when nobody reads."""
        while not self._room.acquire(timeout=_LOOK_SECONDS):
            if self._loop.is_closed():
                raise _Gone
        if self._gone.is_set():
            raise _Gone
        self._hand_over(bytes(piece))

    def _hand_over(self, piece: bytes | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed
            self._gone.set()
