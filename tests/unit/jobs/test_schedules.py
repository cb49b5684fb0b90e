"""Schedules: by a cron line and by rows of feedback, each run once whatever happens, and what is refused."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from model_store.errors import Conflict
from model_store.store import Store
from service.base.errors import BadRequest, LimitExceeded, Overloaded, ScheduleNotFound
from service.db.tables import SCHEDULES
from service.jobs import schedules as module
from service.jobs.schedules import Schedules, next_time
from service.thresholds.store.feedback_rows import add_rows
from tests.conftest import together
from tests.jobs_helpers import TRAINING, Desk, settings_for
from tests.small_models import small_draft

FEEDBACK = {**TRAINING, "data": ["train.jsonl", {"feedback": {"model": "m"}}], "valid": {"feedback": 0.2}}
FEEDBACK_TO_NOBODY = {"feedback": {"model": "nosuch"}}


class Place:
    """A database of schedules and jobs, and several workers that look at it."""

    def __init__(self, directory: Path, url: str) -> None:
        settings = settings_for(directory, database_url=url, feedback_rows=True)
        Store(settings.store).publish("m", small_draft(1, features={"kind": "named"}))
        self.desk = Desk(settings, url)
        self.schedules = Schedules(self.desk.database, self.desk.settings)
        self.n_rows = 0

    def keep_rows(self, n: int, model: str = "m") -> None:
        keys = [b"%16d" % (self.n_rows + i) for i in range(n)]
        self.n_rows += n
        with self.desk.database.write() as connection:
            add_rows(connection, model, [(key, b"{}") for key in keys])

    def pass_time(self, seconds: float) -> None:
        with self.desk.database.write() as connection:
            connection.execute(update(SCHEDULES).values(next_at=SCHEDULES.c.next_at - seconds))


@pytest.fixture
def place(tmp_path: Path, database_url: str) -> Iterator[Place]:
    made = Place(tmp_path, database_url)
    yield made
    made.desk.database.close()


def test_a_schedule_runs_when_its_rows_have_come_and_again_when_as_many_more_have(place):
    place.keep_rows(40)  # before the schedule: not for it
    made = place.schedules.create_schedule("training", FEEDBACK, rows=30)
    place.keep_rows(29)
    place.keep_rows(500, model="other")
    assert place.schedules.run_due() == 0
    assert place.schedules.schedules()[0]["rows_come"] == 29
    place.keep_rows(1)
    assert place.schedules.run_due() == 1
    place.keep_rows(70)
    assert place.schedules.run_due() == 0  # its job waits
    place.desk.finish()
    assert place.schedules.run_due() == 1  # once, though rows for two runs have come
    place.desk.finish()
    assert place.schedules.run_due() == 0
    (found,) = place.schedules.schedules()
    jobs = place.desk.jobs.list()
    assert (found["runs"], found["rows_come"], found["last_job"]) == (2, 0, jobs[0].id)
    assert [job.request for job in jobs] == [FEEDBACK, FEEDBACK]
    assert place.schedules.delete_schedule(made["id"])["id"] == made["id"]
    with pytest.raises(ScheduleNotFound):
        place.schedules.delete_schedule(made["id"])


def test_times_that_were_missed_are_one_run_and_of_many_workers_one_submits_it(place):
    made = place.schedules.create_schedule("training", TRAINING, cron="0 3 * * 0")
    assert (made["alias"], made["rows"], made["runs"]) == ("latest", None, 0)
    assert place.schedules.run_due() == 0
    place.pass_time(30 * 86_400)
    workers = [Schedules(place.desk.database, place.desk.settings) for _ in range(6)]
    together(*(worker.run_due for worker in workers))
    assert len(place.desk.jobs.list()) == 1
    (found,) = place.schedules.schedules()
    assert found["runs"] == 1 and found["next"] > made["created"]
    place.desk.finish()
    assert place.schedules.run_due() == 0


def test_a_worker_that_dies_between_the_job_and_its_schedule_leaves_one_job(place, monkeypatch):
    place.schedules.create_schedule("training", TRAINING, cron="* * * * *")
    place.pass_time(3600)
    with monkeypatch.context() as patched:
        patched.setattr(module, "update", lambda table: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            place.schedules.run_due()
    assert [job.state for job in place.desk.jobs.list()] == ["queued"]
    assert place.schedules.run_due() == 1
    assert len(place.desk.jobs.list()) == 1
    assert place.schedules.schedules()[0]["runs"] == 1


def test_a_queue_that_is_full_is_tried_again(place):
    full = Schedules(place.desk.database, place.desk.limited(jobs_queued_max=1).settings)
    full.create_schedule("training", TRAINING, cron="* * * * *")
    job = place.desk.jobs.submit("training", TRAINING)
    place.pass_time(3600)
    with pytest.raises(Overloaded):
        full.run_due()
    place.desk.jobs.cancel(job.id)
    assert full.run_due() == 1


@pytest.mark.parametrize(
    ("body", "path", "found"),
    [
        ({"cron": "0 0 31 2 *"}, "cron", "which never does"),
        ({"cron": "every day"}, "cron", "of 5 fields, found 'every day'"),
        ({"cron": "* * * * * *"}, "cron", "of 5 fields"),
        ({"cron": "0 25 * * *"}, "cron", "expected a cron line, found '0 25"),
        ({"cron": "* " * 4 + "*" * 200}, "cron", "of 5 fields"),
        ({"cron": "* * * * *", "rows": 5}, "cron", "expected either cron or rows, found both"),
        ({}, "cron", "found neither"),
        ({"rows": 100_001}, "rows", "1 to 100000 rows"),
        ({"rows": 5, "job": {**FEEDBACK, "trainer": "none"}}, "job.trainer", "expected"),
        ({"rows": 5, "job": {**TRAINING, "data": [FEEDBACK_TO_NOBODY]}}, "job.data", "'nosuch'"),
        ({"rows": 5, "job": []}, None, "expected an object"),
        ({"rows": 5, "kind": "sleeping"}, "kind", "'sleeping'"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_no_job_would_take_is_refused_at_once(place, body, path, found):
    with pytest.raises(BadRequest) as caught:
        place.schedules.create_schedule(**{"kind": "training", "job": FEEDBACK, **body})
    (fault,) = getattr(caught.value, "faults", [caught.value])
    assert (fault.path, found in str(fault)) == (path, True), str(fault)
    assert place.schedules.schedules() == []


def test_an_alias_has_one_schedule(place, monkeypatch):
    stable = {**TRAINING, "promotion": {"alias": "stable"}}
    kept = {**TRAINING, "promotion": {"alias": None}}
    create = place.schedules.create_schedule
    first = create("training", TRAINING, cron="0 3 * * *")
    for job in (TRAINING, {**TRAINING, "promotion": {"if": [{"metric": "P@1"}]}}):
        with pytest.raises(Conflict, match=f"latest, found that {first['id']} is another"):
            create("training", job, cron="0 4 * * *")
    with pytest.raises(Conflict, match="another"):
        create("extend", {"model": "m", "data": "train.jsonl"}, cron="0 4 * * *")
    for job in (stable, kept, kept, {**TRAINING, "model": "other"}):
        create("training", job, cron="0 4 * * *")
    for _ in range(2):
        create("batch", {"model": "m", "data": "train.jsonl"}, cron="0 4 * * *")
    monkeypatch.setattr(module, "SCHEDULES_MAX", 7)
    with pytest.raises(LimitExceeded):
        create("training", kept, cron="0 4 * * *")
    place.schedules.delete_schedule(first["id"])
    assert create("training", TRAINING, cron="0 3 * * *")["alias"] == "latest"


def test_rows_that_are_not_kept_are_not_waited_for(place):
    off = Schedules(place.desk.database, place.desk.settings.model_copy(update={"feedback_rows": False}))
    with pytest.raises(BadRequest, match="expected XYLEM_FEEDBACK_ROWS=1, without which no rows"):
        off.create_schedule("training", FEEDBACK, rows=5)


def test_times_are_those_of_utc(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        sunday = 1_795_921_200.0  # 2026-11-29 03:00 UTC
        assert next_time("0 3 * * 0", sunday - 1) == sunday
        assert next_time("0 3 * * sun", sunday) == sunday + 7 * 86_400
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_body_that_is_too_long_for_a_job_is_no_schedule(place, monkeypatch):
    monkeypatch.setattr("service.jobs.jobs.REQUEST_BYTES_MAX", 50)
    with pytest.raises(LimitExceeded, match="at most 50 bytes"):  # else it would hold up all that come after
        place.schedules.create_schedule("training", TRAINING, cron="0 3 * * *")
