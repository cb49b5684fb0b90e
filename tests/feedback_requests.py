"""Requests of feedback, and predictions at the thresholds that they move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from model_store.store import Store
from tests.conftest import serving, settings_of

RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
PATH = "/v1/models/raw/feedback"


def event(name: str, labels: list[str], **fields: Any) -> dict[str, Any]:
    return {"event_id": name, "labels": labels, **(fields or {"instance": RAW})}


def with_client(store: Store, call: Callable[..., Any], **changes: Any) -> Any:
    async def main() -> Any:
        settings = settings_of(store.root, **{"threshold_refresh_ms": 50, **changes})
        async with serving(settings) as (_, client):
            return await call(client)

    return asyncio.run(main())


async def predict(client: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    body = {"instances": [RAW], "top_r": 11, "threshold": "tuned", **options}
    response = await client.post("/v1/models/raw/predict", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def send(client: httpx.AsyncClient, *events: Any, path: str = PATH) -> list[dict[str, Any]]:
    response = await client.post(path, json={"events": list(events)})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found
