"""The functions in which the two clients differ: to wait, take turns, read a file, iterate.

`python -m tests.unasync` makes the blocking client from the asynchronous one: it removes `Async` or
`async_` from the beginning of each name here.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias, TypeVar

T = TypeVar("T")

# The types of iterables that callers may pass.
Source: TypeAlias = Iterable[T]
AsyncSource: TypeAlias = Iterable[T] | AsyncIterable[T]

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
