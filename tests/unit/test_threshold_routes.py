"""What thresholds rest on, and back to an earlier epoch; admin routes are closed without the key (R8)."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from model_store.store import Store
from service.app import create_app
from tests.conftest import settings_of
from tests.unit.test_feedback_routes import event, predict, send, with_client

KEY = "correct horse battery staple"
RESTORE = "/v1/admin/models/raw/thresholds/restore"
TWICE = "limit=1&limit=2"


QUERIES_REFUSED = (
    "&".join(["limit=1"] * 17),
    "limit=%FF",
    "limit=-1",
    "limit=10001",
    "offset=x",
    "offset=",
    "other=1",
    TWICE,
)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_thresholds_are_shown_in_pages(own_store: Store) -> None:
    async def call(client: httpx.AsyncClient) -> None:
        path = "/v1/models/raw/thresholds"
        none = await client.get(path)
        assert (none.status_code, none.json()["code"]) == (409, "thresholds-not-tuned")
        await send(client, event("a", ["label::3"]), event("b", ["label::3", "label::4"]))
        whole = (await client.get(path)).json()
        assert (whole["n_labels"], whole["n_events"], whole["threshold_epoch"]) == (11, 2, 2)
        pages = [(await client.get(f"{path}?offset={i}&limit=4")).json() for i in (0, 4, 8)]
        assert [page["next_offset"] for page in pages] == [4, 8, None]
        assert [label for page in pages for label in page["labels"]] == whole["labels"]
        summary = (await client.get(f"{path}?limit=0")).json()
        assert (summary["labels"], summary["n_labels"], summary["next_offset"]) == ([], 11, None)
        marks = {label["label"]: label["marks"] for label in whole["labels"]}
        assert marks["label::3"] >= 2
        few = (await client.get(f"{path}?marks_below=2")).json()
        assert {label["label"] for label in few["labels"]} == {k for k, n in marks.items() if n < 2}
        assert "label::3" not in {label["label"] for label in few["labels"]}
        for query in QUERIES_REFUSED:
            assert (await client.get(f"{path}?{query}")).status_code == 422

    with_client(own_store, call)


def test_where_there_are_no_thresholds_none_are_restored(own_store: Store) -> None:
    async def call(client: httpx.AsyncClient) -> None:
        refused = await client.post(RESTORE, json={"epoch": 1}, headers=bearer(KEY))
        assert (refused.status_code, refused.json()["code"]) == (409, "thresholds-not-tuned")

    with_client(own_store, call, admin_key=SecretStr(KEY))


def test_an_earlier_epoch_is_restored(own_store: Store) -> None:
    async def call(client: httpx.AsyncClient) -> None:
        async def restore(body: Any) -> httpx.Response:
            return await client.post(RESTORE, json=body, headers=bearer(KEY))

        await send(client, event("a", ["label::3"]))
        before = (await client.get("/v1/models/raw/thresholds")).json()
        token = (await predict(client))["predictions"][0]["prediction_id"]
        await send(client, event("b", ["label::5"]), event("c", []))
        answer = await restore({"epoch": before["threshold_epoch"]})
        assert answer.json() == {"model": "raw", "version": 2, "threshold_epoch": 4}
        after = (await client.get("/v1/models/raw/thresholds")).json()
        assert (after["labels"], after["threshold_epoch"]) == (before["labels"], 4)
        assert [one["kind"] for one in after["checkpoints"]] == ["restored", "started"]
        late = await send(client, event("d", [], prediction_id=token))
        assert (late[0]["result"], late[0]["reason"]) == ("late", "thresholds-replaced")
        assert (await send(client, event("b", [])))[0]["result"] == "duplicate"
        for body in ({"epoch": 99}, {"epoch": 0}, {"epoch": True}, {}, [], {"epoch": 1, "x": 2}):
            refused = await restore(body)
            says, _, found = refused.json()["detail"].partition(", found ")
            assert (refused.status_code, "expected" in says) == (422, True)
            assert found not in ("", "another value"), refused.text

    with_client(own_store, call, admin_key=SecretStr(KEY))


@pytest.mark.parametrize("configured", [None, KEY, f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"])
def test_admin_routes_are_closed_without_the_key(own_store: Store, configured: str | None) -> None:
    admin_key = None if configured is None else SecretStr(configured)
    routes = [
        (route.path, method)
        for route in create_app(settings_of(own_store.root)).routes  # type: ignore[attr-defined]
        for method in route.methods  # type: ignore[attr-defined]
        if "/admin/" in route.path
    ]
    assert routes
    heads = [{}, bearer(""), bearer("wrong"), {"authorization": KEY}, {"authorization": f"Basic {KEY}"}]
    if configured != KEY:
        heads.append(bearer(str(configured)))

    async def call(client: httpx.AsyncClient) -> None:
        for path, method in routes:
            url = re.sub(r"{\w+}", "raw", path)
            for headers in heads:
                answer = await client.request(method, url, json={"epoch": 1}, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            answer = await client.request(method, url, json={"epoch": 1}, headers=bearer(KEY))
            assert (answer.status_code == 401) == (configured is None)

    with_client(own_store, call, admin_key=admin_key)


def test_queries_that_are_none_are_refused(own_store: Store) -> None:
    async def call(client: httpx.AsyncClient) -> None:
        for query in QUERIES_REFUSED:
            refused = await client.get(f"/v1/models/raw/thresholds?{query}")
            assert (refused.status_code, refused.json()["code"]) == (422, "bad-request"), query

    with_client(own_store, call)
