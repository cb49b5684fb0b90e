"""Corrections over HTTP: rows of feedback by label and key, and whether their texts are stored."""

import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, text
from tests.conftest import Command, answer, settings_of
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.feedback_helpers import ADMIN_KEY, PATH, client_of, event

from xylem.base.db.engine import Database
from xylem.base.db.tables import FEEDBACK_ROWS, RECIPES
from xylem.serving.batches.lines import dump
from xylem.thresholds.live.events import event_keys
from xylem.thresholds.store.feedback_rows import FeedbackRows, add_rows
from xylem_store.store import Store

CORRECTIONS = "/v1/admin/models/raw/corrections"
DELETE = "/v1/admin/models/raw/feedback-rows/delete"


async def send_as(client: httpx.AsyncClient, name: str, n: int, no_rows: Any = ()) -> str:
    """Send events `NAME0` and so on with a new key of this name; return the key."""
    body = {"name": name, "scopes": ["feedback"], "no_rows": list(no_rows)}
    key: str = (await client.post("/v1/admin/keys", json=body)).json()["key"]
    for i in range(n):
        sent = event(f"{name}{i}", [f"label::{i}"])
        headers = {"authorization": f"Bearer {key}"}
        response = await client.post(PATH, json=sent, headers=headers)
        assert response.json()["results"][0]["result"] == "applied", response.text
    return key


async def page(client: httpx.AsyncClient, query: str = "") -> dict[str, Any]:
    response = await client.get(CORRECTIONS + query)
    assert response.status_code == 200, response.text
    corrections: dict[str, Any] = response.json()
    return corrections


async def test_corrections_are_paged_by_label_and_by_key(own_store: Store) -> None:
    async with client_of(own_store, feedback_rows=True, as_admin=True) as client:
        await send_as(client, "shop", 3)
        await send_as(client, "branch", 2)
        await client.post(PATH, json=event("mine", ["label::0"]))
        every = await page(client)
        ids = [row["event_id"] for row in every["corrections"]]
        assert ids == ["mine", "branch1", "branch0", "shop2", "shop1", "shop0"]
        assert (every["n_rows"], every["next"]) == (6, None)
        newest = every["corrections"][0]
        assert newest["key"] == "XYLEM_ADMIN_KEY" and newest["text"] is None
        assert newest["labels"] == ["label::0"] and newest["gone_labels"] == []
        first = await page(client, "?limit=2&label=label%3A%3A0")
        assert [row["event_id"] for row in first["corrections"]] == ["mine", "branch0"]
        second = await page(client, f"?limit=2&label=label%3A%3A0&before={first['next']}")
        assert [row["event_id"] for row in second["corrections"]] == ["shop0"]
        assert second["next"] is None
        of_shop = await page(client, "?key=shop")
        assert {row["key"] for row in of_shop["corrections"]} == {"shop"}
        for nothing in ("?key=nobody", "?label=none", "?key=%00", "?before=1"):
            empty = await page(client, nothing)
            assert (empty["corrections"], empty["next"], empty["n_rows"]) == ([], None, 6)
        for wrong in ("?limit=0", "?limit=201", "?before=0", "?before=x", "?colour=1"):
            assert (await client.get(CORRECTIONS + wrong)).status_code == 422, wrong
        missing = await client.get("/v1/admin/models/nosuch/corrections")
        assert missing.json()["code"] == "model-not-found"


def test_rows_are_found_by_labels_as_they_are_written(database_url: str) -> None:
    labels = ["l1", "l12", 'a "quoted" \\ label', "näätä\n", "\x01\x7f", "http://x.org/1"]
    with contextlib.closing(Database(database_url)) as database:
        with database.write() as connection:
            for i, label in enumerate([*labels, "other"]):
                line = dump({"event_id": str(i), "text": '"l1" näätä', "labels": ["x", label]})
                add_rows(connection, "m", {b"%016d" % i: (line, "shop")})
        rows = FeedbackRows(database, settings_of(Path("unused")))
        for i, label in enumerate(labels):
            (row,) = rows.newest("m", 9, None, label, None)
            assert (row["event_id"], row["key"]) == (str(i), "shop"), label
        assert len(rows.newest("m", 9, None, "x", "shop")) == 7
        for label, key in ((None, "sh\0p"), (None, "\udcff"), ("\udcff", None), ("näät", None)):
            assert rows.newest("m", 9, None, label, key) == []


async def test_all_rows_of_a_key_are_deleted(own_store: Store) -> None:
    async with client_of(own_store, feedback_rows=True, as_admin=True) as client:
        await send_as(client, "shop", 3)
        await send_as(client, "branch", 1)
        assert (await client.post(DELETE, json={"key": "shop"})).json()["deleted"] == 3
        assert (await client.post(DELETE, json={"key": "shop"})).json()["deleted"] == 0
        assert [row["key"] for row in (await page(client))["corrections"]] == ["branch"]
        for wrong in ({"key": "a\0"}, {"key": "shop", "event_ids": ["x"]}, {}):
            assert (await client.post(DELETE, json=wrong)).status_code == 422, wrong


