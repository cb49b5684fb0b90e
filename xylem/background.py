"""A batch for callers that block: a thread with an event loop sends and reads, another asks the iterator."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")

_LINES_AHEAD = 1024
_BLOCKS_AHEAD = 4

Run = Callable[[AsyncIterator[bytes]], AsyncGenerator[list[bytes], None]]
"""Makes the answers to lines."""


def items(lines: Iterable[bytes], run: Run, read: Callable[[bytes], T]) -> Generator[T, None, None]:
    """Yield the answers to lines, read by `read`. Closing it gives up the lines that have no answer."""
    with contextlib.closing(blocks(lines, run)) as found:
        for block in found:
            yield from map(read, block)


class _End:
    """The end of the answers, with what went wrong."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def blocks(lines: Iterable[bytes], run: Run) -> Generator[list[bytes], None, None]:
    """Yield the answers to lines in blocks, of which a few are held ready.

    `lines` is asked by a thread of its own. If that waits for a line at the end, it is left to end by itself.
    """
    found: queue.SimpleQueue[list[bytes] | _End] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    room = asyncio.Semaphore(_BLOCKS_AHEAD)

    async def main() -> None:
        error: BaseException | None = None
        answers = run(_asked(lines))
        try:
            async for block in answers:
                await room.acquire()
                found.put(block)
        except BaseException as fault:
            error = fault
        finally:
            await answers.aclose()
            found.put(_End(error))

    task = loop.create_task(main())
    thread = threading.Thread(target=_run_until, args=(loop, task), name="xylem-batch", daemon=True)
    thread.start()
    try:
        while not isinstance(block := found.get(), _End):
            loop.call_soon_threadsafe(room.release)
            yield block
        if block.error is not None:
            raise block.error
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def _run_until(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Run the loop of the thread until the task and all generators have ended."""
    try:
        loop.run_until_complete(asyncio.wait([task]))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())


class _Ahead:
    """Lines that a thread has taken of an iterator, a bounded number."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ready = asyncio.Event()
        self._loop = loop
        self._lines: list[bytes] = []
        self._end: _End | None = None
        self._changed = threading.Condition()
        self._is_closed = False

    def read(self, lines: Iterable[bytes]) -> None:
        """Take all lines: what the thread does."""
        error: BaseException | None = None
        try:
            for line in lines:
                with self._changed:
                    while len(self._lines) >= _LINES_AHEAD and not self._is_closed:
                        self._changed.wait()
                    if self._is_closed:
                        return
                    self._lines.append(line)
                    if len(self._lines) == 1:
                        self._loop.call_soon_threadsafe(self.ready.set)
        except BaseException as fault:
            error = fault
        with self._changed:
            self._end = _End(error)
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self.ready.set)

    def take(self) -> tuple[list[bytes], _End | None]:
        """Return the lines that are there, and the end if they are the last."""
        with self._changed:
            lines, self._lines = self._lines, []
            self.ready.clear()
            self._changed.notify()
            return lines, self._end

    def close(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()


async def _asked(lines: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of an iterator that blocks, asked by a thread."""
    ahead = _Ahead(asyncio.get_running_loop())
    threading.Thread(target=ahead.read, args=(lines,), name="xylem-instances", daemon=True).start()
    try:
        end: _End | None = None
        while end is None:
            await ahead.ready.wait()
            taken, end = ahead.take()
            for line in taken:
                yield line
        if end.error is not None:
            raise end.error
    finally:
        ahead.close()
