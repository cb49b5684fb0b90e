import asyncio
import codecs
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from service.api.door import admission
from service.api.door.problems import BodyTimeout
from service.api.door.streams import LineReader
from service.base.settings import Limits
from service.serving.lines import LineBlock
from tests.clocks import LeapingClock
from tests.wires import Wire


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeapingClock:
    """The reader's clock."""
    clock = LeapingClock()
    monkeypatch.setattr(admission, "time", clock)
    return clock


def limited(**limits: Any) -> Limits:
    return Limits().model_copy(update=limits)


def read_all(chunks: Iterable[bytes], limits: Limits, rows_max: int = 10) -> list[LineBlock]:
    async def main() -> list[LineBlock]:
        reader = LineReader(Wire(*chunks, b"").receive, limits, rows_max)
        blocks = []
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.read())
            while (block := await reader.take()).lines:
                blocks.append(block)
        assert reader.fault is None
        return blocks

    return asyncio.run(main())


def read_to_the_end(clock: LeapingClock, receive: Receive, **limits: Any) -> LineReader:
    """Return a reader whose body has ended."""

    async def main() -> LineReader:
        reader = LineReader(receive, limited(**limits), 10)
        await reader.read()
        return reader

    return clock.run(main)


@example([b"a\nb"], 2, 20, 4)
@example([b"four\nnext\n"], 2, 20, 4)
@example([b"fives\nnext\n"], 2, 20, 4)
@example([codecs.BOM_UTF8 + b"a\n", codecs.BOM_UTF8 + b"b\n"], 2, 20, 4)
@given(st.lists(st.binary(max_size=6)), st.integers(1, 5), st.integers(1, 20), st.integers(1, 4))
def test_lines_are_those_of_the_body(chunks: list[bytes], rows_max: int, block: int, longest: int) -> None:
    blocks = read_all(chunks, limited(line_bytes_max=longest, block_bytes_max=block), rows_max)
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
    received = 0

    async def receive() -> Any:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b"0123456789\n", "more_body": True}

    reader = LineReader(receive, limited(block_bytes_max=100), 1000)
    task = asyncio.create_task(reader.read())
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    assert received == 10  # ten lines of 11 bytes are more than 100


def test_a_stalled_body_ends_with_a_fault(clock: LeapingClock) -> None:
    async def receive() -> Any:
        await asyncio.sleep(60)

    reader = read_to_the_end(clock, receive, body_seconds_max=10)
    assert asyncio.run(reader.take()).lines == []
    assert isinstance(reader.fault, BodyTimeout)
    assert clock.monotonic() == pytest.approx(10)


@pytest.mark.parametrize(("least", "n_read"), [(10, 3), (3, 8), (1, 8)])
def test_a_body_that_trickles_too_slowly_is_cut_off(clock: LeapingClock, least: int, n_read: int) -> None:
    n_sent = 0

    async def receive() -> Any:
        nonlocal n_sent
        await asyncio.sleep(3)
        n_sent += 1
        return {"type": "http.request", "body": b"x", "more_body": n_sent < 8}

    fault = read_to_the_end(clock, receive, body_seconds_max=10, batch_bytes_min=least).fault
    assert (fault is not None) == (n_read < 8)
    assert n_sent == n_read


def test_time_in_which_nobody_takes_is_not_the_clients(clock: LeapingClock) -> None:
    n_sent = 0

    async def receive() -> Any:
        nonlocal n_sent
        await asyncio.sleep(1)
        n_sent += 1
        return {"type": "http.request", "body": b"\n", "more_body": n_sent < 6}

    async def main() -> LineReader:
        reader = LineReader(receive, limited(body_seconds_max=10, batch_bytes_min=1000), 1)
        task = asyncio.create_task(reader.read())
        for _ in range(6):
            await asyncio.sleep(5)
            await reader.take()
        await task
        return reader

    assert clock.run(main).fault is None
    assert clock.monotonic() >= 30


async def test_a_client_that_leaves() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await LineReader(receive, limited(), 10).read()
