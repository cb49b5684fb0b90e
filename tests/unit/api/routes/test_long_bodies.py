"""What is longer than the event loop should read, a thread reads, whatever is wrong with it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from service.serving.parse import LONG_BYTES
from tests.conftest import serving, settings_of

PREDICT, INFER = "/v1/models/text/predict", "/v2/models/text/infer"
LONG = b" " * LONG_BYTES
BODIES = [
    (PREDICT, b'{"instances":[{"text":"a text"}]}', 200),
    (PREDICT, b'{"instances":[1]}', 422),
    (PREDICT + "?language=", b'{"instances":[{"text":"a text"}]}', 422),
    (PREDICT, b"[", 400),
    (INFER, b'{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}]}', 200),
    (INFER, b'{"inputs":[1]}', 422),
    ("/v1/models/text/score", b'{"instances":[{"text":"a","labels":[]}]}', 200),
    ("/v1/models/text/score", b'{"instances":[1]}', 422),
    ("/v1/projects/text/suggest-batch", b'{"documents":[1]}', 422),
]


HEADERS = {"content-type": "application/json"}


@pytest.mark.parametrize(("path", "body", "status"), BODIES)
def test_long_bodies_are_read_in_a_thread(shared_store: Path, path: str, body: bytes, status: int) -> None:
    """While all threads are busy a long body waits, and a short one is refused nevertheless."""

    async def main() -> None:
        async with serving(settings_of(shared_store, threads_max=1)) as (app, client):
            pool = app.state.services.work

            async def asks_a_thread(content: bytes) -> bool:
                """Ask while no thread is free; return whether the request waits for one."""
                gate = threading.Event()
                busy = [asyncio.create_task(pool.run(gate.wait)) for _ in range(pool._n_threads)]
                asked = asyncio.create_task(client.post(path, content=content, headers=HEADERS))
                while pool.pending <= len(busy) and not asked.done():
                    await asyncio.sleep(0)
                waits = not asked.done()
                gate.set()
                answer = await asked
                assert answer.status_code == status, answer.text
                await asyncio.gather(*busy)
                return waits

            assert await asks_a_thread(LONG + body)
            assert not await asks_a_thread(body)

    asyncio.run(main())


def test_long_feedback_too(shared_store: Path) -> None:
    async def main() -> None:
        async with serving(settings_of(shared_store)) as (_, client):
            names = []
            for content in (b'{"events":1}', LONG + b'{"events":1}'):
                answer = await client.post("/v1/models/text/feedback", content=content, headers=HEADERS)
                assert answer.status_code == 422
                names.append({thread.name.rpartition("_")[0] for thread in threading.enumerate()})
            assert "xylem-events" not in names[0]
            assert "xylem-events" in names[1]

    asyncio.run(main())
