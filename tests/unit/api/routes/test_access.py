"""R8: every route with every kind of key.

No route answers a key that does not fit, and none is forgotten.
"""

import json
import re

import pytest
from fastapi import FastAPI
from tests.conftest import answered_from_bytes, serving, settings_of, whole_request
from tests.helpers.schemas import openapi

from xylem.base.access.key_text import ALL_SCOPES, AccessScope
from xylem.base.access.keys import AccessKeys
from xylem_store.store import Store

OPEN = {"/livez", "/readyz", "/openapi.json", "/v2/health/live", "/v2/health/ready"}


def scope_of(path: str) -> AccessScope | None:
    """The scope that a route must ask for, None for those that anybody may call."""
    if path in OPEN or path.startswith("/docs"):
        return None
    if path.startswith(("/v1/admin", "/v2/repository")):
        return AccessScope.ADMIN
    if path == "/metrics":
        return AccessScope.METRICS
    return AccessScope.FEEDBACK if path.endswith(("/feedback", "/learn")) else AccessScope.PREDICT


def requests() -> list[tuple[str, str, AccessScope | None]]:
    """Every operation: its method, a path for it, its scope."""
    found = []
    for path, item in openapi()["paths"].items():
        filled = re.sub(
            r"{version}", "1", re.sub(r"{alias}", "latest", path.replace("{model}", "none"))
        )
        filled = re.sub(r"{\w+}", "0" * 24, filled)
        found += [(method.upper(), filled, scope_of(path)) for method in item]
    return found


def keys_for(app: FastAPI) -> dict[str, tuple[str, frozenset[AccessScope]]]:
    """A key for each scope, and some that open nothing, by what
    they are: the text and what it opens.
    """
    keys = AccessKeys(app.state.services.learning.database)
    made = {}
    for scope in AccessScope:
        opens = ALL_SCOPES if scope is AccessScope.ADMIN else frozenset({scope})
        made[scope.value] = keys.create(scope.value, [scope]).text, opens
    revoked = keys.create("revoked", ALL_SCOPES)
    keys.revoke(revoked.key.id)
    made["revoked"] = revoked.text, frozenset()
    made["expired"] = keys.create("expired", ALL_SCOPES, 1e-3).text, frozenset()
    made["unknown"] = revoked.text[:-1] + ("A" if revoked.text[-1] != "A" else "B"), frozenset()
    app.state.services.ring.refresh()
    return made


async def test_what_is_open_by_nature_names_no_model_without_a_key(own_store: Store) -> None:
    """A model that cannot be served, and others: probes say the
    state alone; who may predict sees all.
    """
    (own_store.root / "models" / "raw" / "versions" / "1" / "manifest.json").write_text("{")
    async with serving(settings_of(own_store.root, open_scopes=())) as (app, client):
        for kind, (text, opens) in {
            "none": ("", frozenset[AccessScope]()),
            **keys_for(app),
        }.items():
            headers = {"authorization": f"Bearer {text}"} if text else {}
            may_predict = AccessScope.PREDICT in opens
            for is_draining in (False, True):
                (app.state.draining.set if is_draining else app.state.draining.clear)()
                for path in sorted({*OPEN, "/docs", "/"}):
                    answer = await client.get(path, headers=headers)
                    names = re.findall("hashed", answer.text)
                    shows = may_predict and path == "/readyz"
                    assert bool(names) == shows or path == "/openapi.json", (
                        kind,
                        path,
                        answer.text,
                    )
                    if path == "/readyz":
                        assert answer.status_code == (503 if is_draining else 200)
                        assert answer.json()["status"] == ("draining" if is_draining else "ready")
                        assert shows or answer.json().keys() == {"status"}, kind
                        if shows:
                            assert {failure["model"] for failure in answer.json()["failures"]} == {
                                "raw"
                            }


async def test_every_route_with_every_key(own_store: Store) -> None:
    async with serving(settings_of(own_store.root, open_scopes=())) as (app, client):
        keys = {"none": ("", frozenset[AccessScope]()), **keys_for(app)}
        told: dict[str, set[str]] = {kind: set() for kind in keys}
        for method, path, scope in requests():
            if path.endswith("/events"):
                continue
            for kind, (text, opens) in keys.items():
                headers = {"authorization": f"Bearer {text}"} if text else {}
                answer, where = (
                    await client.request(method, path, headers=headers),
                    (method, path, kind),
                )
                if scope is None or scope in opens:
                    assert answer.status_code not in (401, 403), where
                    told[kind].add("let in")
                else:
                    assert answer.status_code == (403 if opens else 401), (where, answer.text)
                    assert answer.headers["www-authenticate"].startswith("Bearer"), where
                    told[kind].add(answer.json()["code"])
    assert told == {
        "none": {"let in", "unauthorized"},
        "predict": {"let in", "scope-missing"},
        "feedback": {"let in", "scope-missing"},
        "metrics": {"let in", "scope-missing"},
        "admin": {"let in"},
        "revoked": {"let in", "key-revoked"},
        "expired": {"let in", "key-expired"},
        "unknown": {"let in", "unauthorized"},
    }


