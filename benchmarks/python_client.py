"""What a call of the Python client costs the process that makes it, however many are under way at once."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

import xylem
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import served
from benchmarks.traces import prepared

AT_ONCE = (1, 8, 64, 256)
CALLS = 1536
"""Of each measurement; at 256 at once six each."""

LINES = 50_000
ROW = {"indices": [1, 8], "values": [1.0, 0.5]}
PATH = "/v1/models/tiny/predict"
Call = Callable[[], Awaitable[object]]


def run(settings: Settings) -> None:
    """Print the table."""
    store, _ = prepared(settings.out / "traces")
    found: dict[tuple[str, str], list[float]] = {}
    with served(store, 1) as (_, _, port):
        for turn in range(settings.repeats):
            note(f"turn {turn + 1} of {settings.repeats}")
            for name, at_once, cost in asyncio.run(_asynchronous(port)) + _blocking(port):
                found.setdefault((name, at_once), []).append(cost)
    rows = [(*names, spread(costs, 3)) for names, costs in found.items()]
    title = f"the client's processor time, medians of {settings.repeats} turns of {CALLS:,} calls of one row"
    show(settings, title, ("", "at once", "ms a call, or 1,000 lines"), rows)


async def _asynchronous(port: int) -> list[tuple[str, str, float]]:
    """Return the milliseconds of a call by xylem.AsyncClient, and by httpx as it is, in turns."""
    url = f"http://127.0.0.1:{port}"
    body = json.dumps({"instances": [ROW]})
    found = []
    async with (
        xylem.AsyncClient(url) as ours,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as bare,
    ):
        calls: dict[str, Call] = {
            "xylem.AsyncClient.predict": lambda: ours.predict("tiny", [ROW]),
            "httpx.AsyncClient.post": lambda: bare.post(PATH, content=body),
        }
        for at_once in AT_ONCE:
            for name, call in calls.items():
                await _called(call, at_once, 3)
                began = time.process_time()
                await _called(call, at_once, CALLS // at_once)
                cost = (time.process_time() - began) / (CALLS // at_once * at_once)
                found.append((name, str(at_once), 1e3 * cost))
    return found


async def _called(call: Call, at_once: int, times: int) -> None:
    async def repeat() -> None:
        for _ in range(times):
            await call()

    await asyncio.gather(*(repeat() for _ in range(at_once)))


def _blocking(port: int) -> list[tuple[str, str, float]]:
    """Return the milliseconds of a call by xylem.Client, and of 1,000 lines of a batch, read and unread."""
    line = json.dumps(ROW).encode()
    blocks = [[line] * 1000] * (LINES // 1000)

    def cost(work: Callable[[], Any], n: int) -> float:
        began = time.process_time()
        work()
        return 1e3 * (time.process_time() - began) / n

    with xylem.Client(f"http://127.0.0.1:{port}") as client:
        client.predict("tiny", [ROW])
        one = cost(lambda: [client.predict("tiny", [ROW]) for _ in range(CALLS)], CALLS)
        unread = cost(lambda: list(client.batch_blocks("tiny", blocks)), len(blocks))
        read = cost(lambda: list(client.batch("tiny", [ROW] * LINES)), len(blocks))
    return [
        ("xylem.Client.predict", "1", one),
        ("xylem.Client.batch_blocks", "2 requests", unread),
        ("xylem.Client.batch", "2 requests", read),
    ]
