"""Lines of a body that come as a stream, and threads that work for
requests: in order, bounded, none left.
"""

import asyncio
import codecs
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from tests.helpers.clocks import LeapingClock
from tests.helpers.wires import Wire

from xylem.api.door import admission
from xylem.api.door.problems import BodyTimeout
from xylem.api.door.responses import ClosingStream, stream_of
from xylem.api.door.streams import LineReader, Streams
from xylem.api.door.work import WorkPool
from xylem.base.errors import DatabaseUnavailable, Overloaded, TimedOut
from xylem.base.settings import Limits
from xylem.serving.batches.lines import Answered, LineBlock
from xylem.serving.parse import LONG_BYTES


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeapingClock:
    """The reader's clock."""
    clock = LeapingClock()
    monkeypatch.setattr(admission, "time", clock)
    return clock


def limited(**limits: Any) -> Limits:
    return Limits().model_copy(update=limits)


def read_to_the_end(clock: LeapingClock, wire: Wire, **limits: Any) -> LineReader:
    """Return a reader whose body has ended."""

    async def main() -> LineReader:
        reader = LineReader(wire.receive, limited(**limits), 10)
        await reader.read()
        return reader

    return clock.run(main)


@example([b"a\nb"], 2, 20, 4)
@example([b"four\nnext\n"], 2, 20, 4)
@example([b"fives\nnext\n"], 2, 20, 4)
@example([codecs.BOM_UTF8 + b"a\n", codecs.BOM_UTF8 + b"b\n"], 2, 20, 4)
@given(st.lists(st.binary(max_size=6)), st.integers(1, 5), st.integers(1, 20), st.integers(1, 4))
def test_lines_are_those_of_the_body(
    chunks: list[bytes], rows_max: int, block: int, longest: int
) -> None:
    async def read() -> list[LineBlock]:
        limits = limited(line_bytes_max=longest, block_bytes_max=block)
        reader = LineReader(Wire(*chunks, b"").receive, limits, rows_max)
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.read())
            found = [await reader.take()]
            while found[-1].lines:
                found.append(await reader.take())
        assert reader.fault is None
        return found[:-1]

    blocks = asyncio.run(read())
    expected = b"".join(chunks).split(b"\n")
    if not expected[-1]:
        expected.pop()
    kept = [line if len(line) <= longest else None for line in expected]
    found = [line for block in blocks for line in block.lines]
    assert found == [line and line.removeprefix(codecs.BOM_UTF8) for line in kept[:1]] + kept[1:]
    assert all(len(block.lines) <= rows_max for block in blocks)
    firsts = [block.first for block in blocks]
    assert firsts == [1 + sum(len(b.lines) for b in blocks[:i]) for i in range(len(blocks))]


async def test_reading_stops_while_nobody_takes() -> None:
    wire = Wire(*[b"0123456789\n"] * 100)
    task = asyncio.create_task(LineReader(wire.receive, limited(block_bytes_max=100), 1000).read())
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    assert len(wire.messages) == 90  # ten lines of 11 bytes are more than 100


def test_a_stalled_body_ends_with_a_fault(clock: LeapingClock) -> None:
    reader = read_to_the_end(clock, Wire(), body_seconds_max=10)
    assert asyncio.run(reader.take()).lines == []
    assert isinstance(reader.fault, BodyTimeout)
    assert clock.monotonic() == pytest.approx(10)


@pytest.mark.parametrize(("least", "n_left"), [(10, 5), (3, 0), (1, 0)])
def test_a_body_that_trickles_too_slowly_is_cut_off(
    clock: LeapingClock, least: int, n_left: int
) -> None:
    wire = Wire(*[b"x"] * 8, seconds=3)
    fault = read_to_the_end(clock, wire, body_seconds_max=10, batch_bytes_min=least).fault
    assert (fault is not None) == (n_left > 0)
    assert len(wire.messages) == n_left


def test_time_in_which_nobody_takes_is_not_the_clients(clock: LeapingClock) -> None:
    async def main() -> LineReader:
        limits = limited(body_seconds_max=10, batch_bytes_min=1000)
        reader = LineReader(Wire(*[b"\n"] * 6, seconds=1).receive, limits, 1)
        task = asyncio.create_task(reader.read())
        for _ in range(6):
            await asyncio.sleep(5)
            await reader.take()
        await task
        return reader

    assert clock.run(main).fault is None
    assert clock.monotonic() >= 30


async def test_a_client_that_leaves() -> None:
    with pytest.raises(ClientDisconnect):
        await LineReader(Wire(leaves=True).receive, limited(), 10).read()


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


async def test_a_failing_first_piece_refuses_and_a_later_one_cuts_off(run: Any) -> None:
    def pieces(n: int) -> Iterator[bytes]:
        yield from [b"x"] * n
        raise LookupError("no more")

    with pytest.raises(LookupError):
        await stream_of(pieces(0), run, "text/plain")
    for n in (1, 3):
        answer = await stream_of(pieces(n), run, "text/plain")
        with pytest.raises(LookupError):
            await body_of(answer)


async def test_an_answer_reports_its_end_though_nobody_waits_for_it() -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"never sent"

    ended: list[bool] = []
    answer = ClosingStream(content(), lambda: ended.append(True), {}, "text/plain")
    await answer(SCOPE, Wire(leaves=True).receive, Wire().send)
    assert ended == [True]


def test_a_failure_is_raised_once_for_all_blocks_under_way() -> None:
    """The client is told, the log too, and no task is left behind
    whose failure asyncio complains about.
    """
    left: list[Any] = []
    begun: list[int] = []
    wire = Wire()

    async def fail() -> Answered:
        await asyncio.sleep(0.01)
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
        await asyncio.sleep(0.05)
        gc.collect()

    asyncio.run(main())
    assert len(begun) > 1
    assert not left
    error = json.loads(wire.sent[-1]["body"])["error"]
    assert error["code"] == "database-unavailable"
    assert "db.internal" not in error["detail"]


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
