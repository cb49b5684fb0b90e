"""What a thread writes comes out in order, and a reader that goes at any moment leaves no thread behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.types import Message

from service.api.door.responses import PIECES_MAX, ClosingStream, ThreadPipe

Write = Callable[[bytes], None]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def write_numbers(n: int, write: Write) -> None:
    for number in range(n):
        write(b"%d," % number)


async def read_all(threads: ThreadPoolExecutor, n: int) -> bytes:
    pipe = ThreadPipe()
    try:
        return await pipe.start(threads, write_numbers, n) + b"".join([piece async for piece in pipe])
    finally:
        pipe.close()


@pytest.mark.parametrize("n", [0, 1, PIECES_MAX, PIECES_MAX + 1, 500])
def test_all_pieces_come_in_order(threads: ThreadPoolExecutor, n: int) -> None:
    expected = b"".join(b"%d," % number for number in range(n))
    assert asyncio.run(read_all(threads, n)) == expected


@pytest.mark.parametrize("n", [0, 1, PIECES_MAX + 3])
def test_what_the_function_raises_comes_after_its_pieces(threads: ThreadPoolExecutor, n: int) -> None:
    def fail(write: Write) -> None:
        write_numbers(n, write)
        raise LookupError("no more")

    async def main() -> None:
        pipe, found = ThreadPipe(), 0
        with pytest.raises(LookupError):
            await pipe.start(threads, fail)
            found += 1
            async for _ in pipe:
                found += 1
        assert found == n

    asyncio.run(main())


def test_a_reader_that_goes_at_any_moment_frees_the_thread(threads: ThreadPoolExecutor, seed: int) -> None:
    rng = random.Random(seed)

    async def leave_early() -> None:
        pipe = ThreadPipe()
        reading = asyncio.create_task(pipe.start(threads, write_numbers, 1000))
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
            for _ in range(rng.randrange(20)):
                await anext(pipe)
        pipe.close()

    async def main() -> None:
        for _ in range(200):
            await leave_early()
        assert await read_all(threads, 3) == b"0,1,2,"

    asyncio.run(main())


def test_a_loop_that_ends_frees_the_thread(threads: ThreadPoolExecutor) -> None:
    async def main() -> None:
        await ThreadPipe().start(threads, write_numbers, 1000)

    asyncio.run(main())
    assert threads.submit(lambda: 1).result() == 1


def test_an_answer_says_that_it_is_over_also_when_nobody_asks_for_it() -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"never sent"

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def main() -> None:
        ended = []

        async def send(message: Message) -> None:
            await asyncio.sleep(0)

        answer = ClosingStream(content(), lambda: ended.append(True), {}, "text/plain")
        await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, gone, send)
        assert ended == [True]

    asyncio.run(main())
