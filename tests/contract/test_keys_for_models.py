"""Keys of some models: every route, with every scope, for a model that the key may not see.

The routes are read from the app, so a new one is tried, too. What a key may not see must answer
exactly as what does not exist.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from tests.conftest import answered_from_bytes, serving, settings_of
from tests.helpers.served_models import publish_model

from xylem.api.routes.jobs import KINDS
from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem_store.store import Store

OURS = "text"
THEIRS = "zebra"
NOTHING = "zebrb"  # no model, and none is named so

SCOPES = (AccessScope.PREDICT, AccessScope.FEEDBACK, AccessScope.ADMIN)
TEXT_BODY = {"instances": [{"text": "a"}]}

_TRAINING = {"model": OURS, "trainer": "ovr", "data": "own/x.jsonl"}
_COMBINE = {"model": OURS, "members": [OURS], "data": "own/x.jsonl"}
FOREIGN_JOBS: list[tuple[str, dict[str, Any]]] = [
    ("training", _TRAINING | {"model": THEIRS}),
    ("training", _TRAINING | {"trainer": "label-tree", "from": f"{THEIRS}@1"}),
    ("training", _TRAINING | {"data": ["own/x.jsonl", {"feedback": {"model": THEIRS}}]}),
    ("combine", _COMBINE | {"model": THEIRS}),
    ("combine", _COMBINE | {"members": [OURS, f"{THEIRS}@1"]}),
    ("extend", {"model": THEIRS, "data": "own/x.jsonl"}),
    ("learn", {"model": THEIRS}),
    ("extend", {"model": OURS, "data": ["own/x.jsonl", {"feedback": {"model": THEIRS}}]}),
    ("vocabulary", {"model": THEIRS, "vocabulary": "own/x.jsonl"}),
    ("threshold-tuning", {"model": THEIRS, "data": "own/x.jsonl"}),
    ("batch", {"model": THEIRS, "data": "own/x.jsonl"}),
]
"""A request for each kind of jobs, and for each field that names a model that is not ours."""


class Site(NamedTuple):
    """A service with a model of ours and one of others, and a key of ours for each scope."""

    app: FastAPI
    client: httpx.AsyncClient
    admin: dict[str, str]
    ours: dict[AccessScope, dict[str, str]]

    async def submit(self, kind: str, body: object, headers: dict[str, str]) -> httpx.Response:
        path = f"/v1/admin/{kind}-jobs"
        return await self.client.post(path, json=body, headers=headers)


@contextlib.asynccontextmanager
async def site_of(store: Store, data: Path, **settings: Any) -> AsyncIterator[Site]:
    publish_model(store, THEIRS, "tfidf")
    for name in ("own/x.jsonl", "zebra/rows.jsonl"):
        (data / name).parent.mkdir(parents=True)
        (data / name).write_text('{"text": "a", "labels": ["b"]}\n' * 8)
    changes = {"open_scopes": (), "data_dir": data, "feedback_rows": True, **settings}
    async with serving(settings_of(store.root, **changes)) as (app, client):
        keys = AccessKeys(app.state.services.learning.database)
        admin = keys.create("admin", [AccessScope.ADMIN]).text
        ours = {}
        for scope in SCOPES:
            prefix = "own/" if scope is AccessScope.ADMIN else None
            key = keys.create(scope, [scope], models=("te?t",), data_prefix=prefix)
            ours[scope] = {"authorization": f"Bearer {key.text}"}
        app.state.services.ring.refresh()
        yield Site(app, client, {"authorization": f"Bearer {admin}"}, ours)


def paths(app: FastAPI, values: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Every method and path of the app, once for each value of its first parameter."""
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        fixed = route.path.replace("{version}", "1").replace("{alias}", "latest")
        names = re.findall(r"{(\w+)(?::path)?}", fixed)
        assert set(names) <= values.keys(), f"{route.path}: the test has no value for a parameter"
        for value in values[names[0]] if names else [""]:
            for method in sorted(route.methods):
                yield method, re.sub(r"{\w+(:path)?}", value, fixed)


def plain(answer: httpx.Response, names: dict[str, str]) -> tuple[int, str]:
    """The status and the text of an answer, without the request's id, with other names."""
    text = re.sub(r'"request_id":"[^"]*"', "", answer.text)
    return answer.status_code, with_names(text, names)


