"""Annif's door: what of a request runs where."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_store.store import Store
from service.serving import annif
from tests.served_models import publish_model

FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_a_form_is_not_read_on_the_event_loop(
    tmp_path: Path, in_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 8 MB, percent-encoded, takes more than a second to read."""
    read_in: list[threading.Thread] = []
    split_fields = annif.split_fields

    def noted(*arguments: Any) -> Any:
        read_in.append(threading.current_thread())
        return split_fields(*arguments)

    monkeypatch.setattr(annif, "split_fields", noted)
    store = Store(tmp_path)
    publish_model(store, "text", "hashing")

    async def call(client: httpx.AsyncClient) -> None:
        loop = threading.current_thread()
        path = "/v1/projects/text/suggest"
        for body, status in (("text=a&limit=1", 200), ("text=a&limit=no", 422)):
            assert (await client.post(path, content=body, headers=FORM)).status_code == status
        assert len(read_in) == 2
        assert loop not in read_in

    in_process(call, store.root)


def test_the_stages_of_suggestions_are_counted(tmp_path: Path, in_process: Callable[..., Any]) -> None:
    store = Store(tmp_path)
    publish_model(store, "text", "hashing")

    async def counted(client: httpx.AsyncClient) -> dict[str, float]:
        lines = (await client.get("/metrics")).text.splitlines()
        begin = 'xylem_stage_seconds_count{stage="'
        found = [line[len(begin) :].split('"}') for line in lines if line.startswith(begin)]
        return {stage: float(count) for stage, count in found}

    async def call(client: httpx.AsyncClient) -> None:
        stages = ("queue", "read", "features", "search", "write")
        for path, body, headers in (
            ("suggest", b"text=a&limit=1", FORM),
            ("suggest-batch?limit=1", b'{"documents":[{"text":"a"},{"text":"b"}]}', {}),
        ):
            before = await counted(client)
            sent = {"content-type": "application/json"} | headers
            answer = await client.post(f"/v1/projects/text/{path}", content=body, headers=sent)
            assert answer.status_code == 200, answer.text
            after = await counted(client)
            assert {stage: after[stage] - before[stage] for stage in stages} == dict.fromkeys(stages, 1)

    in_process(call, store.root)
