"""Rows of feedback: kept once, bounded, exported, removed; never where a key says not to."""

import datetime
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_store.store import Store
from service.access.key_text import id_of
from service.api.door.collectors import read_rows
from service.db.engine import Database
from service.thresholds.live.threshold_counters import event_keys
from service.thresholds.store.feedback_rows import FeedbackRows, add_rows
from tests.conftest import Command, answer, settings_of
from tests.datasets_helpers import write_lines
from tests.feedback_helpers import NDJSON, PATH, RAW, client_of, event, predict, send

ROWS = "/v1/admin/models/raw/feedback-rows"
KEPT: dict[str, Any] = {"feedback_rows": True, "as_admin": True}


async def exported(client: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    response = await client.get(ROWS + query)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


async def test_a_row_is_kept_of_each_event_with_an_instance(own_store: Store, database_url: str) -> None:
    async with client_of(own_store, database_url=database_url, **KEPT) as client:
        token = (await predict(client, threshold=None))["predictions"][0]["prediction_id"]
        both = event("both", ["label::2"], instance=RAW, prediction_id=token)
        named = event("n", ["label::1"], instance={"indices": [3], "values": [1]})
        by_kernels = event("a", ["label::1", "label::2"]), event("id", ["label::1"], prediction_id=token)
        by_models = named, event("unknown", ["nosuch"]), both, event("a", ["label::3"])
        for events in (by_kernels, by_models):
            await send(client, *events)
        lines = "".join(json.dumps(event(name, ["label::4"])) + "\n" for name in ("s1", "a"))
        await client.post(PATH, content=lines, headers=NDJSON)
        assert await exported(client) == [
            {"event_id": "a", **RAW, "labels": ["label::1", "label::2"]},
            {"event_id": "n", "indices": [3], "values": [1.0], "labels": ["label::1"]},
            {"event_id": "both", **RAW, "labels": ["label::2"]},
            {"event_id": "s1", **RAW, "labels": ["label::4"]},
        ]
        deleted = await client.post(f"{ROWS}/delete", json={"event_ids": ["n", "nobody"]})
        assert deleted.json() == {"model": "raw", "deleted": 1}
        assert [row["event_id"] for row in await exported(client, "?days=1")] == ["a", "both", "s1"]
        assert (await send(client, event("n", ["label::1"])))[0]["result"] == "duplicate"
        today = datetime.datetime.now(datetime.UTC).date()
        for day, n in ((today - datetime.timedelta(1), 0), (today, 3)):
            deleted = await client.post(f"{ROWS}/delete", json={"day": f"{day}"})
            assert deleted.json()["deleted"] == n
        assert await exported(client) == []
        nosuch = ROWS.replace("raw", "nosuch")
        for method, path, body, status in (
            ("GET", nosuch, None, 404),
            ("POST", f"{nosuch}/delete", {"event_ids": []}, 404),
            ("POST", f"{ROWS}/delete", {"day": "31 February"}, 422),
            ("POST", f"{ROWS}/delete", {}, 422),
            ("GET", f"{ROWS}?days=0", None, 422),
        ):
            assert (await client.request(method, path, json=body)).status_code == status, path
        del client.headers["authorization"]
        assert (await client.get(ROWS)).status_code == 401


async def test_nothing_is_kept_unless_it_is_asked_for(own_store: Store) -> None:
    async with client_of(own_store, as_admin=True) as client:
        await send(client, event("a", ["label::1"]))
        assert await exported(client) == []


@pytest.mark.parametrize("open_scopes", [("predict", "feedback"), ()])
async def test_a_key_says_of_which_models_no_rows_are_kept(own_store: Store, open_scopes: Any) -> None:
    async with client_of(own_store, open_scopes=open_scopes, **KEPT) as client:
        made = {}
        for name, models in (("none", ["*"]), ("others", ["texts"]), ("raw", ["raw", "texts"])):
            body = {"name": name, "scopes": ["feedback"], "no_rows": models}
            response = await client.post("/v1/admin/keys", json=body)
            assert response.json()["no_rows"] == models
            made[name] = response.json()["key"]
        for name, key in made.items():
            headers = {"authorization": f"Bearer {key}"}
            response = await client.post(PATH, json=event(name, ["label::1"]), headers=headers)
            assert response.json()["results"][0]["result"] == "applied"
        assert [row["event_id"] for row in await exported(client)] == ["others"]
        rotated = await client.post(f"/v1/admin/keys/{id_of(made['none'])}/rotate", json={})
        assert rotated.json()["no_rows"] == ["*"]
        bad = {"name": "x", "scopes": ["feedback"], "no_rows": ["No Model"]}
        assert (await client.post("/v1/admin/keys", json=bad)).status_code == 422


def test_the_oldest_rows_go_first_and_are_counted(database: Database) -> None:
    settings = settings_of(Path("unused"), feedback_rows_max=1500, feedback_row_days_max=7)
    rows = FeedbackRows(database, settings)
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


def test_the_command_exports_and_deletes(
    own_store: Store, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_FEEDBACK_ROWS", "1")
    events, to = tmp_path / "events.jsonl", tmp_path / "rows.jsonl"
    write_lines(events, (event(name, ["label::1"]) for name in ("a", "b-and-no-other", "c")))
    assert answer(command("feedback", "raw", "--data", events, "--json"))["applied"] == 3
    deleted = answer(command("feedback", "delete", "raw", "--event-id", "b-and-no-other", "--json"))
    assert deleted["deleted"] == 1
    assert b"b-and-no-other" not in (own_store.root / "xylem.db").read_bytes()
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