async def test_a_label_that_went_away_is_named(own_store: Store, database_url: str) -> None:
    line = json.dumps({"event_id": "e", "text": "a", "labels": ["label::1", "gone"]}).encode()
    with contextlib.closing(Database(database_url)) as database, database.write() as connection:
        add_rows(connection, "raw", {event_keys("raw", ["e"])[0]: (line, "shop")})
    async with client_of(own_store, database_url=database_url, as_admin=True) as client:
        (row,) = (await page(client))["corrections"]
        assert (row["text"], row["key"]) == ("a", "shop")
        assert (row["labels"], row["gone_labels"]) == (["label::1", "gone"], ["gone"])


def test_rows_from_before_the_column_have_no_key(database_url: str) -> None:
    earlier = "INSERT INTO feedback_rows (model, event_key, at, line) VALUES ('m', :key, 1e18, :l)"
    with contextlib.closing(Database(database_url)) as database, database.write() as connection:
        connection.execute(text("ALTER TABLE feedback_rows DROP COLUMN key"))
        connection.execute(text(earlier), {"key": b"1" * 16, "l": b'{"labels": ["x"]}'})
    with contextlib.closing(Database(database_url)) as database:
        with database.write() as connection:  # a replica of the earlier build goes on beside
            connection.execute(text(earlier), {"key": b"2" * 16, "l": b'{"labels": ["y"]}'})
        rows = FeedbackRows(database, settings_of(Path("unused")))
        assert [row["key"] for row in rows.newest("m", 9, None, None, None)] == [None, None]
        assert rows.newest("m", 9, None, None, "shop") == []
        assert [row["number"] for row in rows.newest("m", 1, None, "x", None)] == [1]


@pytest.mark.parametrize("recipe", [None, {}, {"keep_texts": True}, {"keep_texts": False}])
def test_a_recipe_may_refuse_texts(database_url: str, recipe: Any) -> None:
    with contextlib.closing(Database(database_url)) as database:
        with database.write() as connection:
            if recipe is not None:
                row = {"model": "m", "recipe": json.dumps(recipe), "changed": 0.0}
                connection.execute(insert(RECIPES).values(row))
            add_rows(connection, "m", {b"1" * 16: (b"{}", "")})
            n = len(connection.execute(FEEDBACK_ROWS.select()).all())
        because = FeedbackRows(database, settings_of(Path("unused"), feedback_rows=True)).refusal(
            "m"
        )
    refuses = recipe == {"keep_texts": False}
    assert n == (0 if refuses else 1)
    assert because == (
        "the recipe of m refuses texts: its keep_texts is false" if refuses else None
    )


@pytest.mark.parametrize(
    ("is_on", "no_rows", "because"),
    [
        (True, [], None),
        (False, [], "the service stores no texts of feedback: XYLEM_FEEDBACK_ROWS is not set"),
        (True, ["raw"], "this key gives no texts to raw: it was made with --no-rows"),
    ],
)
async def test_who_corrects_learns_whether_texts_stay(
    own_store: Store, is_on: bool, no_rows: list[str], because: str | None
) -> None:
    options: Any = {"feedback_rows": is_on, "open_scopes": ("predict",)}
    async with client_of(own_store, as_admin=True, **options) as client:
        key = await send_as(client, "shop", 1, no_rows)
        client.headers["authorization"] = f"Bearer {key}"
        answered = await client.get(PATH)
        assert answered.json() == {"rows_stored": because is None, "because": because}
        assert (await client.get("/v1/models/nosuch/feedback")).status_code == 404
        client.headers["authorization"] = f"Bearer {ADMIN_KEY}"
        assert len((await page(client))["corrections"]) == (because is None)
        del client.headers["authorization"]
        assert (await client.get(PATH)).status_code == 401


def test_the_command_lists_corrections_and_deletes_by_key(
    own_store: Store, command: Command, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_FEEDBACK_ROWS", "1")
    events = tmp_path / "events.jsonl"
    write_lines(events, (event(f"e{i}", [f"label::{i}"]) for i in range(3)))
    answer(command("feedback", "raw", "--data", events, "--json"))
    listed = answer(command("feedback", "list", "raw", "--json", "--label", "label::1"))
    assert [row["event_id"] for row in listed["corrections"]] == ["e1"]
    status, printed, _ = command("feedback", "list", "raw", "--limit", 2)
    assert status == 0 and "2 of 3 rows of raw" in printed and "label::2" in printed
    status, printed, _ = command("feedback", "list", "raw", "--key", "shop")
    assert (status, printed.strip()) == (0, "No such rows of raw")
    assert answer(command("feedback", "delete", "raw", "--key", "shop", "--json"))["deleted"] == 0
    status, _, complaint = command("feedback", "list", "nosuch")
    assert status == 2 and "nosuch" in complaint