async def test_what_is_open_needs_no_key_and_admin_never_is(own_store: Store) -> None:
    async with serving(settings_of(own_store.root, open_scopes=("predict", "metrics"))) as (
        _,
        client,
    ):
        assert (await client.get("/v1/models")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.post("/v1/models/raw/feedback", json={})).status_code == 401
        assert (await client.get("/v1/admin/jobs")).status_code == 401
        # the key is looked at before the body
        answer = await client.post(
            "/v1/admin/keys", content=b"{", headers={"content-type": "text/html"}
        )
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


async def test_requests_with_a_remembered_head_lose_their_key_too(
    own_store: Store,
) -> None:
    body = b'{"instances": [{"indices": [1], "values": [1.0]}]}'
    async with serving(settings_of(own_store.root, open_scopes=())) as (app, _):
        services = app.state.services
        keys = AccessKeys(services.learning.database)
        made = keys.create("shop", [AccessScope.PREDICT])
        services.ring.refresh()
        path, key = "/v1/models/raw/predict", f"Bearer {made.text}"
        assert answered_from_bytes(app, path, body, authorization=key).startswith(b"HTTP/1.1 200")
        keys.revoke(made.key.id)
        services.ring.refresh()
        message, _ = whole_request(path, body, authorization=key)
        refused = app.state.whole_requests.answer(message, b"")
        assert refused.startswith(b"HTTP/1.1 401")
        assert b"key-revoked" in refused
        assert b"www-authenticate: Bearer" in refused


async def test_the_audit_log_has_changes_of_admins_and_their_refusals(
    own_store: Store,
) -> None:
    async with serving(settings_of(own_store.root, open_scopes=())) as (app, client):
        keys, promote = keys_for(app), "/v1/admin/models/raw/promote"
        admin = {"authorization": f"Bearer {keys['admin'][0]}"}
        done = await client.post(promote, json={"version": 1, "alias": "old"}, headers=admin)
        assert done.json()["version"] == 1
        await client.post(promote, json={"version": 99}, headers=admin)
        await client.post(promote, json={"version": 1})
        await client.get("/v1/admin/keys", headers=admin)
        page = (await client.get("/v1/admin/audit", headers=admin)).json()["entries"]
        found = [(one["who"], one["action"], one["target"], one["outcome"]) for one in page]
        promoted = "admin", "promote", "models/raw/promote"
        assert found == [(*promoted, "version-not-found"), (*promoted, "done")]
        assert not any(text in str(page) for text, _ in keys.values())


def refuse(app: FastAPI, event: str) -> None:
    """Have the database refuse to write to the audit log, as a full disk does."""
    with app.state.services.learning.database.write() as connection:
        connection.exec_driver_sql(
            f"CREATE TRIGGER refused BEFORE {event} ON audit_log "
            "BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        )


async def test_nothing_changes_without_an_audit_entry(own_store: Store) -> None:
    async with serving(settings_of(own_store.root, open_scopes=())) as (app, client):
        admin = {"authorization": f"Bearer {keys_for(app)['admin'][0]}"}
        refuse(app, "INSERT")
        for method, path, scope in requests():
            is_index = path == "/v2/repository/index"  # its method is POST, and it changes nothing
            if scope is AccessScope.ADMIN and method != "GET" and not is_index:
                answer = await client.request(method, path.replace("none", "raw"), headers=admin)
                assert (answer.status_code, answer.json()["code"]) == (
                    503,
                    "database-unavailable",
                ), path
        promoted = {"version": 1, "alias": "old"}
        answer = await client.post("/v1/admin/models/raw/promote", json=promoted, headers=admin)
        assert answer.status_code == 503
        assert own_store.info("raw").aliases.keys() == {"latest", "stable"}


async def test_an_outcome_that_cannot_be_written_is_logged_whole(
    own_store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(settings_of(own_store.root, open_scopes=())) as (app, client):
        keys = AccessKeys(app.state.services.learning.database)
        made = keys.create("ann", [AccessScope.ADMIN])
        app.state.services.ring.refresh()
        headers = {"authorization": f"Bearer {made.text}", "x-request-id": "r-1"}
        refuse(app, "UPDATE")
        promote = "/v1/admin/models/raw/promote"
        outcomes = {1: "done", 99: "version-not-found"}
        for version in outcomes:
            await client.post(promote, json={"version": version, "alias": "old"}, headers=headers)
        assert own_store.info("raw").aliases["old"] == 1
        page = (await client.get("/v1/admin/audit", headers=headers)).json()["entries"]
        assert [entry["outcome"] for entry in page] == ["begun", "begun"]
    logged = [
        json.loads(line)
        for line in capfd.readouterr().err.splitlines()
        if "audit_unwritten" in line
    ]
    facts = {"key": made.key.id, "who": "ann", "action": "promote", "target": "models/raw/promote"}
    assert [facts.items() <= line.items() for line in logged] == [True, True]
    assert [line["request_id"] for line in logged] == ["r-1", "r-1"]
    assert [line["outcome"] for line in logged] == list(outcomes.values())
    assert [line["entry"] for line in logged] == [entry["id"] for entry in reversed(page)]