def with_names(text: str, names: dict[str, str]) -> str:
    for name, other_name in names.items():
        text = text.replace(name, other_name)
    return text


async def test_every_route_and_scope_for_what_is_not_ours(own_store: Store, tmp_path: Path) -> None:
    async with site_of(own_store, tmp_path / "data") as site:
        recipe = {"vocabulary": "own/x.jsonl", "sources": [{"file": "own/x.jsonl"}]}
        path = f"/v1/admin/models/{THEIRS}/recipe"
        assert (await site.client.put(path, json=recipe, headers=site.admin)).status_code == 200
        jobs = [
            (await site.submit(kind, body, site.admin)).json()["id"] for kind, body in FOREIGN_JOBS
        ]
        batch = {"kind": "batch", "cron": "0 3 * * 0"}
        batch |= {"job": {"model": THEIRS, "data": "own/x.jsonl"}}
        answer = await site.client.post("/v1/admin/schedules", json=batch, headers=site.admin)
        schedule = answer.json()["id"]
        absent = {name: "0" * len(name) for name in (*jobs, schedule)} | {THEIRS: NOTHING}
        values = {
            "model": [THEIRS],
            "project_id": [THEIRS, f"{THEIRS}@latest", f"{THEIRS}@1"],
            "job": jobs,
            "schedule": [schedule],
            "name": ["zebra/rows.jsonl"],
            "key": ["aaaaaaaaaaaa"],
        }
        tried = set()
        for method, path in paths(site.app, values):
            for scope, headers in site.ours.items():
                answer = await site.client.request(method, path, headers=headers)
                where = (method, path, scope, answer.text[:500])
                if path == with_names(path, absent):  # it may list things, but none of theirs
                    assert with_names(answer.text, absent) == answer.text, where
                    continue
                other_path = with_names(path, absent)
                other = await site.client.request(method, other_path, headers=headers)
                assert answer.status_code in (403, 404, 405, 422), where
                assert plain(answer, absent) == plain(other, {}), where
                tried.add((scope, answer.status_code))
        assert {(scope, 404) for scope in SCOPES} <= tried
        answer = await site.client.get(f"/v1/admin/jobs/{jobs[0]}", headers=site.admin)
        assert answer.json()["state"] == "queued"
        assert (tmp_path / "data/zebra/rows.jsonl").exists()


async def test_no_job_names_a_model_that_is_not_ours(own_store: Store, tmp_path: Path) -> None:
    assert {kind for kind, _ in FOREIGN_JOBS} == KINDS.keys()
    async with site_of(own_store, tmp_path / "data") as site:
        ours = site.ours[AccessScope.ADMIN]
        for kind, body in FOREIGN_JOBS:
            answers = []
            for name in (THEIRS, NOTHING):
                request = json.loads(json.dumps(body).replace(THEIRS, name))
                answers.append(plain(await site.submit(kind, request, ours), {name: NOTHING}))
                schedule = {"kind": kind, "cron": "0 3 * * 0", "job": request}
                path = "/v1/admin/schedules"
                scheduled = await site.client.post(path, json=schedule, headers=ours)
                answers.append((scheduled.status_code, scheduled.json()["code"]))
            assert answers[0] == answers[2], (kind, body)
            assert answers[0][0] == 404, (kind, body, answers)
            assert answers[1] == answers[3] == (404, "model-not-found"), (kind, body)
        job = {"model": OURS, "data": "zebra/rows.jsonl"}
        refused = [
            plain(await site.submit("batch", job | {"data": name}, ours), {name: NOTHING})
            for name in ("zebra/rows.jsonl", "own/../zebra/rows.jsonl", "zebra/none.jsonl")
        ]
        assert len(set(refused)) == 1
        assert refused[0][0] == 422
        tune = f"/v1/admin/models/{OURS}/thresholds/tune"
        answer = await site.client.post(tune, json={"data": "zebra/rows.jsonl"}, headers=ours)
        assert (answer.status_code, answer.json()["code"]) == (422, "bad-request")


