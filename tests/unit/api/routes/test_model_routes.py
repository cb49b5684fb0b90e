"""What the routes over models and the figures say when the store is not as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from model_store.alias import Alias
from model_store.store import ModelInfo, Store
from service.api.door.metrics import Metrics
from service.api.routes.models import summarize
from service.serving.split import LiveStatus

Run = Callable[..., Any]


async def show(client: httpx.AsyncClient) -> httpx.Response:
    return await client.get("/v1/models/raw")


def test_a_damaged_old_version_does_not_hide_the_others(own_store: Store, in_process: Run) -> None:
    manifest = next((own_store.root / "models" / "raw" / "versions" / "1").glob("manifest.json"))
    manifest.chmod(0o644)
    manifest.write_bytes(b"{")
    own_store.promote("raw", 2, "stable")
    response = in_process(show, own_store.root)
    assert response.status_code == 200
    new, old = response.json()["version_details"]
    assert (new["version"], new["n_labels"], "error" in new) == (2, 11, False)
    assert (old["version"], old["error"]["code"]) == (1, "model-corrupt")


def test_manifests_are_read_once(own_store: Store, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    manifest = Store.manifest

    def reading(store: Store, name: str, version: int) -> Any:
        read.append((name, version))
        return manifest(store, name, version)

    async def call(client: httpx.AsyncClient) -> list[httpx.Response]:
        monkeypatch.setattr(Store, "manifest", reading)
        read.clear()
        return [await show(client) for _ in range(3)]

    monkeypatch.setattr(Store, "manifest", reading)
    assert [response.status_code for response in in_process(call, own_store.root)] == [200] * 3
    assert sorted(read) == [("raw", 1), ("raw", 2)]


def test_an_alias_that_no_look_has_settled_yet_is_as_the_store_has_it() -> None:
    info = ModelInfo("raw", (1, 2), {"latest": Alias(2), "new": Alias(1)})
    assert summarize(info, {("raw", "latest"): Alias(1)}).aliases == {"latest": 1, "new": 1}


def test_a_refusal_of_one_request_too_many_reads_on_before_it_closes(in_process: Run) -> None:
    async def call(client: httpx.AsyncClient) -> httpx.Response:
        headers = {"content-type": "application/json", "content-length": "1000000"}
        inner: httpx.Response | None = None

        async def body() -> Any:
            nonlocal inner
            yield b"{"
            inner = await client.post("/v1/models/raw/predict", content=b" " * 1_000_000, headers=headers)
            yield b" " * 999_999

        await client.post("/v1/models/raw/predict", content=body(), headers=headers)
        assert inner is not None
        return inner

    refused = in_process(call, requests_max=1)
    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
    assert refused.headers["connection"] == "close"


def test_swaps_are_a_counter() -> None:
    metrics = Metrics()
    metrics.watch(lambda: LiveStatus([], [], 3, None), lambda: True, set)
    text = asyncio.run(metrics.page()).decode()
    assert "# TYPE xylem_model_swaps_total counter" in text
    assert "xylem_model_swaps_total 3.0" in text
