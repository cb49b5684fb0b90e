"""Processes under kill -9: publishers (R1), feedback (R10, R21), jobs; and maps of files that go (R5)."""

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from service.base.errors import DatabaseUnavailable
from service.db.engine import Compiled
from tests.feedback_helpers import Replica, token_event
from tests.modules import found_by, run_module


def sizes(name: str, quick: int, soak: int) -> pytest.MarkDecorator:
    """So many of them in each run, and in a long one."""
    return pytest.mark.parametrize(
        name, [quick, pytest.param(soak, marks=pytest.mark.soak)], ids=["quick", "soak"]
    )


@sizes("rounds", 40, 10_000)
def test_killed_publishers(rounds: int, tmp_path: Path, seed: int) -> None:
    found = found_by("publishers", "kill", tmp_path, rounds, seed)
    assert (found["unservable"], found["backwards"], found["left"]) == (0, 0, 0), found
    # or the moments of death were not among the interesting ones
    assert found["abandoned"] > rounds // 4, found
    assert found["published"] > rounds // 8, found


def test_publishers_at_once(tmp_path: Path) -> None:
    found = found_by("publishers", "race", tmp_path, 4, 6)
    assert found == {"statuses": [0] * 5, "versions": list(range(1, 25)), "latest": 24}


@sizes("rounds", 50, 1000)
def test_killed_feeders(rounds: int, database_url: str, seed: int) -> None:
    found = found_by("feeders", database_url, rounds, seed)
    assert (found["lost"], found["wrong"]) == (0, 0), found
    assert found["acknowledged"] > 3 * rounds, found  # or nothing was under way when it was killed


def test_a_write_that_fails_leaves_nothing_counted(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Compiled.run
    replica = Replica(database_url)
    replica.writer._forget_at = float("inf")  # no housekeeping in between
    replica.send(token_event("first", [1], [1, 2]))
    before, engine = replica.bits(), replica.database._engine
    for at in itertools.count(1):
        calls = itertools.count(1)

        def strike(*_: Any, at: int = at, calls: Iterator[int] = calls) -> None:
            if next(calls) == at:
                raise DatabaseUnavailable("database or disk is full")

        def run_or_strike(statement: Compiled, *arguments: Any, strike: Any = strike, **values: Any) -> Any:
            strike()
            return run(statement, *arguments, **values)

        monkeypatch.setattr(Compiled, "run", run_or_strike)
        event.listen(engine, "begin", strike)
        event.listen(engine, "commit", strike)
        try:
            replica.send(token_event("second", [3], [2, 3]))
            break
        except DatabaseUnavailable:
            assert replica.bits() == before
        finally:
            monkeypatch.undo()
            event.remove(engine, "begin", strike)
            event.remove(engine, "commit", strike)
    assert at == 7  # after begin, head, events, log, head and commit have failed
    assert replica.bits() != before
    assert replica.send(token_event("second", [3], [2, 3])) == ["duplicate"]
    replica.close()


@sizes("n_jobs", 4, 100)
def test_runs_killed_at_random_moments_lose_no_job_and_publish_none_twice(
    n_jobs: int, tmp_path: Path, seed: int
) -> None:
    found = found_by("job_runners", tmp_path, n_jobs, seed)
    assert found["kills"] >= n_jobs
    assert found["succeeded"] == found["distinct"] == found["of_their_jobs"] == n_jobs
    assert found["versions"] == found["tuned_once"] == n_jobs + 1
    assert found["stable"] == found["latest"] == n_jobs + 1
    assert found["left"] == 0


@sizes("rounds", 25, 5_000)
def test_what_is_open_stays_as_it_was(rounds: int, tmp_path: Path, seed: int) -> None:
    found = found_by("mappers", "churn", tmp_path, rounds, seed)
    assert (found["changed"], found["forbidden"]) == (0, 0), found
    assert found["opened"] > rounds
    # or deleted versions were not among those that were read
    assert found["outlived"] > rounds // 4, found


def test_a_mapped_file_that_is_cut_would_be_seen(tmp_path: Path) -> None:
    assert run_module("mappers", "truncate", tmp_path, 0, 0).returncode == -signal.SIGBUS
