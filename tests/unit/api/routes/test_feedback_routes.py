"""Feedback over HTTP: what counts, what moves, and which rows of it are kept,
exported and removed.
"""

import asyncio
import datetime
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.conftest import Command, answer, settings_of
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.feedback_helpers import (
    NDJSON,
    PATH,
    RAW,
    client_of,
    event,
    fault,
    outcomes,
    predict,
    send,
    signed,
)

from xylem.api.door.metrics import read_rows
from xylem.base.db import clock
from xylem.base.db.engine import Database
from xylem.serving.feedback.tokens import Tokens
from xylem.thresholds.live.events import event_keys
from xylem.thresholds.store.feedback_rows import FeedbackRows, add_rows
from xylem_store.store import Store

KEY = "0123456789abcdef0123456789abcdef"
PREDICT = "/v1/models/raw/predict"
TUNED = {"instances": [RAW], "threshold": "tuned"}
ROWS = "/v1/admin/models/raw/feedback-rows"
KEPT: dict[str, Any] = {"feedback_rows": True, "as_admin": True}


async def exported(client: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    """The rows that are kept."""
    response = await client.get(ROWS + query)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


async def tuned_labels(client: httpx.AsyncClient) -> tuple[int, set[str]]:
    """The epoch, and the labels predicted then."""
    found = await predict(client)
    return found["threshold_epoch"], {one["label"] for one in found["predictions"][0]["labels"]}


async def test_an_event_counts_once_and_moves_its_thresholds(own_store: Store) -> None:
    async with client_of(own_store, as_admin=True) as client:
        assert fault(await client.post(PREDICT, json=TUNED)) == (409, "thresholds-not-tuned")
        events = event("a", ["label::3"]), event("a", []), event("b", [])
        assert await outcomes(client, *events) == ["applied", "duplicate", "applied"]
        before, shown = await tuned_labels(client)
        assert before == 2 and shown
        for i in range(
            30
        ):  # nothing of what is predicted is true: thresholds fall, and more is predicted
            await send(client, event(f"c{i}", []))
        after, more = await tuned_labels(client)
        assert after == 32 and more >= shown
        assert await outcomes(client, event("a", [])) == ["duplicate"]
        single = await client.post(PATH, json=event("single", []))
        assert single.json()["results"] == [{"event_id": "single", "result": "applied"}]
        figures = (await client.get("/metrics")).text
        assert (
            'xylem_feedback_events_total{model="raw",result="duplicate",version="2"} 2.0' in figures
        )
        assert 'xylem_threshold_epoch{model="raw",version="2"} 33.0' in figures
        assert await exported(client) == []  # rows are kept only where it is asked for


async def test_a_prediction_id_stands_for_what_was_predicted(own_store: Store) -> None:
    async with client_of(own_store) as client:
        await send(client, event("begin", []))
        answer = (await predict(client))["predictions"][0]
        token = answer["prediction_id"]
        plain = (await predict(client, threshold=None))["predictions"][0]["prediction_id"]
        labels = [one["label"] for one in answer["labels"]]
        right = [
            event(f"right{i}", labels, prediction_id=one) for i, one in enumerate((token, plain))
        ]
        assert await outcomes(client, *right) == ["applied", "applied"]
        for forged in (token[:-1] + ("A" if token[-1] != "A" else "B"), "nothing of ours", ""):
            wrong = event(f"forged {forged}", [], prediction_id=forged)
            assert await outcomes(client, wrong) == ["rejected: prediction-forged"]
            beside = await outcomes(client, wrong, event(f"beside {forged}", []))
            assert beside == ["rejected: prediction-forged", "applied"]
        other = await outcomes(
            client, event("t", [], prediction_id=token), path="/v1/models/named/feedback"
        )
        assert other == ["rejected: prediction-other-model"]


@pytest.mark.parametrize(
    ("days", "outcome"), [(-31, "late: prediction-expired"), (2, "rejected: prediction-future")]
)
async def test_clocks(own_store: Store, monkeypatch: Any, days: int, outcome: str) -> None:
    tokens = Tokens([KEY.encode()], 30 * 86_400)
    now = time.time()
    monkeypatch.setattr("xylem.serving.feedback.tokens.time.time", lambda: now + days * 86_400)
    token = signed(tokens, "raw", 2, 0, [0])
    monkeypatch.undo()
    async with client_of(own_store, token_key=SecretStr(f"new-key,{KEY}")) as client:
        assert await outcomes(client, event("x", [], prediction_id=token)) == [outcome]


async def test_bad_events_are_rejected_one_by_one(own_store: Store) -> None:
    bad: list[tuple[Any, str]] = [
        (7, "bad-request"),
        ({}, "bad-request"),
        (event("x", ["label::3"], instance={"text": "a"}), "bad-instance"),
        (event("x", ["no such label"]), "unknown-label"),
        (event("", []), "bad-request"),
        (event("x" * 257, []), "limit-exceeded"),
        ({"event_id": "x", "labels": []}, "bad-request"),
        (event("x", [], instance={"text": "a"}, prediction_id="y"), "prediction-forged"),
        (event("x", [], instance={"indices": [-1], "values": [1]}), "bad-instance"),
        ({"event_id": 3, "labels": [], "instance": RAW}, "bad-request"),
    ]
    events, reasons = [one for one, _ in bad], [reason for _, reason in bad]
    async with client_of(own_store) as client:
        results = await send(client, *events, event("good", ["label::1"]))
        assert [one.get("reason", one["result"]) for one in results] == [*reasons, "applied"]
        lines = [*map(json.dumps, events), "{", json.dumps(event("z", []))]
        response = await client.post(PATH, content="\n".join(lines), headers=NDJSON)
        found = [json.loads(line) for line in response.text.splitlines()]
        assert [one.get("reason", one["result"]) for one in found] == [
            *reasons,
            "malformed-json",
            "applied",
        ]
        assert [one.get("line") for one in found] == [*range(1, len(bad) + 2), None]
        assert {one["result"] for one in [*results[:-1], *found[:-1]]} == {"rejected"}
        many = {"events": [event(str(i), []) for i in range(1025)]}
        assert fault(await client.post(PATH, json=many)) == (422, "limit-exceeded")


async def test_predictions_go_on_without_a_database(
    own_store: Store,
) -> None:
    async with client_of(own_store, database_url="sqlite:////no/such/directory/xylem.db") as client:
        answer = await client.post(PREDICT, json={"instances": [RAW]})
        assert answer.status_code == 200
        assert fault(await client.post(PREDICT, json=TUNED)) == (503, "database-unavailable")
        for headers in ({}, NDJSON):
            refused = await client.post(PATH, json=event("a", []), headers=headers)
            assert fault(refused) == (503, "database-unavailable")
            assert refused.headers["retry-after"]
        assert "xylem_database_failed 1.0" in (await client.get("/metrics")).text


async def test_a_stream_of_any_length_is_answered_in_order(own_store: Store) -> None:
    names = [f"s{i % 250}" for i in range(300)]

    async def chunks() -> Any:
        for i, name in enumerate(names):
            yield json.dumps(event(name, [f"label::{i % 11}"])).encode() + b"\n"

    async with client_of(own_store) as client:
        response = await client.post(PATH, content=chunks(), headers=NDJSON)
    found = [json.loads(line) for line in response.text.splitlines()]
    assert [one["event_id"] for one in found] == names
    assert [one["result"] for one in found] == ["applied"] * 250 + ["duplicate"] * 50


async def test_the_database_goes_and_comes_back(own_store: Store, tmp_path: Path) -> None:
    directory = tmp_path / "database"
    directory.mkdir()
    async with client_of(own_store, database_url=f"sqlite:///{directory}/xylem.db") as client:
        await send(client, event("a", ["label::3"]))
        before = await client.post(PREDICT, json=TUNED)
        assert "xylem-thresholds" not in before.headers
        connection = sqlite3.connect(directory / "xylem.db", isolation_level=None)
        connection.execute("ALTER TABLE threshold_versions RENAME TO elsewhere")
        async with asyncio.timeout(60):
            while (now := await client.post(PREDICT, json=TUNED)).headers.get(
                "xylem-thresholds"
            ) != "stale":
                assert now.status_code == 200
        assert now.json()["threshold_epoch"] == before.json()["threshold_epoch"]
        refused = await client.post(PATH, json=event("b", []))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        connection.execute("ALTER TABLE elsewhere RENAME TO threshold_versions")
        connection.close()
        assert await outcomes(client, event("a", []), event("b", [])) == ["duplicate", "applied"]
        async with asyncio.timeout(60):
            while "xylem-thresholds" in (await client.post(PREDICT, json=TUNED)).headers:
                await asyncio.sleep(0.01)


async def test_replicas_follow_each_other(own_store: Store) -> None:
    path = "/v1/models/raw/thresholds"
    async with client_of(own_store) as one, client_of(own_store) as other:
        await send(one, *(event(f"e{i}", [f"label::{i}"]) for i in range(5)))
        shown = (await one.get(path)).json()
        async with asyncio.timeout(60):
            while (await other.get(path)).json().get("threshold_epoch") != 2:
                await asyncio.sleep(0.01)
        assert (await other.get(path)).json() == shown
        token = (await predict(one))["predictions"][0]["prediction_id"]
        found = await outcomes(other, event("t", [], prediction_id=token), event("e0", []))
        assert found == ["applied", "duplicate"]


async def test_a_row_is_kept_of_each_event_with_an_instance(
    own_store: Store, database_url: str
) -> None:
    async with client_of(own_store, database_url=database_url, **KEPT) as client:
        key = client.headers.pop("authorization")  # what is open comes without one
        token = (await predict(client, threshold=None))["predictions"][0]["prediction_id"]
        both = event("both", ["label::2"], instance=RAW, prediction_id=token)
        named = event("n", ["label::1"], instance={"indices": [3], "values": [1]})
        by_kernels = (
            event("a", ["label::1", "label::2"]),
            event("id", ["label::1"], prediction_id=token),
        )
        by_models = named, event("unknown", ["nosuch"]), both, event("a", ["label::3"])
        await send(client, *by_kernels)
        await send(client, *by_models)
        lines = "".join(json.dumps(event(name, ["label::4"])) + "\n" for name in ("s1", "a"))
        await client.post(PATH, content=lines, headers=NDJSON)
        client.headers["authorization"] = key
        assert await exported(client) == [
            {"event_id": "a", **RAW, "labels": ["label::1", "label::2"]},
            {"event_id": "n", "indices": [3], "values": [1.0], "labels": ["label::1"]},
            {"event_id": "both", **RAW, "labels": ["label::2"]},
            {"event_id": "s1", **RAW, "labels": ["label::4"]},
        ]
        deleted = await client.post(f"{ROWS}/delete", json={"event_ids": ["n", "nobody"]})
        assert deleted.json() == {"model": "raw", "deleted": 1}
        assert [row["event_id"] for row in await exported(client, "?days=1")] == ["a", "both", "s1"]
        assert await outcomes(client, event("n", ["label::1"])) == ["duplicate"]
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


@pytest.mark.parametrize("open_scopes", [("predict", "feedback"), ()])
async def test_a_key_says_of_which_models_no_rows_are_kept(
    own_store: Store, open_scopes: Any
) -> None:
    async with client_of(own_store, open_scopes=open_scopes, **KEPT) as client:
        made = {}
        for name, models in (("none", ["*"]), ("others", ["texts"]), ("raw", ["raw", "texts"])):
            body = {"name": name, "scopes": ["feedback"], "no_rows": models}
            made[name] = (await client.post("/v1/admin/keys", json=body)).json()
            assert made[name]["no_rows"] == models
            headers = {"authorization": f"Bearer {made[name]['key']}"}
            response = await client.post(PATH, json=event(name, ["label::1"]), headers=headers)
            assert response.json()["results"][0]["result"] == "applied"
        assert [row["event_id"] for row in await exported(client)] == ["others"]
        rotated = await client.post(f"/v1/admin/keys/{made['none']['id']}/rotate", json={})
        assert rotated.json()["no_rows"] == ["*"]
        bad = {"name": "x", "scopes": ["feedback"], "no_rows": ["No Model"]}
        assert (await client.post("/v1/admin/keys", json=bad)).status_code == 422


def test_the_oldest_rows_go_first_and_are_counted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "AGREEMENT_SECONDS", 0.0)
    settings = settings_of(Path("unused"), feedback_rows_max=1500, feedback_row_days_max=7)
    rows = FeedbackRows(database, settings)
    names = [str(i) for i in range(3500)]
    lines = [(key, name.encode()) for key, name in zip(event_keys("m", names), names, strict=True)]
    with database.write() as connection:
        rows_of_m = {key: (line, "") for key, line in lines}
        add_rows(connection, "m", rows_of_m)
        add_rows(connection, "m", dict(list(rows_of_m.items())[:9]))  # each once
        add_rows(connection, "other", {b"%16d" % i: (b"{}", "") for i in range(2)})
        connection.exec_driver_sql(
            f"UPDATE feedback_rows SET at = at - {8 * 86_400} WHERE number <= 1200"
        )
    assert [*rows.lines(rows.span("m"))] == [
        line for _, line in lines[1200:]
    ]  # too old is not read either
    rows.trim()
    assert rows.dropped == {("m", "days"): 1200, ("m", "rows"): 800}
    assert [*rows.lines(rows.span("m"))] == [line for _, line in lines[2000:]]
    rows.trim()
    assert rows.row_counts == {"m": 1500, "other": 2}
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
    exported = answer(command("feedback", "export", "raw", "--file", to, "--days", 3, "--json"))
    assert exported["bytes"] > 100
    assert [json.loads(line)["event_id"] for line in to.read_text().splitlines()] == ["a", "c"]
    for arguments, found in (
        (("delete", "nosuch", "--event-id", "x"), "nosuch"),
        (("delete", "raw"), "expected either event_ids, day or key, found 0 of them"),
        (("delete", "raw", "--day", "monday"), "expected a day such as 2026-11-23, found 'monday'"),
    ):
        status, _, told = command("feedback", *arguments)
        assert (status, found in told) == (2, True), told
    answer(command("models", "delete", "raw", "--all", "--json"))
    status, _, told = command("feedback", "export", "raw", "--file", to)
    assert (status, "raw" in told) == (2, True)
