"""Threads that work for requests: so many at once, what they write in order, none left behind."""

import asyncio
import contextlib
import gc
import json
import random
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from starlette.types import Message

from service.api.door.responses import PIECES_MAX, ClosingStream, ThreadPipe
from service.api.door.streams import Streams
from service.api.door.work import WorkPool
from service.base.errors import DatabaseUnavailable, Overloaded, TimedOut
from service.base.settings import Limits
from service.serving.lines import Answered, LineBlock
from service.serving.parse import LONG_BYTES


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def write_numbers(n: int, pipe: ThreadPipe) -> None:
    for number in range(n):
        pipe.write(b"%d," % number)


async def read_all(threads: ThreadPoolExecutor, n: int) -> bytes:
    pipe = ThreadPipe()
    try:
        return await pipe.start(threads, partial(write_numbers, n)) + b"".join(
            [piece async for piece in pipe]
        )
    finally:
        pipe.close()


@pytest.mark.parametrize("n", [0, 1, PIECES_MAX, PIECES_MAX + 1, 500])
def test_all_pieces_come_in_order(threads: ThreadPoolExecutor, n: int) -> None:
    expected = b"".join(b"%d," % number for number in range(n))
    assert asyncio.run(read_all(threads, n)) == expected


@pytest.mark.parametrize("n", [0, 1, PIECES_MAX + 3])
async def test_what_the_function_raises_comes_after_its_pieces(threads: ThreadPoolExecutor, n: int) -> None:
    def fail(pipe: ThreadPipe) -> None:
        write_numbers(n, pipe)
        raise LookupError("no more")

    pipe, found = ThreadPipe(), 0
    with pytest.raises(LookupError):
        await pipe.start(threads, fail)
        found += 1
        async for _ in pipe:
            found += 1
    assert found == n


async def test_a_reader_that_goes_at_any_moment_frees_the_thread(
    threads: ThreadPoolExecutor, seed: int
) -> None:
    rng = random.Random(seed)

    async def leave_early() -> None:
        pipe = ThreadPipe()
        reading = asyncio.create_task(pipe.start(threads, partial(write_numbers, 1000)))
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
            for _ in range(rng.randrange(20)):
                await anext(pipe)
        pipe.close()

    for _ in range(200):
        await leave_early()
    assert await read_all(threads, 3) == b"0,1,2,"


def test_a_loop_that_ends_frees_the_thread(threads: ThreadPoolExecutor) -> None:
    async def main() -> None:
        await ThreadPipe().start(threads, partial(write_numbers, 1000))

    asyncio.run(main())
    assert threads.submit(lambda: 1).result() == 1


async def test_an_answer_says_that_it_is_over_also_when_nobody_asks_for_it() -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"never sent"

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    ended = []

    async def send(message: Message) -> None:
        await asyncio.sleep(0)

    answer = ClosingStream(content(), lambda: ended.append(True), {}, "text/plain")
    await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, gone, send)
    assert ended == [True]


BLOCK_SECONDS = 0.01


def test_a_failure_is_told_once_however_many_blocks_are_under_way() -> None:
    """The client is told, the log too, and no task is left behind whose failure asyncio complains about."""
    left: list[Any] = []
    sent: list[Any] = []
    begun: list[int] = []

    async def fail() -> Answered:
        await asyncio.sleep(BLOCK_SECONDS)
        raise DatabaseUnavailable.confidential("db.internal does not answer")

    async def begin(block: LineBlock) -> asyncio.Task[Answered]:
        begun.append(block.first)
        return asyncio.create_task(fail())

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"{}\n" * 8, "more_body": len(begun) < 3}

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))
        answer = Streams(Limits()).answer(begin, lambda _: None, 2, {})
        await answer({}, receive, send)
        await asyncio.sleep(5 * BLOCK_SECONDS)
        gc.collect()

    asyncio.run(main())
    assert len(begun) > 1
    assert not left
    error = json.loads(sent[-1]["body"])["error"]
    assert error["code"] == "database-unavailable"
    assert "db.internal" not in error["detail"]


async def test_it_returns_and_raises_what_the_call_does() -> None:
    pool = WorkPool(1, 1, 300.0)
    assert await pool.run(max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        await pool.run(divmod, 1, 0)
    assert pool.pending == 0
    pool.close()


async def test_a_long_body_is_read_in_a_thread() -> None:
    def thread_of(body: bytes, more: str) -> tuple[str, int, str]:
        return threading.current_thread().name, len(body), more

    pool = WorkPool(1, 1, 300.0)
    here = threading.current_thread().name
    assert await pool.read(thread_of, bytes(LONG_BYTES), "more") == (here, LONG_BYTES, "more")
    name, n_bytes, more = await pool.read(thread_of, bytes(LONG_BYTES + 1), "more")
    assert name.startswith("xylem-work")
    assert (n_bytes, more) == (LONG_BYTES + 1, "more")
    pool.close()


async def test_the_queue_at_its_limit_and_one_more() -> None:
    gate = threading.Event()
    pool = WorkPool(2, 3, 300.0)
    calls = [asyncio.create_task(pool.run(gate.wait)) for _ in range(5)]
    await asyncio.sleep(0)
    assert pool.pending == 5
    with pytest.raises(Overloaded):
        await pool.run(gate.wait)
    gate.set()
    assert await asyncio.gather(*calls) == [True] * 5
    assert pool.pending == 0
    pool.close()


async def test_a_call_that_is_late_holds_its_thread_and_its_place() -> None:
    begun, gate = threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        gate.wait()

    pool = WorkPool(1, 1, 0.02)
    while not begun.is_set():  # a thread may be slow to begin: the call is then one that waits
        with pytest.raises(TimedOut):
            await pool.run(held)
    pending = [pool.pending]
    with pytest.raises(TimedOut):
        await pool.run(gate.wait)
    pending.append(pool.pending)
    gate.set()
    assert pending == [1, 1]  # the one that waited was dropped
    while pool.pending:
        await asyncio.sleep(0.001)
    pool.close()
