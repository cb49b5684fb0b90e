"""A thread that writes, an event loop that reads: in pieces, with few of them in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Self

PIECES_MAX = 4
"""Pieces that wait to be read."""


class _Gone(Exception):
    """Nobody reads any more: ends the thread's work."""


class ThreadPipe:
    """What a blocking function writes, as an asynchronous iterator of bytes. One use; event loop only.

    When the reader is closed the function's next write raises, and so ends it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES_MAX)
        self._gone = threading.Event()
        self._work: Future[Any] | None = None

    async def start(self, threads: Executor, function: Callable[..., object], *arguments: object) -> bytes:
        """Call function(*arguments, write) in a thread; return the first piece, or raise what it raises."""
        self._work = threads.submit(self._run, function, arguments)
        piece = await self._pieces.get()
        if piece is None:
            await asyncio.wrap_future(self._work)
            return b""
        return piece

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece; raise what the function raises, once it has."""
        piece = await self._pieces.get()
        if piece is not None:
            return piece
        if self._work is not None:
            await asyncio.wrap_future(self._work)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let the function end; wait for nothing."""
        self._gone.set()
        while not self._pieces.empty():
            self._pieces.get_nowait()

    def _run(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        try:
            function(*arguments, self._write)
        except _Gone:
            return
        finally:
            self._put(None)

    def _write(self, piece: Any) -> None:
        """Hand a piece over. Blocks while enough of them wait; raises _Gone when nobody reads."""
        self._put(bytes(piece))
        if self._gone.is_set():
            raise _Gone

    def _put(self, piece: bytes | None) -> None:
        putting = asyncio.run_coroutine_threadsafe(self._pieces.put(piece), self._loop)
        while not self._gone.is_set():
            try:
                putting.result(timeout=0.5)
                return
            except TimeoutError:
                continue
        putting.cancel()
