"""What the two halves of the client do differently: wait, take
turns, read a file, go through a source.

The blocking half is made of the asynchronous one by `python -m tests.unasync`: each name here that
begins with `Async` or `async_` stands there without it.
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
Semaphore = threading.Semaphore
AsyncSemaphore = asyncio.Semaphore
iterate = iter


async def async_iterate(items: AsyncSource[T]) -> AsyncIterator[T]:
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
