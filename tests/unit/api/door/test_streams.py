"""Streams: what becomes of answers that nobody waits for any more."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

from service.api.door.streams import Streams
from service.base.errors import DatabaseUnavailable
from service.base.settings import Limits
from service.serving.lines import Answered, LineBlock

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
