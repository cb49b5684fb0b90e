from __future__ import annotations

import asyncio
import threading

import pytest

from service.api.door.work import WorkPool
from service.base.errors import Overloaded, TimedOut
from service.serving.parse import LONG_BYTES


def test_it_returns_and_raises_what_the_call_does() -> None:
    async def main() -> None:
        pool = WorkPool(1, 1, 300.0)
        assert await pool.run(max, 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        assert pool.pending == 0
        pool.close()

    asyncio.run(main())


def test_a_long_body_is_read_in_a_thread() -> None:
    def thread_of(body: bytes, more: str) -> tuple[str, int, str]:
        return threading.current_thread().name, len(body), more

    async def main() -> None:
        pool = WorkPool(1, 1, 300.0)
        here = threading.current_thread().name
        assert await pool.read(thread_of, bytes(LONG_BYTES), "more") == (here, LONG_BYTES, "more")
        name, n_bytes, more = await pool.read(thread_of, bytes(LONG_BYTES + 1), "more")
        assert name.startswith("xylem-work")
        assert (n_bytes, more) == (LONG_BYTES + 1, "more")
        pool.close()

    asyncio.run(main())


def test_the_queue_at_its_limit_and_one_more() -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_a_call_that_is_late_holds_its_thread_and_its_place() -> None:
    async def main() -> None:
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

    asyncio.run(main())
