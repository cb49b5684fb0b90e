"""Thresholds of a version whose name another one has: of a store that
was made anew, or of two that share.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert, select, text
from tests.conftest import Command, answer
from tests.helpers.feedback_helpers import Replica, client_of, instance_event, put_candidate
from tests.helpers.small_models import small_draft

from xylem.base.db.engine import Database
from xylem.base.db.tables import CHECKPOINTS, LOG, SHADOWS, VERSIONS
from xylem.cli.evaluate import tuned_of
from xylem.serving.live.opening import open_version
from xylem.serving.stores import store_of
from xylem.thresholds.live.follower import Follower
from xylem.thresholds.live.shadow import put_shadow, take_shadow
from xylem.thresholds.methods.ofo import Start, no_counts
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ForeignThresholds, ThresholdDatabase, find_head, lock_head
from xylem.workflows.extend import carry_thresholds
from xylem_store.names import build_names
from xylem_store.origin import origin_arrays
from xylem_store.store import Store

N_LABELS = 12
NAMES = [f"role::{name}" for name in ("program", "library", "data", *map(str, range(9)))]
RENAMED = ["role::application", *sorted(NAMES[1:])]
"""Labels of a training on the same data, of which one is called
otherwise: the ids of others are others.
"""

OURS, OTHER = "a" * 64, "b" * 64


def state_of(threshold: float) -> Tuned:
    counters = no_counts(N_LABELS)
    return Tuned("ofo", "zero", Start(1.0, 4.0), np.full(N_LABELS, threshold, np.float32), counters)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.close()


def rows_of(database: Database) -> list[Any]:
    """All that the database has of versions."""
    with database.read() as connection:
        return [
            list(map(tuple, connection.execute(select(table))))
            for table in (VERSIONS, LOG, CHECKPOINTS, SHADOWS)
        ]


def put(database: Database, _: str) -> None:
    with database.write() as connection:
        put_shadow(connection, lock_head(connection, "m", 1, OURS), state_of(0.3))


def find(database: Database, _: str) -> None:
    with database.read() as connection:
        find_head(connection, "m", 1, OURS)


def send(_: Database, url: str) -> None:
    replica = Replica(url)
    replica.live.digest = OURS
    try:
        replica.send(instance_event("one", [1], 1))
    finally:
        replica.close()


def catch_up(_: Database, url: str) -> None:
    replica = Replica(url)
    replica.live.digest = OURS
    try:
        replica.catch_up()
    finally:
        replica.close()


DOORS: dict[str, Callable[[Database, str], Any]] = {
    "tuned": lambda database, _: ThresholdDatabase(database).save("m", 1, state_of(0.2), OURS),
    "loaded": lambda database, _: ThresholdDatabase(database).load("m", 1, OURS),
    "restored": lambda database, _: ThresholdDatabase(database).restore("m", 1, 1, OURS),
    "switched": lambda database, _: take_shadow(database, "m", 1, OURS, switch=True),
    "dropped": lambda database, _: take_shadow(database, "m", 1, OURS, switch=False),
    "a candidate": put,
    "shown": find,
    "feedback": send,
    "followed": catch_up,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_thresholds_of_another_version_are_refused_and_stay(
    database: Database, database_url: str, door: Callable[[Database, str], Any]
) -> None:
    ThresholdDatabase(database).save("m", 1, state_of(0.25), OTHER)
    put_candidate(database, 1, state_of(0.5))
    before = rows_of(database)
    with pytest.raises(
        ForeignThresholds, match=f"{OURS[:12]}, found those of {OTHER[:12]}.*--reset"
    ):
        door(database, database_url)
    assert rows_of(database) == before


def test_a_row_of_before_is_of_the_first_version_that_comes(database: Database) -> None:
    kept_in = ThresholdDatabase(database)
    kept_in.save("m", 1, state_of(0.25))
    assert kept_in.load("m", 1, OURS) is not None
    with database.write() as connection:
        assert lock_head(connection, "m", 1, OURS).digest == OURS
    with pytest.raises(ForeignThresholds):
        kept_in.load("m", 1, OTHER)


def test_a_server_that_only_follows_takes_a_row_of_before(
    database: Database, database_url: str
) -> None:
    ThresholdDatabase(database).save("m", 1, state_of(0.25))
    replica = Replica(database_url)
    replica.live.digest = OURS
    Follower(database, 1.0, lambda: None).add(replica.live)
    replica.close()
    assert (replica.live.epoch, replica.live.is_foreign) == (1, False)
    with database.read() as connection:
        head = find_head(connection, "m", 1)
    assert head is not None and head.digest == OURS


def test_an_older_database_gets_the_column_and_serves_both(
    database: Database, database_url: str
) -> None:
    columns = [column.name for column in VERSIONS.c if column.name != "digest"]
    ThresholdDatabase(database).save("m", 1, state_of(0.25))
    with database.write() as connection:
        connection.execute(text("ALTER TABLE threshold_versions DROP COLUMN digest"))
    newer = Database(database_url)
    assert ThresholdDatabase(newer).load("m", 1, OURS) is not None
    with newer.write() as connection:
        lock_head(connection, "m", 1, OURS)
        older = insert(VERSIONS).values(
            dict.fromkeys(columns[3:], 0) | {"model": "m", "version": 2}
        )
        connection.execute(older)
        assert lock_head(connection, "m", 2, OTHER).digest == OTHER
        named = ", ".join(columns)
        assert len(connection.execute(text(f"SELECT {named} FROM threshold_versions")).all()) == 2
        assert connection.execute(text("SELECT max(number) FROM schema_version")).scalar_one() == 1
    newer.close()


def test_reset_starts_anew_and_old_predictions_are_late(
    database: Database, database_url: str
) -> None:
    kept_in = ThresholdDatabase(database)
    for threshold in (0.25, 0.3):
        kept_in.save("m", 1, state_of(threshold), OTHER)
    put_candidate(database, 1, state_of(0.5))
    epoch = kept_in.reset("m", 1, state_of(0.125), OURS)
    tuned = kept_in.load("m", 1, OURS)
    assert tuned is not None and tuned.thresholds.tolist() == [0.125] * N_LABELS
    with database.read() as connection:
        head = find_head(connection, "m", 1, OURS)
        assert head is not None and head.epoch == head.base_epoch == epoch == 4
        assert connection.execute(select(SHADOWS)).all() == []
        assert [row.epoch for row in connection.execute(select(CHECKPOINTS))] == [epoch]
    for door in (DOORS["loaded"], DOORS["feedback"]):
        door(database, database_url)
    with pytest.raises(ForeignThresholds):
        kept_in.load("m", 1, OTHER)


def publish(root: Path, names: list[str], **changes: Any) -> Store:
    store = store_of(root)
    draft = small_draft(3, n_labels=N_LABELS, n_features=40, labels=build_names(names), **changes)
    store.publish("m", draft)
    return store


def remake(store: Store) -> Store:
    """The store made anew, of the same data with one label renamed; the database
    beside it stays.
    """
    shutil.rmtree(store.root / "models")
    return publish(store.root, RENAMED)


def event(number: int, label: str, **more: Any) -> dict[str, Any]:
    values = np.random.default_rng(number).standard_normal(8).round(3).tolist()
    row = {"indices": list(range(number % 20, number % 20 + 8)), "values": values}
    return {"event_id": f"e{number}", "labels": [label], **({"instance": row} | more)}


PREDICT = {"instances": [{"indices": [1, 5], "values": [1.0, 2.0]}], "threshold": 0.0}


async def test_a_store_made_anew_gets_no_thresholds_of_other_labels(
    tmp_path: Path, command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    store = publish(tmp_path / "store", NAMES)
    async with client_of(store) as client:
        events = [event(i, NAMES[0]) for i in range(200)]
        told = await client.post("/v1/models/m/feedback", json={"events": events})
        assert told.status_code == 200, told.text
        shown = (await client.get("/v1/models/m/thresholds")).json()
        moved = {each["label"]: each["marks"] for each in shown["labels"] if each["marks"]}
        assert moved[NAMES[0]] >= 200
        old = (await client.post("/v1/models/m/predict", json=PREDICT)).json()["predictions"][0]
    remake(store)
    capfd.readouterr()
    async with client_of(store) as client:
        for path in ("thresholds", "threshold-history?id=0"):
            refused = await client.get(f"/v1/models/m/{path}")
            assert (refused.status_code, refused.json()["code"]) == (503, "thresholds-foreign")
        refused = await client.post(
            "/v1/models/m/feedback", json={"events": [event(300, RENAMED[0])]}
        )
        assert (refused.status_code, refused.json()["code"]) == (503, "thresholds-foreign")
        tuned = await client.post("/v1/models/m/predict", json={**PREDICT, "threshold": "tuned"})
        assert tuned.json()["code"] == "thresholds-not-tuned"
        page = (await client.get("/metrics")).text
        assert 'xylem_thresholds_foreign{model="m",version="1"} 1.0' in page
        assert "thresholds_failed" in capfd.readouterr().err
        told = command("thresholds", "m@1", "--reset", "--json", store=store.root)
        assert answer(told)["version"] == 1
        sent = {
            "events": [
                event(300, RENAMED[0]),
                {"event_id": "late", "prediction_id": old["prediction_id"], "labels": [RENAMED[1]]},
            ]
        }
        told = await client.post("/v1/models/m/feedback", json=sent)
        assert told.status_code == 200, told.text
        results = [each.get("reason", each["result"]) for each in told.json()["results"]]
        assert results == ["applied", "thresholds-replaced"]
        shown = (await client.get("/v1/models/m/thresholds")).json()
        assert sum(each["hits"] for each in shown["labels"]) <= 1


def test_commands_refuse_them_too(tmp_path: Path, command: Command) -> None:
    store = publish(tmp_path / "store", NAMES)
    with own_database(store.root) as database:
        digest = store.manifest("m", 1).digest
        ThresholdDatabase(database).save("m", 1, state_of(0.25), digest)
    assert tuned_of(store.root, store.open("m")) is not None
    remake(store)
    rows = tmp_path / "rows.txt"
    rows.write_text(f"20 40 {N_LABELS}\n" + "1 1:1 2:2\n" * 20)
    for line in (
        ("evaluate", "m", "--data", rows),
        ("thresholds", "m", "--data", rows),
        ("thresholds", "m", "--data", rows, "--shadow"),
        ("thresholds", "m", "--switch"),
        ("thresholds", "m", "--drop"),
    ):
        status, _, told = command(*line, store=store.root)
        assert status == 1 and "--reset" in told, (line, told)
    assert command("thresholds", "m", "--reset", "--data", rows, store=store.root)[0] == 2
    assert command("thresholds", "m", "--reset", store=store.root)[0] == 0
    assert command("evaluate", "m", "--data", rows, store=store.root)[0] == 0


@contextmanager
def own_database(root: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{root}/xylem.db")
    yield database
    database.close()


def test_a_version_takes_no_thresholds_of_another_store(tmp_path: Path) -> None:
    store = publish(tmp_path / "store", NAMES)
    origin = origin_arrays({"parent": {"model": "m", "version": 1, "content": ""}}, None)
    extra = {"labels/counts": np.ones(N_LABELS, np.int64), **origin}
    publish(store.root, NAMES, extra=extra)
    with own_database(store.root) as database:
        kept_in = ThresholdDatabase(database)
        kept_in.save("m", 1, state_of(0.25), OTHER)
        with pytest.raises(ForeignThresholds):
            carry_thresholds(store, "m", 2, kept_in)
        assert kept_in.load("m", 2) is None
        kept_in.reset(
            "m", 1, state_of(0.25), open_version(store.open("m", 1)).thresholds.digest or ""
        )
        assert carry_thresholds(store, "m", 2, kept_in)
