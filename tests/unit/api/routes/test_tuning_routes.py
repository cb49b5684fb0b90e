"""Thresholds over HTTP: tuned by jobs, tried as candidates, and moved by streams of events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.conftest import settings_of
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.feedback_helpers import NDJSON, client_of, fault
from tests.helpers.jobs_helpers import working
from tests.helpers.measured import learnt
from tests.helpers.schemas import fault_of, openapi
from tests.helpers.small_models import small_draft

from xylem.base import no_progress
from xylem.base.db.engine import Database, default_url
from xylem.engine.combined_predictor import make_predictor
from xylem.thresholds.methods.ofo import Start, lower_bounds, no_counts, thresholds_of
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.thresholds.tuning import TuneRequest
from xylem.workflows.labelled import read_labelled
from xylem.workflows.tuning import tune
from xylem_store.store import Store

N_ROWS, N_LABELS, N_FEATURES = 40, 11, 70
ADMIN = "/v1/admin/models/small/thresholds"
SHOWN, FEEDBACK = "/v1/models/small/thresholds", "/v1/models/small/feedback"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with two models, `small` and `forest`."""
    found, more = (
        Store(tmp_path / "store"),
        {"n_trees": 2, "features": {"kind": "raw", "norm": "none"}},
    )
    found.publish("small", small_draft(3, link="hinge3", **more))
    found.publish("forest", small_draft(3, kind="decision-tree", link="multiway", **more))
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a labelled file, the same as events, and a file outside of it."""
    rng = np.random.default_rng(4)
    directory, events = tmp_path / "data", []
    (directory / "more").mkdir(parents=True)
    text = f"{N_ROWS} {N_FEATURES} {N_LABELS}\n"
    for i in range(N_ROWS):
        indices = np.sort(rng.choice(N_FEATURES, 12, replace=False)).tolist()
        labels = rng.choice(N_LABELS, 2, replace=False).tolist()
        values = rng.standard_normal(12).round(3).tolist()
        pairs = " ".join(f"{f}:{v}" for f, v in zip(indices, values, strict=True))
        text += f"{labels[0]},{labels[1]} {pairs}\n"
        names, row = [f"label::{j}" for j in labels], {"indices": indices, "values": values}
        events.append({"event_id": f"e{i}", "labels": names, "instance": row})
    for file in (directory / "more" / "valid.txt", tmp_path / "outside.txt"):
        file.write_text(text)
    (directory / "link.txt").symlink_to(tmp_path / "outside.txt")
    (directory / "circle.txt").symlink_to(directory / "circle.txt")
    write_lines(directory / "events.jsonl", events)
    return directory


@contextlib.asynccontextmanager
async def tuning(store: Store, data: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, beside a worker that does the jobs of its store."""
    settings = settings_of(store.root, data_dir=data, job_nice=0)
    with (
        contextlib.closing(Database(default_url(store.root))) as database,
        working(settings, database),
    ):
        async with client_of(store, as_admin=True, data_dir=data) as client:
            yield client


async def post(client: httpx.AsyncClient, action: str, body: Any) -> httpx.Response:
    return await client.post(f"{ADMIN}/{action}", json=body)


def conforms(name: str, value: Any) -> None:
    document = openapi()
    assert fault_of(document, document["components"]["schemas"][name], value) is None


async def shown_thresholds(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(SHOWN)).json()
    conforms("Thresholds", found)
    return found


