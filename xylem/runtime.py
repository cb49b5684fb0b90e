"""What the two halves of the client do differently: wait, take turns, read a file, go through a source.

The blocking half is made of the asynchronous one by `python -m tests.unasync`: each name here that begins
with `Async` or `async_` stands there without it.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Source: TypeAlias = Iterable[T]
AsyncSource: TypeAlias = Iterable[T] | AsyncIterable[T]
"""What a caller gives items by."""

_CHUNK_BYTES = 1 << 16

sleep = time.sleep
async_sleep = asyncio.sleep
each = iter


async def async_each(items: AsyncSource[T]) -> AsyncIterator[T]:
    """Yield the items of a source."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def file_parts(path: Path) -> Iterator[bytes]:
    """Yield the content of a file."""
    with path.open("rb") as file:
        while part := file.read(_CHUNK_BYTES):
            yield part


async def async_file_parts(path: Path) -> AsyncIterator[bytes]:
    """Yield the content of a file, read by a thread."""
    with path.open("rb") as file:
        while part := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield part


class Slots:
    """So many may be at work at once."""

    def __init__(self, n: int) -> None:
        self._free = threading.Semaphore(n)

    def take(self, seconds: float) -> None:
        """Wait for a free one. Raises TimeoutError."""
        if not self._free.acquire(timeout=seconds):
            raise TimeoutError

    def give(self) -> None:
        """Have one be free again."""
        self._free.release()


class AsyncSlots:
    """So many may be at work at once."""

    def __init__(self, n: int) -> None:
        self._free = asyncio.Semaphore(n)

    async def take(self, seconds: float) -> None:
        """Wait for a free one. Raises TimeoutError."""
        if not self._free.locked():
            await self._free.acquire()
            return
        async with asyncio.timeout(seconds):
            await self._free.acquire()

    def give(self) -> None:
        """Have one be free again."""
        self._free.release()
