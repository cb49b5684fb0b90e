"""What is longer than the event loop should read, a thread reads, whatever is wrong with it."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import serving, settings_of

from xylem.serving.dialects.annif import dialect as annif
from xylem.serving.parse import LONG_BYTES

PREDICT, INFER = "/v1/models/text/predict", "/v2/models/text/infer"
LONG = b" " * LONG_BYTES
HEADERS = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (PREDICT, b'{"instances":[{"text":"a text"}]}', 200),
        (PREDICT, b'{"instances":[1]}', 422),
        (PREDICT + "?language=", b'{"instances":[{"text":"a text"}]}', 422),
        (PREDICT, b"[", 400),
        (INFER, b'{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}]}', 200),
        (INFER, b'{"inputs":[1]}', 422),
        ("/v1/models/text/score", b'{"instances":[{"text":"a","labels":[]}]}', 200),
        ("/v1/models/text/score", b'{"instances":[1]}', 422),
        ("/v1/projects/text/suggest-batch", b'{"documents":[1]}', 422),
    ],
)
async def test_long_bodies_go_to_a_thread(
    shared_store: Path, path: str, body: bytes, status: int
) -> None:
    """While all threads are busy a long body waits, and a short one is refused nevertheless."""
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


async def test_long_feedback_too(shared_store: Path) -> None:
    async with serving(settings_of(shared_store)) as (_, client):
        begun = []
        for content in (b'{"events":1}', LONG + b'{"events":1}'):
            answer = await client.post("/v1/models/text/feedback", content=content, headers=HEADERS)
            assert answer.status_code == 422
            begun.append(
                any(thread.name.startswith("xylem-events_") for thread in threading.enumerate())
            )
        assert begun == [False, True]


FORM = {"content-type": "application/x-www-form-urlencoded"}


async def test_a_long_form_is_read_in_a_thread(
    shared_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 8 MB, percent-encoded, takes more than a second to read."""
    read_in: list[threading.Thread] = []
    split_fields = annif.split_fields

    def noted(*arguments: Any) -> Any:
        read_in.append(threading.current_thread())
        return split_fields(*arguments)

    monkeypatch.setattr(annif, "split_fields", noted)
    async with serving(settings_of(shared_store)) as (_, client):
        for limit, status in (("1", 200), ("no", 422)):
            body = f"text={'a+' * LONG_BYTES}&limit={limit}"
            answer = await client.post("/v1/projects/hashed/suggest", content=body, headers=FORM)
            assert answer.status_code == status
    assert len(read_in) == 2
    assert threading.current_thread() not in read_in


async def test_the_stages_of_suggestions_are_counted(shared_store: Path) -> None:
    async def counted(client: httpx.AsyncClient) -> dict[str, float]:
        lines = (await client.get("/metrics")).text.splitlines()
        begin = 'xylem_stage_seconds_count{stage="'
        found = [line[len(begin) :].split('"}') for line in lines if line.startswith(begin)]
        return {stage: float(count) for stage, count in found}

    async with serving(settings_of(shared_store)) as (_, client):
        stages = ("queue", "read", "features", "search", "write")
        for path, body, headers in (
            ("suggest", b"text=a&limit=1", FORM),
            ("suggest-batch?limit=1", b'{"documents":[{"text":"a"},{"text":"b"}]}', HEADERS),
        ):
            before = await counted(client)
            answer = await client.post(f"/v1/projects/hashed/{path}", content=body, headers=headers)
            assert answer.status_code == 200, answer.text
            after = await counted(client)
            assert {stage: after[stage] - before[stage] for stage in stages} == dict.fromkeys(
                stages, 1
            )
