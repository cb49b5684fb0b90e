"""Processes under kill -9: publishers (R1), feedback (R10, R21), jobs; and maps of files that go (R5)."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from service.base.errors import DatabaseUnavailable
from service.db.engine import Compiled
from tests.feedback_helpers import Replica, token_event

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.publishers", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("rounds", [40, pytest.param(10_000, marks=pytest.mark.soak)], ids=["quick", "soak"])
def test_killed_publishers(rounds: int, tmp_path: Path, seed: int) -> None:
    found = run("kill", tmp_path, rounds, seed)
    assert (found["unservable"], found["backwards"], found["left"]) == (0, 0, 0), (seed, found)
    # or the moments of death were not among the interesting ones
    assert found["abandoned"] > rounds // 4, (seed, found)
    assert found["published"] > rounds // 8, (seed, found)


def test_publishers_at_once(tmp_path: Path) -> None:
    found = run("race", tmp_path, 4, 6)
    assert found["statuses"] == [0] * 5
    assert found["versions"] == list(range(1, 25))
    assert found["latest"] == 24


@pytest.mark.parametrize("rounds", [50, pytest.param(1000, marks=pytest.mark.soak)], ids=["quick", "soak"])
def test_killed_feeders(rounds: int, database_url: str, seed: int) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.feeders", database_url, str(rounds), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["lost"], found["wrong"]) == (0, 0), (seed, found)
    assert found["acknowledged"] > 3 * rounds, found  # or nothing was under way when it was killed


def test_a_write_that_fails_leaves_nothing_counted(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Compiled.run
    replica = Replica(database_url)
    replica.writer._forget_at = float("inf")  # no housekeeping in between
    replica.send(token_event("first", [1], [1, 2]))
    before = replica.bits()
    engine = replica.database._engine
    at = 0
    failed = 0
    while True:
        at += 1
        count = 0

        def strike(*_: Any, at: int = at) -> None:
            nonlocal count
            count += 1
            if count == at:
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
            failed += 1
            assert replica.bits() == before
        finally:
            monkeypatch.undo()
            event.remove(engine, "begin", strike)
            event.remove(engine, "commit", strike)
    assert failed == 6  # begin, head, events, log, head, commit
    assert replica.bits() != before
    assert replica.send(token_event("second", [3], [2, 3])) == ["duplicate"]
    replica.close()


def run_jobs(directory: Path, n_jobs: int, seed: int) -> None:
    command = [sys.executable, "-m", "tests.job_runners", str(directory), str(n_jobs), str(seed)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(found)
    assert found["kills"] >= n_jobs
    assert found["succeeded"] == found["distinct"] == found["of_their_jobs"] == n_jobs
    assert found["versions"] == found["tuned_once"] == n_jobs + 1
    assert found["stable"] == found["latest"] == n_jobs + 1
    assert found["left"] == 0


def test_runs_killed_at_random_moments_lose_no_job_and_publish_none_twice(tmp_path: Path, seed: int) -> None:
    run_jobs(tmp_path, 4, seed)


@pytest.mark.soak
def test_runs_killed_at_many_moments_lose_no_job_and_publish_none_twice(tmp_path: Path, seed: int) -> None:
    run_jobs(tmp_path, 100, seed)


def run_mappers(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mappers", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("rounds", [25, pytest.param(5_000, marks=pytest.mark.soak)], ids=["quick", "soak"])
def test_what_is_open_stays_as_it_was(rounds: int, tmp_path: Path, seed: int) -> None:
    done = run_mappers("churn", tmp_path, rounds, seed)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    found = json.loads(done.stdout)
    assert (found["changed"], found["forbidden"]) == (0, 0), (seed, found, done.stderr[-3000:])
    assert found["opened"] > rounds
    assert found["outlived"] > rounds // 4, (
        seed,
        found,
    )  # or deleted versions were not among those that were read


def test_a_mapped_file_that_is_cut_would_be_seen(tmp_path: Path) -> None:
    assert run_mappers("truncate", tmp_path, 0, 0).returncode == -signal.SIGBUS
