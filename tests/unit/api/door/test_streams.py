"""Threads that work for requests: so many at once, what they write in order, none left behind."""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from starlette.responses import Response

from service.api.door.responses import ClosingStream, stream_of
from service.api.door.streams import Streams
from service.api.door.work import WorkPool
from service.base.errors import DatabaseUnavailable, Overloaded, TimedOut
from service.base.settings import Limits
from service.serving.lines import Answered, LineBlock
from service.serving.parse import LONG_BYTES
from tests.wires import Wire

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


@pytest.fixture
def run() -> Iterator[Callable[..., Any]]:
    """What has calls be made in a thread."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda *call: asyncio.get_running_loop().run_in_executor(pool, *call)


async def body_of(answer: Response) -> bytes:
    """Return what is sent of an answer."""
    wire = Wire()
    await answer(SCOPE, wire.receive, wire.send)
    return wire.body


@pytest.mark.parametrize("n", [0, 1, 500])
async def test_all_pieces_come_in_order_from_a_thread(run: Any, n: int) -> None:
    makers = set()

    def pieces() -> Iterator[bytes]:
        for number in range(n):
            makers.add(threading.current_thread())
            yield b"%d," % number

    body = await body_of(await stream_of(pieces(), run, "text/plain"))
    assert body == b"".join(b"%d," % number for number in range(n))
    assert threading.main_thread() not in makers


async def test_a_first_piece_that_fails_is_a_refusal_a_later_one_ends_the_answer(run: Any) -> None:
    def pieces(n: int) -> Iterator[bytes]:
        yield from [b"x"] * n
        raise LookupError("no more")

    with pytest.raises(LookupError):
        await stream_of(pieces(0), run, "text/plain")
    for n in (1, 3):
        answer = await stream_of(pieces(n), run, "text/plain")
        with pytest.raises(LookupError):
            await body_of(answer)


async def test_an_answer_says_that_it_is_over_also_when_nobody_asks_for_it() -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"never sent"

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    ended: list[bool] = []
    answer = ClosingStream(content(), lambda: ended.append(True), {}, "text/plain")
    await answer(SCOPE, gone, Wire().send)
    assert ended == [True]


BLOCK_SECONDS = 0.01


def test_a_failure_is_told_once_however_many_blocks_are_under_way() -> None:
    """The client is told, the log too, and no task is left behind whose failure asyncio complains about."""
    left: list[Any] = []
    begun: list[int] = []
    wire = Wire()

    async def fail() -> Answered:
        await asyncio.sleep(BLOCK_SECONDS)
        raise DatabaseUnavailable.confidential("db.internal does not answer")

    async def begin(block: LineBlock) -> asyncio.Task[Answered]:
        begun.append(block.first)
        return asyncio.create_task(fail())

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"{}\n" * 8, "more_body": len(begun) < 3}

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))
        answer = Streams(Limits()).answer(begin, lambda _: None, 2, {})
        await answer({}, receive, wire.send)
        await asyncio.sleep(5 * BLOCK_SECONDS)
        gc.collect()

    asyncio.run(main())
    assert len(begun) > 1
    assert not left
    error = json.loads(wire.sent[-1]["body"])["error"]
    assert error["code"] == "database-unavailable"
    assert "db.internal" not in error["detail"]


async def test_it_returns_and_raises_what_the_call_does() -> None:
    with closing(WorkPool(1, 1, 300.0)) as pool:
        assert await pool.run(max, 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        assert pool.pending == 0


async def test_a_long_body_is_read_in_a_thread() -> None:
    def thread_of(body: bytes, more: str) -> tuple[str, int, str]:
        return threading.current_thread().name, len(body), more

    here = threading.current_thread().name
    with closing(WorkPool(1, 1, 300.0)) as pool:
        assert await pool.read(thread_of, bytes(LONG_BYTES), "more") == (here, LONG_BYTES, "more")
        name, *others = await pool.read(thread_of, bytes(LONG_BYTES + 1), "more")
    assert name.startswith("xylem-work")
    assert others == [LONG_BYTES + 1, "more"]


async def test_the_queue_at_its_limit_and_one_more() -> None:
    gate = threading.Event()
    with closing(WorkPool(2, 3, 300.0)) as pool:
        calls = [asyncio.create_task(pool.run(gate.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        assert pool.pending == 5
        with pytest.raises(Overloaded):
            await pool.run(gate.wait)
        gate.set()
        assert await asyncio.gather(*calls) == [True] * 5
        assert pool.pending == 0


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
