"""A clock that is ahead for a moment: what is deleted by its age stays, and schedules run on."""

import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from tests.campaign.disturbed import Disturbance, why_not
from tests.conftest import settings_of
from tests.helpers.feedback_helpers import PATH, Replica, event, token_event
from tests.helpers.jobs_helpers import TRAINING, Desk, settings_for
from tests.helpers.servers import KEY, ServerProcess, wait_for
from tests.helpers.small_models import small_draft

from xylem.admin.jobs.schedules import Schedules
from xylem.base.db import clock as module
from xylem.base.db.clock import AGREEMENT_SECONDS
from xylem.base.db.engine import Database
from xylem.base.db.tables import EVENTS, FEEDBACK_ROWS, SCHEDULES
from xylem.thresholds.live import feedback
from xylem.thresholds.store.counted_events import add_events
from xylem.thresholds.store.feedback_rows import FeedbackRows, add_rows
from xylem_store.store import Store

DAY = 86_400.0


class Clocks:
    """The clocks of a process: `off` seconds are what the clock of the day is wrong
    by; time leaps.
    """

    def __init__(self) -> None:
        self.off = 0.0
        self.passed = 0.0

    def time(self) -> float:
        return time.time() + self.passed + self.off

    def monotonic(self) -> float:
        return time.monotonic() + self.passed


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """The clocks of the module that tells how late it is."""
    clocks = Clocks()
    monkeypatch.setattr(module, "time", clocks)
    return clocks