async def test_what_is_ours_is_there_and_pages_are_full(own_store: Store, tmp_path: Path) -> None:
    async with site_of(own_store, tmp_path / "data") as site:
        client, ours = site.client, site.ours[AccessScope.ADMIN]
        batch = {"model": OURS, "data": "own/x.jsonl"}
        mine = (await site.submit("batch", batch, ours)).json()["id"]
        await site.submit("batch", batch | {"model": THEIRS}, site.admin)
        seen = (await client.get("/v1/admin/jobs?limit=1", headers=ours)).json()["jobs"]
        assert [job["id"] for job in seen] == [mine]
        for path in ("", "/log"):
            answer = await client.get(f"/v1/admin/jobs/{mine}{path}", headers=ours)
            assert answer.status_code == 200
        answer = await client.delete(f"/v1/admin/jobs/{mine}", headers=ours)
        assert answer.json()["state"] == "cancelled"
        models = (await client.get("/v1/models", headers=ours)).json()["models"]
        assert [model["name"] for model in models] == [OURS]
        projects = (await client.get("/v1/projects", headers=ours)).json()["projects"]
        assert [project["project_id"] for project in projects] == [OURS]
        ready = (await client.get("/readyz", headers=ours)).json()["models"]
        assert {entry["model"] for entry in ready} == {OURS}
        put = await client.put("/v1/admin/data/own/y.jsonl", content=b"{}\n", headers=ours)
        assert put.status_code == 200
        files = (await client.get("/v1/admin/data", headers=ours)).json()["files"]
        assert [file["name"] for file in files] == ["own/x.jsonl", "own/y.jsonl"]
        path = f"/v1/models/{OURS}/predict"
        assert (await client.post(path, json=TEXT_BODY, headers=ours)).status_code == 200
        usage = site.app.state.services.ring.usage
        usage.add("k", THEIRS, n_rows=1, n_characters=1)
        usage.close()
        shown = (await client.get("/v1/admin/usage?by=model", headers=ours)).json()["usage"]
        assert [line["model"] for line in shown] == [OURS]
        for path in ("/v1/admin/keys", "/v1/admin/audit", "/metrics"):
            answer = await client.get(path, headers=ours)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope-missing"), path


async def test_requests_with_a_known_head_and_their_tokens(
    own_store: Store, tmp_path: Path
) -> None:
    async with site_of(own_store, tmp_path / "data") as site:
        body = json.dumps(TEXT_BODY).encode()
        for model, status in ((OURS, b"200"), (THEIRS, b"404"), (NOTHING, None)):
            path = f"/v1/models/{model}/predict"
            answer = answered_from_bytes(site.app, path, body, **site.ours[AccessScope.PREDICT])
            assert (None if answer is None else answer.split()[1]) == status
        path = f"/v1/models/{THEIRS}/predict"
        reply = await site.client.post(path, json=TEXT_BODY, headers=site.admin)
        token = reply.json()["predictions"][0]["prediction_id"]
        event = {"event_id": "1", "prediction_id": token, "labels": []}
        answer = await site.client.post(
            f"/v1/models/{OURS}/feedback",
            json={"events": [event]},
            headers=site.ours[AccessScope.FEEDBACK],
        )
        (result,) = answer.json()["results"]
        assert (result["result"], result["reason"]) == ("rejected", "prediction-other-model")


@pytest.mark.parametrize("scopes", [("predict",), ("predict", "metrics")])
async def test_open_scopes_show_the_open_models_alone(
    own_store: Store, tmp_path: Path, scopes: tuple[str, ...]
) -> None:
    settings = {"open_scopes": scopes, "open_models": (OURS,)}
    async with site_of(own_store, tmp_path / "data", **settings) as site:
        body = json.dumps(TEXT_BODY).encode()
        for model, status in ((OURS, 200), (THEIRS, 401), (NOTHING, 401)):
            path = f"/v1/models/{model}/predict"
            assert (await site.client.post(path, json=TEXT_BODY)).status_code == status
            answer = answered_from_bytes(site.app, path, body)
            assert answer is None or answer.split()[1] == str(status).encode()
        for path in ("/v1/models", "/v1/projects", "/readyz"):
            answer = await site.client.get(path)
            assert answer.status_code == 200
            assert THEIRS not in answer.text
        assert (await site.client.get("/metrics")).status_code == 401
