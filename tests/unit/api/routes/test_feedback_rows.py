"""Rows of feedback: kept once, bounded, exported, removed; never where a key says not to."""

import datetime
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from model_store.store import Store
from service.api.door.collectors import read_rows
from service.base.settings import Settings
from service.db.engine import Database
from service.thresholds.live.threshold_counters import event_keys
from service.thresholds.store.feedback_rows import FeedbackRows, add_rows
from tests.conftest import Command, answer, settings_of
from tests.datasets_helpers import write_lines
from tests.feedback_helpers import RAW, client_of, event, predict, send

ADMIN = {"authorization": "Bearer admin-key-of-the-tests"}
ROWS = "/v1/admin/models/raw/feedback-rows"
KEPT: dict[str, Any] = {"feedback_rows": True, "admin_key": SecretStr("admin-key-of-the-tests")}


async def exported(client: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    response = await client.get(ROWS + query, headers=ADMIN)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


async def test_a_row_is_kept_of_each_event_that_counts_and_has_an_instance(
    own_store: Store, database_url: str
) -> None:
    async with client_of(own_store, database_url=database_url, **KEPT) as client:
        token = (await predict(client, threshold=None))["predictions"][0]["prediction_id"]
        both = {"event_id": "both", "labels": ["label::2"], "instance": RAW, "prediction_id": token}
        named = {"event_id": "n", "labels": ["label::1"], "instance": {"indices": [3], "values": [1]}}
        for events in (
            [
                event("a", ["label::1", "label::2"]),
                event("id", ["label::1"], prediction_id=token),
            ],  # by kernels
            [named, event("unknown", ["nosuch"]), both, event("a", ["label::3"])],  # by models
        ):
            await send(client, *events)
        lines = "".join(json.dumps(event(name, ["label::4"])) + "\n" for name in ("s1", "a"))
        await client.post(
            "/v1/models/raw/feedback", content=lines, headers={"content-type": "application/x-ndjson"}
        )
        assert await exported(client) == [
            {"event_id": "a", **RAW, "labels": ["label::1", "label::2"]},
            {"event_id": "n", "indices": [3], "values": [1.0], "labels": ["label::1"]},
            {"event_id": "both", **RAW, "labels": ["label::2"]},
            {"event_id": "s1", **RAW, "labels": ["label::4"]},
        ]
        deleted = await client.post(f"{ROWS}/delete", json={"event_ids": ["n", "nobody"]}, headers=ADMIN)
        assert deleted.json() == {"model": "raw", "deleted": 1}
        assert [row["event_id"] for row in await exported(client, "?days=1")] == ["a", "both", "s1"]
        assert (await send(client, event("n", ["label::1"])))[0]["result"] == "duplicate"
        today = datetime.datetime.now(datetime.UTC).date()
        for day, n in ((today - datetime.timedelta(1), 0), (today, 3)):
            deleted = await client.post(f"{ROWS}/delete", json={"day": f"{day}"}, headers=ADMIN)
            assert deleted.json()["deleted"] == n
        assert await exported(client) == []
        for path, body, status in (
            ("/v1/admin/models/nosuch/feedback-rows", None, 404),
            ("/v1/admin/models/nosuch/feedback-rows/delete", {"event_ids": []}, 404),
            (f"{ROWS}/delete", {"day": "31 February"}, 422),
            (f"{ROWS}/delete", {}, 422),
            (f"{ROWS}?days=0", None, 422),
        ):
            asked = (
                client.get(path, headers=ADMIN)
                if body is None
                else client.post(path, json=body, headers=ADMIN)
            )
            assert (await asked).status_code == status, path
        assert (await client.get(ROWS)).status_code == 401


async def test_nothing_is_kept_unless_it_is_asked_for(own_store: Store) -> None:
    async with client_of(own_store, admin_key=KEPT["admin_key"]) as client:
        await send(client, event("a", ["label::1"]))
        assert await exported(client) == []


@pytest.mark.parametrize("open_scopes", [("predict", "feedback"), ()])
async def test_a_key_says_of_which_models_no_rows_are_kept(
    own_store: Store, open_scopes: tuple[str, ...]
) -> None:
    async with client_of(own_store, open_scopes=open_scopes, **KEPT) as client:
        made = {}
        for name, models in (("none", ["*"]), ("others", ["texts"]), ("raw", ["raw", "texts"])):
            body = {"name": name, "scopes": ["feedback"], "no_rows": models}
            response = await client.post("/v1/admin/keys", json=body, headers=ADMIN)
            assert response.json()["no_rows"] == models
            made[name] = response.json()["key"]
        for name, key in made.items():
            headers = {"authorization": f"Bearer {key}"}
            response = await client.post(
                "/v1/models/raw/feedback", json=event(name, ["label::1"]), headers=headers
            )
            assert response.json()["results"][0]["result"] == "applied"
        assert [row["event_id"] for row in await exported(client)] == ["others"]
        rotated = await client.post(
            f"/v1/admin/keys/{response_id(made['none'])}/rotate", json={}, headers=ADMIN
        )
        assert rotated.json()["no_rows"] == ["*"]
        bad = {"name": "x", "scopes": ["feedback"], "no_rows": ["No Model"]}
        assert (await client.post("/v1/admin/keys", json=bad, headers=ADMIN)).status_code == 422


def response_id(key: str) -> str:
    return key.split("_")[1]


def rows_of(url: str, **changes: Any) -> tuple[Database, FeedbackRows]:
    database = Database(url)
    settings: Settings = settings_of(Path("unused"), **changes)
    return database, FeedbackRows(database, settings)


def test_the_oldest_rows_go_first_and_are_counted(database_url: str) -> None:
    database, rows = rows_of(database_url, feedback_rows_max=1500, feedback_row_days_max=7)
    names = [str(i) for i in range(3500)]
    lines = [(key, name.encode()) for key, name in zip(event_keys("m", names), names, strict=True)]
    with database.write() as connection:
        add_rows(connection, "m", lines)
        add_rows(connection, "m", lines[:9])  # each once
        add_rows(connection, "other", [(b"%16d" % i, b"{}") for i in range(2)])
        connection.exec_driver_sql(f"UPDATE feedback_rows SET at = at - {8 * 86_400} WHERE number <= 1200")
    assert [*rows.lines(rows.span("m"))] == [line for _, line in lines[1200:]]  # too old is not read either
    rows.trim()
    assert rows.dropped == {("m", "days"): 1200, ("m", "rows"): 800}
    assert [*rows.lines(rows.span("m"))] == [line for _, line in lines[2000:]]
    rows.trim()
    assert rows.kept == {"m": 1500, "other": 2}
    assert rows.dropped.total() == 2000
    figures = {metric.name: [s.value for s in metric.samples] for metric in read_rows(rows)}
    assert figures["xylem_feedback_rows"] == [1500, 2]
    assert rows.forget("other", [b"%16d" % 1, b"%16d" % 7]) == 1
    database.close()


def test_the_command_exports_and_deletes(
    own_store: Store, command: Command, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XYLEM_FEEDBACK_ROWS", "1")
    events = (event(name, ["label::1"]) for name in ("a", "b-and-no-other", "c"))
    write_lines(tmp_path / "events.jsonl", events)
    sent = answer(command("feedback", "raw", "--data", tmp_path / "events.jsonl", "--json"))
    assert sent["applied"] == 3
    assert (
        answer(command("feedback", "delete", "raw", "--event-id", "b-and-no-other", "--json"))["deleted"] == 1
    )
    assert b"b-and-no-other" not in (own_store.root / "xylem.db").read_bytes()
    to = tmp_path / "rows.jsonl"
    assert answer(command("feedback", "export", "raw", "--file", to, "--days", 3, "--json"))["bytes"] > 100
    assert [json.loads(line)["event_id"] for line in to.read_text().splitlines()] == ["a", "c"]
    for arguments, found in (
        (("delete", "nosuch", "--event-id", "x"), "nosuch"),
        (("delete", "raw"), "expected either event_ids or day, found neither"),
        (("delete", "raw", "--day", "monday"), "expected a day as 2026-11-23, found 'monday'"),
    ):
        status, _, told = command("feedback", *arguments)
        assert (status, found in told) == (2, True), told
    answer(command("models", "delete", "raw", "--all", "--json"))
    status, _, told = command("feedback", "export", "raw", "--file", to)
    assert (status, "raw" in told) == (2, True)