class House:
    """A database with events and rows, some of them too old, and what removes those."""

    def __init__(self, url: str, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(feedback, "FORGET_SECONDS", 0.0)
        self.replica = Replica(url)
        self.rows = FeedbackRows(
            self.replica.database, settings_of(Path("unused"), feedback_row_days_max=90)
        )
        self._n_sent = 0
        today = int(time.time() // DAY)
        with self.replica.database.write() as connection:
            add_events(connection, [os.urandom(16) for _ in range(40)], today - 20)
            add_events(connection, [os.urandom(16) for _ in range(30)], today - 35)
            add_rows(connection, "m", {os.urandom(16): (b"{}", "") for _ in range(70)})
            old = f"UPDATE feedback_rows SET at = at - {100 * DAY} WHERE number <= 30"
            connection.execute(text(old))

    def keep(self) -> tuple[int, int]:
        """Send an event, after which the writer keeps its house, and
        trim; return how many are too old.
        """
        for _ in range(3):
            self._n_sent += 1
            assert self.replica.send(token_event(f"e{self._n_sent}", [1], [2])) == ["applied"]
        self.rows.trim()
        with self.replica.database.read() as connection:
            days = connection.execute(select(EVENTS.c.day)).scalars().all()
            ages = connection.execute(select(FEEDBACK_ROWS.c.at)).scalars().all()
        today = int(time.time() // DAY)
        assert sum(day >= today - 20 for day in days) >= 40, "an event was forgotten too early"
        assert len(ages) >= 40, "a row was removed too early"
        return sum(day < today - 30 for day in days), sum(
            at < time.time() - 90 * DAY for at in ages
        )

    def close(self) -> None:
        self.replica.close()


@pytest.mark.parametrize("days", [40, 100, 36_500])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_clock_that_is_ahead_for_a_moment_deletes_nothing(
    database_url: str, clocks: Clocks, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Wherever the moment falls: at the start, later, twice; an hour after it what is
    too old goes.
    """
    house = House(database_url, clocks, monkeypatch)
    for _ in range(2):
        clocks.off = days * DAY
        for _ in range(3):
            assert house.keep() == (30, 30)
            clocks.passed += AGREEMENT_SECONDS / 8
        clocks.off = 0.0
        for _ in range(3):
            assert house.keep() == (30, 30)
            clocks.passed += AGREEMENT_SECONDS / 4
    clocks.passed += AGREEMENT_SECONDS / 2
    assert house.keep() == (0, 0)
    clocks.off = days * DAY
    assert house.keep() == (0, 0)
    house.close()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("days", [100, -100])
def test_the_clock_of_a_replica_is_not_that_of_the_database(
    database_url: str, clocks: Clocks, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """By PostgreSQL's clock events and rows are dated, and go; whatever this machine's says."""
    clocks.off = days * DAY
    house = House(database_url, clocks, monkeypatch)
    assert house.keep() == (30, 30)
    monkeypatch.setattr(module, "AGREEMENT_SECONDS", 0.0)
    assert house.keep() == (0, 0)
    with house.replica.database.read() as connection:
        assert set(connection.execute(select(EVENTS.c.day)).scalars()) <= {
            int(time.time() // DAY) - days_ago for days_ago in (0, 1, 20, 21)
        }
    house.close()


@pytest.mark.parametrize("cron", ["* * * * *", "0 3 * * *", "0 0 1 1 *"])
def test_a_schedule_runs_on_after_a_clock_was_ahead(
    database_url: str, tmp_path: Path, cron: str
) -> None:
    """It was made, or it ran, while the clock was ahead; `next` says when it really runs."""
    settings = settings_for(tmp_path, database_url=database_url)
    Store(settings.store).publish("m", small_draft(1, features={"kind": "named"}))
    desk = Desk(settings, database_url)
    schedules = Schedules(desk.database, settings)
    right = schedules.create_schedule("training", TRAINING, cron=cron)["next"]
    with desk.database.write() as connection:
        connection.execute(SCHEDULES.update().values(next_at=SCHEDULES.c.next_at + 1000 * DAY))
    assert schedules.run_due() == 0
    (schedule,) = schedules.schedules()
    begun, planned = (datetime.datetime.fromisoformat(at) for at in (right, schedule["next"]))
    assert begun <= planned <= begun + datetime.timedelta(minutes=cron.startswith("*") and 5)
    with desk.database.write() as connection:
        connection.execute(SCHEDULES.update().values(next_at=SCHEDULES.c.next_at - 400 * DAY))
    assert schedules.run_due() == 1
    assert schedules.run_due() == 0  # what is right is left alone
    desk.database.close()


_QUICKLY = "import xylem.thresholds.store.feedback_rows as rows; rows.TRIM_SECONDS = 0.05;"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_server_whose_clock_is_ahead_loses_nothing(
    own_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's own clock is set, as an administrator sets it, and set right again."""
    disturbance = Disturbance(tmp_path)
    for name, value in disturbance.environment.items():
        monkeypatch.setenv(name, value)
    settings: dict[str, Any] = {"feedback_rows": True, "admin_key": KEY, "access_log": False}
    with ServerProcess(own_store.root, prelude=_QUICKLY, **settings) as server:

        def results(*names: str) -> list[str]:
            body = {"events": [event(name, []) for name in names]}
            return [one["result"] for one in server.ask("POST", PATH, body)[1]["results"]]

        def has_rows(n: int) -> Callable[[], bool]:
            figure = f'xylem_feedback_rows{{model="raw"}} {n:.1f}'
            return lambda: figure in server.ask("GET", "/metrics")[1].decode()

        assert results("a", "b", "c") == ["applied"] * 3
        wait_for(has_rows(3))
        disturbance.set(clock_seconds=100 * DAY)  # more than events are remembered, and rows stored
        assert results("d") == ["applied"]
        wait_for(has_rows(4))  # it has looked which rows are too old
        for i in range(3):  # the writer looks which events are, at most each second
            time.sleep(0.5)
            assert results(f"e{i}") == ["applied"]
        disturbance.set()
        assert results("a", "b", "c", "d") == ["duplicate"] * 4
        wait_for(has_rows(7))
        assert server.terminate() == 0


def test_this_machine_has_one_time(database: Database) -> None:
    with database.read() as connection:
        assert abs(module.now(connection) - time.time()) < 3600
