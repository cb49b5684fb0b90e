"""Schedules, each run once whatever happens; jobs whose data is
feedback, the newest of it held out.
"""

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.conftest import together
from tests.helpers.datasets_helpers import refused, write_lines
from tests.helpers.job_places import Place, rule
from tests.helpers.jobs_helpers import N_LABELS, TRAINING, Desk, settings_for, write_data
from tests.helpers.small_models import small_draft

from xylem.admin.jobs import schedules as module
from xylem.admin.jobs.errors import ScheduleNotFound
from xylem.admin.jobs.kinds import check_request
from xylem.admin.jobs.schedules import Schedules, next_time
from xylem.base import errors
from xylem.base.db.tables import SCHEDULES
from xylem.base.settings import Limits
from xylem.thresholds.live.events import event_keys
from xylem.thresholds.store.feedback_rows import add_rows
from xylem.workflows.calibrate import calibrate_and_publish
from xylem_store.errors import Conflict
from xylem_store.origin import learnt_feedback
from xylem_store.store import Store

OF_A_MONTH = {"feedback": {"model": "m", "days": 30}}
LOOP = {"data": ["train.jsonl", OF_A_MONTH], "valid": {"feedback": 0.25}}
FEEDBACK = {**TRAINING, **LOOP}
TO_NOBODY = {"feedback": {"model": "nosuch"}}


def keep_rows(desk: Desk, n: int, first: int = 0, model: str = "m") -> list[bytes]:
    """Have rows of feedback of another vocabulary than the
    files', so that it shows who learnt them.
    """
    rng = random.Random(first)
    ids, lines = [str(i) for i in range(first, first + n)], []
    for event_id in ids:
        label = rng.randrange(N_LABELS)
        text, labels = f"new{label} word{rng.randrange(30)}", [f"label{label}"]
        lines.append(json.dumps({"event_id": event_id, "text": text, "labels": labels}).encode())
    with desk.database.write() as connection:
        rows = zip(event_keys(model, ids), lines, strict=True)
        add_rows(connection, model, {key: (line, "") for key, line in rows})
    return lines


class Desks:
    """A database of schedules and jobs, and several workers that look at it."""

    def __init__(self, directory: Path, url: str) -> None:
        settings = settings_for(directory, database_url=url, feedback_rows=True)
        Store(settings.store).publish("m", small_draft(1, features={"kind": "named"}))
        self.desk = Desk(settings, url)
        self.schedules = Schedules(self.desk.database, self.desk.settings)
        self.n_rows = 0

    def keep_rows(self, n: int, model: str = "m") -> None:
        keep_rows(self.desk, n, self.n_rows, model)
        self.n_rows += n

    def pass_time(self, seconds: float) -> None:
        with self.desk.database.write() as connection:
            connection.execute(update(SCHEDULES).values(next_at=SCHEDULES.c.next_at - seconds))


@pytest.fixture
def desks(tmp_path: Path, database_url: str) -> Iterator[Desks]:
    made = Desks(tmp_path, database_url)
    yield made
    made.desk.database.close()


def test_a_schedule_runs_each_time_its_number_of_rows_has_come(
    desks: Any,
) -> None:
    desks.keep_rows(40)  # before the schedule: not for it
    made = desks.schedules.create_schedule("training", FEEDBACK, rows=30)
    desks.keep_rows(29)
    desks.keep_rows(500, model="other")
    assert desks.schedules.run_due() == 0
    assert desks.schedules.schedules()[0]["rows_come"] == 29
    desks.keep_rows(1)
    assert desks.schedules.run_due() == 1
    desks.keep_rows(70)
    assert desks.schedules.run_due() == 0  # its job waits
    desks.desk.finish()
    assert desks.schedules.run_due() == 1  # once, though rows for two runs have come
    desks.desk.finish()
    assert desks.schedules.run_due() == 0
    (found,) = desks.schedules.schedules()
    jobs = desks.desk.jobs.list()
    assert (found["runs"], found["rows_come"], found["last_job"]) == (2, 0, jobs[0].id)
    assert [job.request for job in jobs] == [FEEDBACK, FEEDBACK]
    assert desks.schedules.delete_schedule(made["id"])["id"] == made["id"]
    with pytest.raises(ScheduleNotFound):
        desks.schedules.delete_schedule(made["id"])


