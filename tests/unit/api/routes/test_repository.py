"""The repository of the Open Inference Protocol: what is open, opened and closed by hand."""

import json
from typing import Any

import httpx
from tests.conftest import serving, settings_of

from xylem.base.access.keys import AccessKeys, AccessScope
from xylem_store.store import Store

ROWS = {"instances": [{"indices": [1], "values": [1.0]}]}


async def entries(client: httpx.AsyncClient, body: Any = b"") -> dict[str, str]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await client.post("/v2/repository/index", content=content)
    assert answer.status_code == 200, answer.text
    return {f"{each['name']}@{each['version']}": each["state"] for each in answer.json()}


async def acted(client: httpx.AsyncClient, model: str, action: str) -> httpx.Response:
    return await client.post(f"/v2/repository/models/{model}/{action}")


async def predicted(client: httpx.AsyncClient, model: str) -> int:
    return (await client.post(f"/v1/models/{model}/predict", json=ROWS)).status_code


async def test_models_are_loaded_and_unloaded(own_store: Store) -> None:
    for models_loaded in (2, "all"):
        settings = settings_of(own_store.root, models_loaded=models_loaded)
        async with serving(settings) as (app, client):
            key = AccessKeys(app.state.services.learning.database).create(
                "admin", [AccessScope.ADMIN]
            )
            app.state.services.ring.refresh()
            client.headers["authorization"] = f"Bearer {key.text}"
            assert set(await entries(client)) == {
                f"{info.name}@{version}" for info in own_store.models() for version in info.versions
            }
            n_open = len(await entries(client, {"ready": True}))
            assert n_open == (0 if models_loaded == 2 else 5)
            assert (await acted(client, "raw", "load")).status_code == 200
            ready = await entries(client, {"ready": True})
            assert {"raw@1", "raw@2"} <= ready.keys() and set(ready.values()) == {"READY"}
            assert (await acted(client, "raw", "unload")).status_code == 200
            assert "raw@2" not in await entries(client, {"ready": True})
            assert (await client.get("/readyz")).status_code == 200
            assert await predicted(client, "raw") == 200
            assert (await entries(client))["raw@2"] == "READY"


async def test_what_is_wrong_is_named(own_store: Store) -> None:
    async with serving(settings_of(own_store.root, models_loaded=1)) as (app, client):
        refused = await client.post("/v2/repository/index", json={})
        assert refused.status_code == 401
        key = AccessKeys(app.state.services.learning.database).create("a", [AccessScope.ADMIN])
        app.state.services.ring.refresh()
        client.headers["authorization"] = f"Bearer {key.text}"
        for action in ("load", "unload"):
            answer = await acted(client, "none", action)
            assert (answer.status_code, answer.json()["code"]) == (404, "model-not-found")
        wrong = await client.post("/v2/repository/index", json={"ready": "perhaps"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "bad-request")


async def test_a_request_waits_for_its_model_until_its_deadline(own_store: Store) -> None:
    async with serving(settings_of(own_store.root, models_loaded=1)) as (app, client):
        live = app.state.services.live
        await live._requested._turn.acquire()  # as if another model were being opened
        late = await client.post("/v1/models/raw/predict", json={**ROWS, "deadline_ms": 20})
        assert (late.status_code, late.json()["code"]) == (503, "timed-out")
        assert late.headers["retry-after"] == "1"
        bad = await client.post("/v1/models/raw/predict", json={"instances": "?"})
        assert bad.status_code == 422
        assert await predicted(client, "none") == 404
        live._requested._turn.release()
        assert await predicted(client, "raw") == 200
