"""Thresholds over HTTP: shown and restored, also while their database hangs."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator

import pytest
from tests.helpers.feedback_helpers import client_of, event, fault, outcomes, predict, send

from xylem.api.routes import thresholds as threshold_routes
from xylem.base.db.engine import Database
from xylem.thresholds.live import follower as follower_module
from xylem_store.store import Store

PATH = "/v1/models/raw/thresholds"
RESTORE = "/v1/admin/models/raw/thresholds/restore"


async def test_thresholds_are_shown_in_pages(own_store: Store) -> None:
    async with client_of(own_store) as client:
        assert fault(await client.get(PATH)) == (409, "thresholds-not-tuned")
        await send(client, event("a", ["label::3"]), event("b", ["label::3", "label::4"]))
        whole = (await client.get(PATH)).json()
        assert (whole["n_labels"], whole["n_events"], whole["threshold_epoch"]) == (11, 2, 2)
        pages = [(await client.get(f"{PATH}?offset={i}&limit=4")).json() for i in (0, 4, 8)]
        assert [page["next_offset"] for page in pages] == [4, 8, None]
        assert [label for page in pages for label in page["labels"]] == whole["labels"]
        summary = (await client.get(f"{PATH}?limit=0")).json()
        assert (summary["labels"], summary["n_labels"], summary["next_offset"]) == ([], 11, None)
        marks = {label["label"]: label["marks"] for label in whole["labels"]}
        assert marks["label::3"] >= 2
        few = {
            label["label"] for label in (await client.get(f"{PATH}?marks_below=2")).json()["labels"]
        }
        assert few == {name for name, n in marks.items() if n < 2}
        many = "&".join(["limit=1"] * 17)
        limits = "limit=-1", "limit=10001", "limit=%FF", "limit=1&limit=2", many
        for query in (*limits, "offset=x", "offset=", "other=1"):
            assert fault(await client.get(f"{PATH}?{query}")) == (422, "bad-request"), query


async def test_an_earlier_epoch_is_restored(own_store: Store) -> None:
    async with client_of(own_store, as_admin=True) as client:
        assert fault(await client.post(RESTORE, json={"epoch": 1})) == (409, "thresholds-not-tuned")
        await send(client, event("a", ["label::3"]))
        before = (await client.get(PATH)).json()
        token = (await predict(client))["predictions"][0]["prediction_id"]
        await send(client, event("b", ["label::5"]), event("c", []))
        answer = await client.post(RESTORE, json={"epoch": before["threshold_epoch"]})
        assert answer.json() == {"model": "raw", "version": 2, "threshold_epoch": 4}
        after = (await client.get(PATH)).json()
        assert (after["labels"], after["threshold_epoch"]) == (before["labels"], 4)
        assert [one["kind"] for one in after["checkpoints"]] == ["restored", "started"]
        late = event("d", [], prediction_id=token)
        assert await outcomes(client, late, event("b", [])) == [
            "late: thresholds-replaced",
            "duplicate",
        ]
        for body in ({"epoch": 99}, {"epoch": 0}, {"epoch": True}, {}, [], {"epoch": 1, "x": 2}):
            refused = await client.post(RESTORE, json=body)
            says, _, found = refused.json()["detail"].partition(", found ")
            assert (refused.status_code, "expected" in says) == (422, True)
            assert found not in ("", "another value"), refused.text


async def test_clients_are_not_told_where_the_database_is(
    own_store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their answers say only that it does not answer; the log has what it said."""
    said = "connection to server at db.internal failed"

    @contextlib.contextmanager
    def refuse(database: Database) -> Iterator[None]:
        with database._errors():
            raise sqlite3.OperationalError(said)
        yield  # never

    async with client_of(own_store, as_admin=True, threshold_refresh_ms=600_000) as client:
        await send(client, event("a", ["label::3"]))
        monkeypatch.setattr(Database, "write", refuse)
        monkeypatch.setattr(Database, "read", refuse)
        for answer in (
            await client.get(PATH),
            await client.post("/v1/models/raw/feedback", json=event("b", [])),
            await client.post(RESTORE, json={"epoch": 1}),
        ):
            assert answer.status_code == 503
            assert "database-unavailable" in answer.text
            assert "expected a database that answers, found that it does not" in answer.text
            assert "db.internal" not in answer.text
    logged = [line for line in capfd.readouterr().err.splitlines() if '"request_failed"' in line]
    assert len(logged) == 3
    assert all(said in line for line in logged)


async def test_who_waits_for_a_hanging_database_delays_nobody_else(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    async with client_of(own_store, request_seconds_max=0.5, queue_max=4) as client:
        await send(client, event("a", ["label::3"]))
        monkeypatch.setattr(threshold_routes, "describe_thresholds", lambda *_: gate.wait())
        asking = [asyncio.create_task(client.get(PATH)) for _ in range(20)]
        await asyncio.sleep(0.1)
        assert (await client.get("/v1/models/raw")).status_code == 200
        assert (await predict(client))["threshold_epoch"] == 2
        codes = [answer.json()["code"] for answer in await asyncio.gather(*asking)]
        assert set(codes) == {"timed-out", "overloaded"}
        gate.set()


async def test_a_database_that_hangs_is_not_asked(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(own_store, as_admin=True) as client:
        await send(client, event("a", ["label::3"]))
        monkeypatch.setattr(follower_module, "HANG_SECONDS", -1000.0)
        for answer in (await client.get(PATH), await client.post(RESTORE, json={"epoch": 1})):
            assert fault(answer) == (503, "database-unavailable")
        monkeypatch.undo()
        assert (await client.get(PATH)).status_code == 200