async def test_tuning_over_http_is_tuning_by_the_command(store: Store, data: Path) -> None:
    async with tuning(store, data) as client:
        body = {
            "data": "more/valid.txt",
            "method": "all",
            "test": "more/valid.txt",
            "empty_labels": "zero",
        }
        conforms("TuneThresholdsRequest", body)
        answer = await post(client, "tune", body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        conforms("TuneAnswer", found)
        assert (found["epoch"], found["method"], found["shadow"]) == (1, "ofo", False)
        assert [one["method"] for one in found["methods"]] == ["ofo", "fta", "fta-one", "sto"]
        shown = await shown_thresholds(client)
        assert (shown["threshold_epoch"], shown["shadow"], shown["n_labels"]) == (1, None, N_LABELS)
        request = TuneRequest(("ofo",), data / "more" / "valid.txt", empty="zero")
        (outcome,) = tune(store.open("small"), request, no_progress)
        assert found["validation_macro_f"] == found["test_macro_f"] == outcome.validation.macro_f
        thresholds = [np.float32(label["threshold"]) for label in shown["labels"]]
        assert thresholds == outcome.tuned.thresholds.tolist()
        given = (await post(client, "tune", {"data": "more/valid.txt", "start": [2, 9]})).json()
        assert (given["method"], given["start"], given["epoch"]) == ("ofo", [2, 9], 2)


async def test_what_cannot_be_tuned_is_refused(store: Store, data: Path) -> None:
    files = (
        "../outside.txt", "more/../../outside.txt", "link.txt", "circle.txt", "more", "", ".",
        "none.txt",
        "a\0b", "x" * 5000, str(data / ".." / "outside.txt"), "/etc/passwd", "/dev/zero", "..",
    )  # fmt: skip
    good = {"data": "more/valid.txt", "method": "ofo"}
    bodies: list[Any] = [
        [], {}, {"method": "ofo"}, {**good, "x": 1}, {**good, "version": 0},
        {**good, "version": True}, {**good, "data": 3}, {**good, "method": "best"}, {**good,
        "kappa": 0.9},
        {**good, "start": [1]}, {**good, "start": [3, 4]}, {**good, "start": ["a", 4]}, {**good,
        "shadow": 1},
        {**good, "empty_labels": "two"}, {**good, "kappa": "0.1"}, {**good, "data": "damaged.txt"},
    ]  # fmt: skip
    (data / "damaged.txt").write_text("no header")
    async with tuning(store, data) as client:
        for body in (
            *bodies,
            *({**good, part: file} for file in files for part in ("data", "test")),
        ):
            answer = await post(client, "tune", body)
            assert answer.status_code == 422, (body, answer.text)
            says, _, found = answer.json()["detail"].partition(", found ")
            assert "expected" in says, answer.text
            assert found not in ("", "another", "another value", "other values"), answer.text
            assert str(data.parent) in str(body) or str(data.parent) not in answer.text
        assert (await post(client, "tune", {**good, "version": 7})).status_code == 404
        assert (await client.get(SHOWN)).status_code == 409
    async with client_of(store, as_admin=True) as client:
        answer = await post(client, "tune", good)
        assert (answer.status_code, "XYLEM_DATA_DIR" in answer.json()["detail"]) == (422, True)


async def test_who_waits_for_a_job_waits_so_long_and_not_longer(store: Store, data: Path) -> None:
    body = {"data": "more/valid.txt", "method": "ofo"}
    settings = {"data_dir": data, "tune_seconds_max": 3.0, "event_streams_max": 1}
    async with client_of(store, as_admin=True, **settings) as client:

        async def jobs() -> list[dict[str, Any]]:
            return (await client.get("/v1/admin/jobs")).json()["jobs"]

        first = asyncio.create_task(post(client, "tune", body))
        while not await jobs():
            await asyncio.sleep(0.01)
        for answer, code in (
            (await post(client, "tune", body), "overloaded"),
            (await first, "timed-out"),
        ):
            assert fault(answer) == (503, code)
        assert [(job["kind"], job["state"]) for job in await jobs()] == [
            ("threshold-tuning", "cancelled")
        ]
        assert (await client.get(SHOWN)).status_code == 409
        third = asyncio.create_task(post(client, "tune", body))
        while (await jobs())[0]["state"] != "queued":
            await asyncio.sleep(0.01)
        await client.delete(f"/v1/admin/jobs/{(await jobs())[0]['id']}")
        assert fault(await third) == (409, "job-conflict")


async def test_a_candidate_is_scored_then_switched_on_or_dropped(store: Store, data: Path) -> None:
    events = [json.loads(line) for line in (data / "events.jsonl").read_text().splitlines()]
    shadow = {"data": "more/valid.txt", "method": "fta", "shadow": True}
    async with tuning(store, data) as client:
        assert fault(await post(client, "tune", shadow)) == (409, "thresholds-not-tuned")
        await client.post(FEEDBACK, json={"events": events[:10]})
        for action in ("switch", "drop"):
            assert (await post(client, action, {})).status_code == 409
        before = await shown_thresholds(client)
        answer = await post(client, "tune", shadow)
        assert (answer.status_code, answer.json()["shadow"], answer.json()["epoch"]) == (
            200,
            True,
            3,
        )
        beside = await shown_thresholds(client)
        assert (beside["labels"], beside["shadow"]["n_events"]) == (before["labels"], 0)
        await client.post(FEEDBACK, json={"events": events})
        after = await shown_thresholds(client)
        percents = [200 * one["hits"] / one["marks"] for one in after["labels"] if one["marks"]]
        assert after["macro_f"] == pytest.approx(sum(percents) / len(percents))
        assert after["macro_f"] > 1
        scored = after["shadow"]
        assert (scored["n_events"], scored["method"], scored["since_epoch"]) == (30, "fta", 3)
        assert 1 < scored["macro_f"] <= 100
        assert 0 <= scored["served_macro_f"] <= 100
        figures = (await client.get("/metrics")).text
        line = 'xylem_shadow_macro_f{model="small",thresholds="candidate",version="1"} '
        [figure] = [
            float(one.removeprefix(line)) for one in figures.splitlines() if one.startswith(line)
        ]
        assert 100 * figure == scored["macro_f"]
        assert 'xylem_shadow_events{model="small",version="1"} 30.0' in figures
        for body in ([], {"x": 1}, {"version": "1"}, {"version": 0}):
            assert (await post(client, "switch", body)).status_code == 422
        switched = (await post(client, "switch", {"version": 1})).json()
        assert switched == {"model": "small", "version": 1, "threshold_epoch": 5}
        after = await shown_thresholds(client)
        found = after["method"], after["shadow"], after["checkpoints"][0]["kind"]
        assert found == ("fta", None, "switched")
        assert after["labels"] != beside["labels"]
        await post(client, "tune", shadow)
        assert (await post(client, "drop", {})).json()["threshold_epoch"] == 7
        assert (await shown_thresholds(client))["labels"] == after["labels"]


@pytest.mark.parametrize("name", ["small", "forest"])
async def test_a_stream_ends_with_the_bits_of_the_file(
    name: str, store: Store, data: Path, database: Database, database_url: str
) -> None:
    """OFO over the validation rows through REST, in their order, is OFO over the file, exactly."""
    model = store.open(name)
    start, counts, n_rows = (
        Start(2.0, 9.0, 0.7),
        model.arrays.get("labels/counts"),
        model.manifest.data.rows,
    )
    bounds = lower_bounds(counts, n_rows, N_LABELS)
    begun = Tuned(
        "ofo", "one", start, thresholds_of(no_counts(N_LABELS), start, bounds), no_counts(N_LABELS)
    )
    ThresholdDatabase(database).save(name, 1, begun)
    async with client_of(store, database_url=database_url) as client:
        lines = (data / "events.jsonl").read_bytes()
        answer = await client.post(f"/v1/models/{name}/feedback", content=lines, headers=NDJSON)
        results = [json.loads(line)["result"] for line in answer.text.splitlines()]
        assert results == ["applied"] * N_ROWS
        shown = (await client.get(f"/v1/models/{name}/thresholds")).json()["labels"]
    labelled = read_labelled(model, data / "more" / "valid.txt", no_progress)
    rows, labels, predictor = labelled.rows, labelled.labels, make_predictor(model)
    counters, thresholds = learnt(predictor, rows, labels, start, counts, n_rows)
    assert [np.float32(label["threshold"]) for label in shown] == thresholds.tolist()
    assert [label["hits"] for label in shown] == counters.hits.tolist()
    assert [label["marks"] for label in shown] == counters.marks.tolist()
    assert counters.hits.sum() > 5
    assert ThresholdDatabase(database).load(name, 1).thresholds.tobytes() == thresholds.tobytes()