def test_missed_times_are_one_run_that_one_worker_submits(desks: Any) -> None:
    made = desks.schedules.create_schedule("training", TRAINING, cron="0 3 * * 0")
    assert (made["alias"], made["rows"], made["runs"]) == ("latest", None, 0)
    assert desks.schedules.run_due() == 0
    desks.pass_time(30 * 86_400)
    workers = [Schedules(desks.desk.database, desks.desk.settings) for _ in range(6)]
    together(*(worker.run_due for worker in workers))
    assert len(desks.desk.jobs.list()) == 1
    (found,) = desks.schedules.schedules()
    assert found["runs"] == 1 and found["next"] > made["created"]
    desks.desk.finish()
    assert desks.schedules.run_due() == 0


def test_a_death_between_job_and_schedule_leaves_one_job(desks: Any, monkeypatch: Any) -> None:
    desks.schedules.create_schedule("training", TRAINING, cron="* * * * *")
    desks.pass_time(3600)
    with monkeypatch.context() as patched:
        patched.setattr(module, "update", lambda table: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            desks.schedules.run_due()
    assert [job.state for job in desks.desk.jobs.list()] == ["queued"]
    assert desks.schedules.run_due() == 1
    assert len(desks.desk.jobs.list()) == 1
    assert desks.schedules.schedules()[0]["runs"] == 1


def test_a_queue_that_is_full_is_tried_again(desks: Any) -> None:
    full = Schedules(desks.desk.database, desks.desk.limited(jobs_queued_max=1).settings)
    full.create_schedule("training", TRAINING, cron="* * * * *")
    job = desks.desk.jobs.submit("training", TRAINING)
    desks.pass_time(3600)
    with pytest.raises(errors.Overloaded):
        full.run_due()
    desks.desk.jobs.cancel(job.id)
    assert full.run_due() == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_no_job_would_take_is_refused_at_once(desks: Any) -> None:
    for body, path, found in (
        ({"cron": "0 0 31 2 *"}, "cron", "which never does"),
        ({"cron": "every day"}, "cron", "of 5 fields, found 'every day'"),
        ({"cron": "* * * * * *"}, "cron", "of 5 fields"),
        ({"cron": "0 25 * * *"}, "cron", "expected a cron line, found '0 25"),
        ({"cron": "* " * 4 + "*" * 200}, "cron", "of 5 fields"),
        ({"cron": "* * * * *", "rows": 5}, "cron", "expected either cron or rows, found both"),
        ({}, "cron", "found neither"),
        ({"rows": 100_001}, "rows", "1 to 100000 rows"),
        ({"rows": 5, "job": {**FEEDBACK, "trainer": "none"}}, "job.trainer", "expected"),
        ({"rows": 5, "job": {**TRAINING, "data": [TO_NOBODY]}}, "job.data", "'nosuch'"),
        ({"rows": 5, "job": []}, None, "expected an object"),
        ({"rows": 5, "kind": "sleeping"}, "kind", "'sleeping'"),
    ):
        with refused(errors.BadRequest, re.escape(found), body) as caught:
            desks.schedules.create_schedule(**{"kind": "training", "job": FEEDBACK, **body})
        (fault,) = getattr(caught.value, "faults", [caught.value])
        assert fault.path == path, str(fault)
    assert desks.schedules.schedules() == []


def test_an_alias_has_one_schedule(desks: Any, monkeypatch: Any) -> None:
    stable = {**TRAINING, "promotion": {"alias": "stable"}}
    kept = {**TRAINING, "promotion": {"alias": None}}
    create = desks.schedules.create_schedule
    first = create("training", TRAINING, cron="0 3 * * *")
    for job in (TRAINING, {**TRAINING, "promotion": {"if": [{"metric": "P@1"}]}}):
        with pytest.raises(Conflict, match=f"latest, found schedule {first['id']}"):
            create("training", job, cron="0 4 * * *")
    with pytest.raises(Conflict, match="expected one schedule"):
        create("extend", {"model": "m", "data": "train.jsonl"}, cron="0 4 * * *")
    for job in (stable, kept, kept, {**TRAINING, "model": "other"}):
        create("training", job, cron="0 4 * * *")
    for _ in range(2):
        create("batch", {"model": "m", "data": "train.jsonl"}, cron="0 4 * * *")
    monkeypatch.setattr(module, "SCHEDULES_MAX", 7)
    with pytest.raises(errors.LimitExceeded):
        create("training", kept, cron="0 4 * * *")
    desks.schedules.delete_schedule(first["id"])
    assert create("training", TRAINING, cron="0 3 * * *")["alias"] == "latest"


def test_times_are_those_of_utc(monkeypatch: Any) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        sunday = 1_795_921_200.0  # 2026-11-29 03:00 UTC
        assert next_time("0 3 * * 0", sunday - 1) == sunday
        assert next_time("0 3 * * sun", sunday) == sunday + 7 * 86_400
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_schedule_waits_for_rows_that_are_not_stored(
    desks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Schedules(
        desks.desk.database, desks.desk.settings.model_copy(update={"feedback_rows": False})
    )
    with pytest.raises(
        errors.BadRequest, match="expected XYLEM_FEEDBACK_ROWS=1, without which no rows"
    ):
        off.create_schedule("training", FEEDBACK, rows=5)
    monkeypatch.setattr("xylem.admin.jobs.jobs.REQUEST_BYTES_MAX", 50)
    with pytest.raises(errors.LimitExceeded, match="at most 50 bytes"):
        desks.schedules.create_schedule("training", TRAINING, cron="0 3 * * *")


def test_a_training_with_feedback_is_measured_on_the_newest(place: Place) -> None:
    lines = keep_rows(place.desk, 201)
    job_id = place.submit("training", {**FEEDBACK, "promotion": rule("latest", ("P@1", 5.0))})
    keep_rows(place.desk, 20, first=900)  # which come later than the job, and are not for it
    directory = place.store.root / "jobs" / job_id / "work" / "joined"
    joined = []

    def at(phase: str) -> None:
        if phase == "publish":
            names = ("train+feedback.jsonl", "held-out.jsonl")
            joined.extend((directory / name).read_bytes() for name in names)

    job = place.run(job_id, at)
    train = (place.data / "train.jsonl").read_bytes()
    assert joined == [train + b"\n".join(lines[:150]) + b"\n", b"\n".join(lines[150:]) + b"\n"]
    assert (job.result["rows"], job.result["labels"]) == (350, N_LABELS)
    assert place.store.manifest("m", 2).data.source == "train+feedback.jsonl"
    assert job.promotion.promoted, job.promotion


def test_tables_and_files_are_joined_line_by_line(place: Place) -> None:
    (place.data / "more.csv").write_text("text,labels\nfirst1 word2,label1;label2\n")
    job = place.train(data=["train.jsonl", "more.csv", "valid.jsonl"], valid=None, split=0.2)
    assert 200 < job.result["rows"] < 281


@pytest.mark.parametrize(
    ("n", "valid", "least"), [(0, None, "1 row"), (1, {"feedback": 0.5}, "2 rows")]
)
def test_a_job_for_feedback_that_is_not_there_says_so(
    place: Place, n: int, valid: Any, least: str
) -> None:
    keep_rows(place.desk, n)
    fault = f"expected at least {least} of feedback to m, found {n or 'none'}"
    with pytest.raises(errors.BadData, match=fault):
        place.train(**{**LOOP, "valid": valid})


def test_what_is_wrong_with_data_is_told_at_its_place(place: Place) -> None:
    (place.data / "rows.svm").write_text("1 1:1\n")
    for changes, path, found in (
        (
            {"data": [OF_A_MONTH, "nowhere.jsonl"]},
            "data[1]",
            "expected a file below the data directory",
        ),
        (
            {"data": [{"feedback": {"model": "No/Model"}}]},
            "data[0].feedback.model",
            "model name: expected",
        ),
        (
            {"data": [{"feedback": {"model": "m", "day": 3}}]},
            "data[0].feedback.day",
            "did you mean days",
        ),
        ({"data": [7]}, "data[0]", "expected a string"),
        ({"data": 7}, "data", "expected a string"),
        ({"data": []}, "data", "at least 1 item"),
        ({"data": ["train.jsonl"]}, "valid", "expected feedback in data"),
        ({"data": ["rows.svm", OF_A_MONTH]}, "data[0]", "which can be joined, found 'rows.svm'"),
        ({"valid": {"feedback": 2}}, "valid.feedback", "0.9"),
        ({"seed": -1, "data": [OF_A_MONTH, "nowhere.jsonl"]}, "data[1]", "expected a file below"),
    ):
        with refused(errors.BadFields, re.escape(found), changes) as caught:
            check_request("training", {**FEEDBACK, **changes}, place.desk.jobs.data, Limits())
        told = {fault.path: str(fault) for fault in caught.value.faults}
        assert found in told.get(path, ""), told
        assert len(told) == 1 + ("seed" in changes)


def test_an_extension_with_feedback_holds_the_newest_out(place: Place) -> None:
    place.train(model="kept", keep_rows=True)
    keep_rows(place.desk, 40)
    (place.data / "new.jsonl").write_text('{"text": "word0 word1", "labels": ["brand new"]}\n' * 5)
    body = {"model": "kept", "data": ["new.jsonl", OF_A_MONTH], "valid": {"feedback": 0.25}}
    assert place.do("extend", body).result["labels"] == N_LABELS + 1
    model = place.store.open("kept", 2)
    assert model.arrays["labels/counts"].sum() == 200 + 5 + 30 and model.manifest.metrics


def test_a_combination_leaves_out_feedback_of_its_members(place: Place) -> None:
    """Or its scores are so good there that the ranker trusts it too much, and the
    gain is not true.
    """
    keep_rows(place.desk, 120)
    keep_rows(place.desk, 30, first=500, model="both")
    place.train(model="member", data=["train.jsonl", OF_A_MONTH], valid=None, keep_rows=True)
    write_lines(place.data / "new.jsonl", [{"text": "word0 word1", "labels": ["brand new"]}] * 5)
    place.do("extend", {"model": "member", "data": "new.jsonl"})
    place.train(
        model="member", trainer="label-tree", parameters={}, valid=None, **{"from": "member@1"}
    )
    valid = place.data / "many.jsonl"
    write_data(valid, 400, seed=3)
    calibrate_and_publish(place.store, "member", 1, valid)
    origins = [
        learnt_feedback(place.store.open("member", version).arrays) for version in (1, 2, 3, 4)
    ]
    assert origins == [origins[0]] * 4 and origins[0].keys() == {"m"}
    wanted = {"model": "both", "members": ["member@1"], "data": [OF_A_MONTH]}
    for version in (1, 2, 3, 4):
        asked = {**wanted, "members": ["m@1", f"member@{version}"]}
        fault = "expected at least 1 row of feedback to m that no member was trained on, found none"
        with pytest.raises(errors.BadData, match=fault):
            place.do("combine", asked)
    keep_rows(place.desk, 60, first=900)
    done = place.do("combine", {**wanted, "valid": {"feedback": 0.25}})
    assert done.result["combined"]["rows"] == 45
    assert place.do("combine", {**wanted, "members": ["m@1"]}).result["combined"]["rows"] == 180
    to_others = {**wanted, "data": [{"feedback": {"model": "both"}}]}
    assert place.do("combine", to_others).result["combined"]["rows"] == 30


def test_feedback_of_sparse_rows_is_refused_as_data(place: Place) -> None:
    place.store.publish("sparse", small_draft(1))
    with pytest.raises(errors.BadFields, match="found sparse, a model of sparse rows"):
        place.train(data=[{"feedback": {"model": "sparse"}}])
