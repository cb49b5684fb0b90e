"""Limits of keys over HTTP: refusals, headers, streams that are slowed, shares of places."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI
from tests.conftest import answered_from_bytes, serving, settings_of

from xylem.base.access import meters
from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem.base.access.meters import KeyLimits
from xylem.base.errors import Overloaded
from xylem_store.store import Store

SCOPES = (AccessScope.PREDICT, AccessScope.FEEDBACK)
BODY = {"instances": [{"indices": [1], "values": [1.0]}]}
PATH = "/v1/models/raw/predict"


class Site(NamedTuple):
    app: FastAPI
    client: httpx.AsyncClient

    def key(self, **limits: Any) -> dict[str, str]:
        """The header of a new key with these limits."""
        keys = AccessKeys(self.app.state.services.learning.database)
        key = keys.create("shop", SCOPES, **limits)
        self.app.state.services.ring.refresh()
        return {"authorization": f"Bearer {key.text}"}


@contextlib.asynccontextmanager
async def site_of(store: Store, **settings: Any) -> AsyncIterator[Site]:
    async with serving(settings_of(store.root, open_scopes=(), **settings)) as (app, client):
        yield Site(app, client)


async def test_a_key_at_its_limit_is_refused_on_every_way(own_store: Store) -> None:
    async with site_of(own_store) as site:
        key, other = site.key(requests_per_second=0.01), site.key()
        first = await site.client.post(PATH, json=BODY, headers=key)
        assert first.status_code == 200
        assert first.headers["ratelimit"] == '"requests";r=0;t=100'
        refused = await site.client.post(PATH, json=BODY, headers=key)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
        assert refused.json()["detail"].startswith("expected at most 0.01 requests a second")
        assert refused.headers["retry-after"] == "100"
        assert refused.headers["ratelimit-policy"] == '"requests";q=1;w=100'
        assert key["authorization"][-43:] not in refused.text
        from_bytes = answered_from_bytes(site.app, PATH, json.dumps(BODY).encode(), **key)
        assert from_bytes.startswith(b"HTTP/1.1 429 ")
        assert b'\r\nretry-after: 100\r\nratelimit: "requests";r=0;t=100\r\n' in from_bytes
        for method, path in (
            ("POST", "/v1/models/raw/batch"),
            ("POST", "/v2/models/raw/infer"),
            ("POST", "/v1/models/raw/feedback"),
            ("GET", "/v1/models"),
        ):
            answer = await site.client.request(method, path, headers=key)
            assert answer.status_code == 429, path
        # a probe is neither refused nor counted, and nothing is told to keys without limits
        assert (await site.client.get("/readyz", headers=key)).json()["models"]
        answer = await site.client.post(PATH, json=BODY, headers=other)
        assert (answer.status_code, answer.headers.get("ratelimit")) == (200, None)


async def test_answers_from_bytes_have_the_headers_and_count(own_store: Store) -> None:
    async with site_of(own_store) as site:
        body = json.dumps(BODY).encode()
        key, other = site.key(requests_per_second=0.03, rows_per_second=5), site.key()
        answer = answered_from_bytes(site.app, PATH, body, **key)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'\r\nratelimit: "requests";r=0;t=34, "rows";r=4;t=1\r\nratelimit-policy: ' in answer
        assert answered_from_bytes(site.app, PATH, body, **key).startswith(b"HTTP/1.1 429 ")
        assert b"ratelimit" not in answered_from_bytes(site.app, PATH, body, **other)


async def test_rows_are_charged_and_defaults_are_settings(own_store: Store) -> None:
    async with site_of(own_store, key_rows_per_second=0.01) as site:
        key, own = site.key(), site.key(rows_per_second=1000)
        two = {"instances": BODY["instances"] * 2}
        for headers, statuses in ((key, [200, 429]), (own, [200, 200])):
            answers = [await site.client.post(PATH, json=two, headers=headers) for _ in range(2)]
            assert [answer.status_code for answer in answers] == statuses
        assert answers[-1].headers["ratelimit"].startswith('"rows";r=99')


async def test_requests_in_flight_end_with_their_answers(own_store: Store) -> None:
    async with site_of(own_store) as site:
        key = site.key(in_flight=1)
        go_on = asyncio.Event()

        async def lines() -> AsyncIterator[bytes]:
            yield b'{"indices": [1], "values": [1.0]}\n'
            await go_on.wait()

        path = "/v1/models/raw/batch"
        headers = {**key, "content-type": "application/x-ndjson"}
        batch = asyncio.create_task(site.client.post(path, content=lines(), headers=headers))
        while (refused := await site.client.post(PATH, json=BODY, headers=key)).status_code == 200:
            await asyncio.sleep(0.01)
        assert refused.headers["ratelimit"] == '"in-flight";r=0'
        go_on.set()
        assert (await batch).status_code == 200
        answer = await site.client.post(PATH, json=BODY, headers=key)
        assert (answer.status_code, answer.headers["ratelimit"]) == (200, '"in-flight";r=0')
        bad = await site.client.post(PATH, content=b"{", headers=key)
        assert bad.status_code in (400, 415)
        assert (await site.client.post(PATH, json=BODY, headers=key)).status_code == 200


async def test_a_stream_is_slowed_and_whole(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(seconds)

    monkeypatch.setattr(meters, "sleep", wait)
    async with site_of(own_store) as site:
        key = site.key(rows_per_second=40)
        headers = {**key, "content-type": "application/x-ndjson"}
        line = b'{"indices": [1], "values": [1.0]}\n'
        event = b'{"event_id": "%d", "instance": {"indices": [1], "values": [1.0]}, "labels": []}\n'
        for path, lines in (
            ("batch", [line] * 100),
            ("feedback", [event % i for i in range(100)]),
        ):
            waits.clear()
            content = b"".join(lines)
            answer = await site.client.post(
                f"/v1/models/raw/{path}", content=content, headers=headers
            )
            assert len(answer.text.splitlines()) == 100
            assert "error" not in answer.text
            assert sum(waits) > 0
            assert (await site.client.post(PATH, json=BODY, headers=key)).status_code == 429
            await asyncio.sleep(2)


async def test_a_sender_above_its_share_is_refused_at_a_full_door(
    own_store: Store,
) -> None:
    async with site_of(own_store, requests_max=16) as site:
        services = site.app.state.services
        senders = [
            services.ring.sender_of(site.key()["authorization"].encode(), scope, "raw")
            for scope in SCOPES
        ]
        for _ in range(13):
            services.admission.enter({"path": PATH})
            senders[0].meter.enter()
        services.refuse_above_share(senders[0])  # it is alone
        senders[1].meter.enter()
        services.refuse_above_share(senders[1])
        with pytest.raises(Overloaded, match="the sender's share of the 16 requests at a time"):
            services.refuse_above_share(senders[0])
        services.admission.leave()
        services.refuse_above_share(senders[0])


@pytest.mark.parametrize("name", KeyLimits._fields)
@pytest.mark.parametrize("value", [0, -1, "1", True, 1e99])
async def test_limits_that_cannot_be(own_store: Store, name: str, value: object) -> None:
    async with site_of(own_store) as site:
        keys = AccessKeys(site.app.state.services.learning.database)
        admin = {"authorization": f"Bearer {keys.create('a', [AccessScope.ADMIN]).text}"}
        site.app.state.services.ring.refresh()
        body = {"name": "x", "scopes": ["predict"], name: value}
        answer = await site.client.post("/v1/admin/keys", json=body, headers=admin)
        assert answer.status_code == 422, answer.text
        assert name in answer.text
        nan = json.dumps({**body, name: float("nan")}).encode()
        headers = {**admin, "content-type": "application/json"}
        answer = await site.client.post("/v1/admin/keys", content=nan, headers=headers)
        assert answer.status_code in (400, 422)


async def test_usage_is_counted_on_every_way_and_shown(own_store: Store) -> None:
    async with site_of(own_store, metrics_keys=True) as site:
        services = site.app.state.services
        keys = AccessKeys(services.learning.database)
        admin = {"authorization": f"Bearer {keys.create('a', [AccessScope.ADMIN]).text}"}
        key = site.key()
        body = json.dumps(BODY).encode()
        assert answered_from_bytes(site.app, PATH, body, **key).startswith(b"HTTP/1.1 200 ")
        line = b'{"indices": [1], "values": [1.0]}\n'
        lines = {**key, "content-type": "application/x-ndjson"}
        event = {"event_id": "1", "instance": BODY["instances"][0], "labels": []}
        for path, content, headers in (
            ("predict", body, {**key, "content-type": "application/json"}),
            ("batch", line * 3, lines),
            (
                "feedback",
                json.dumps({"events": [event]}),
                lines | {"content-type": "application/json"},
            ),
        ):
            answer = await site.client.post(
                f"/v1/models/raw/{path}", content=content, headers=headers
            )
            assert answer.status_code == 200, answer.text
        for _ in range(2):
            services.ring.usage.write()
        answer = await site.client.get("/v1/admin/usage?by=key,model", headers=admin)
        (usage,) = answer.json()["usage"]
        assert (usage["name"], usage["model"], usage["requests"], usage["rows"]) == (
            "shop",
            "raw",
            4,
            6,
        )
        assert usage["characters"] > 3 * len(line) + 2 * len(body)
        assert 0 < usage["search_seconds"] < 10
        page = (await site.client.get("/metrics", headers=admin)).text
        assert f'xylem_key_rows_total{{key="{usage["key"]}",model="raw"}} 6.0' in page
        bad = await site.client.get("/v1/admin/usage?by=name", headers=admin)
        assert (bad.status_code, bad.json()["code"]) == (422, "bad-parameter")
