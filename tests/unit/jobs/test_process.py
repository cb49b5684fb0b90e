"""Processes of jobs that misbehave: each ends with the reason, and leaves nothing behind."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from service.jobs.files import WORK, BoundedLog, can_work, make_directory, read_log, remove_leftovers
from service.jobs.job import JobProgress
from service.jobs.leases import Word
from service.jobs.process import JobProcess, Outcome
from service.jobs.worker import Worker
from tests.jobs_helpers import Desk, settings_for
from tests.servers import wait_for

MEMORY = 96 << 20


class Runs:
    """Runs misbehaving children as a worker would."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.job = ""
        self.word: Word = "go on"
        self.told: list[JobProgress | None] = []

    def __call__(self, way: str, stopping: threading.Event | None = None, **limits: Any) -> Outcome:
        settings = self.desk.limited(**{"job_memory_bytes_max": MEMORY, **limits}).settings
        self.job = self.desk.add(way)
        claim = self.desk.leases.claim("w")
        assert claim is not None and claim.job.id == self.job
        directory = make_directory(settings.store, self.job)
        log = BoundedLog(directory, settings.limits.job_log_bytes_max)

        def tell(progress: JobProgress | None) -> Word:
            self.told.append(progress)
            return self.word

        process = JobProcess(claim, settings, directory, log, tell, str, "tests.job_children")
        return process.run(stopping or threading.Event())

    @property
    def log(self) -> str:
        return read_log(self.desk.settings.store, self.job).decode()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    desk = Desk(settings_for(tmp_path))
    yield Runs(desk)
    desk.database.close()


def is_alive(pid: int) -> bool:
    """Whether a process lives, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("way", ["eat-slowly", "eat-shared", "eat-in-a-child"])
def test_a_memory_eater_ends_with_the_reason(runs: Runs, way: str) -> None:
    outcome = runs(way)
    assert (outcome.end, outcome.code) == ("failed", "limit-exceeded")
    assert "job_memory_bytes_max" in outcome.error


def test_a_fast_eater_is_stopped_at_once(runs: Runs) -> None:
    outcome = runs("eat")
    assert outcome.end == "failed" and outcome.code in ("memory", "limit-exceeded")


def test_mapped_files_are_no_memory_of_the_job(runs: Runs) -> None:
    assert runs("map-a-file").end == "succeeded"


def test_a_spinner_ends_at_its_processor_time(runs: Runs) -> None:
    outcome = runs("spin", job_cpu_seconds_max=1.0)
    assert (outcome.end, outcome.code) == ("failed", "limit-exceeded")
    assert "job_cpu_seconds_max" in outcome.error


def test_a_sleeper_ends_at_its_time(runs: Runs) -> None:
    outcome = runs("sleep", job_seconds_max=1.0)
    assert (outcome.end, outcome.code) == ("failed", "limit-exceeded")
    assert "job_seconds_max" in outcome.error


def test_a_crash_is_told_with_its_signal(runs: Runs) -> None:
    outcome = runs("crash")
    assert (outcome.end, outcome.code) == ("failed", "crashed")
    assert "SIGSEGV" in outcome.error
    outcome = runs("fail")
    assert (outcome.end, outcome.code) == ("failed", "crashed") and "status 3" in outcome.error


def test_what_fills_the_disk_is_stopped_and_removed(runs: Runs) -> None:
    outcome = runs("fill-a-disk", job_file_bytes_max=64 << 20)
    assert (outcome.end, outcome.error) == ("failed", "File too large")
    directory = runs.desk.settings.store / "jobs" / runs.job
    assert (directory / WORK / "large").stat().st_size <= 64 << 20
    remove_leftovers(runs.desk.settings.store, runs.job)
    assert {path.name for path in directory.iterdir()} <= {"log"}


def test_a_version_that_is_too_large_leaves_nothing_in_the_store(runs: Runs) -> None:
    outcome = runs("fill-a-store", job_memory_bytes_max=1 << 30, job_file_bytes_max=4096)
    assert outcome.end == "failed" and "expected about" in outcome.error, outcome
    store = Store(runs.desk.settings.store)
    assert store.versions("m") == () and not list((store.root / "staging").iterdir())


def test_a_database_that_is_away_does_not_stop_a_job(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    desk, stopping = runs.desk, threading.Event()
    job = desk.add("wait-for-a-word")
    worker = Worker(desk.settings, desk.database, "w", "tests.job_children")
    thread = threading.Thread(target=worker.run, args=(stopping,))
    thread.start()
    wait_for(lambda: desk.jobs.get(job).progress is not None)
    other = sqlite3.connect(desk.settings.store / "xylem.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    said = ""

    def has_failed() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "database_failed" in said

    wait_for(has_failed)
    (desk.settings.store / "jobs" / job / WORK / "go-on").touch()
    other.execute("ROLLBACK")
    other.close()
    wait_for(lambda: desk.jobs.get(job).has_ended)
    stopping.set()
    thread.join()
    assert (desk.jobs.get(job).state, desk.jobs.get(job).attempts) == ("succeeded", 1)


def test_open_files_are_finite(runs: Runs) -> None:
    assert runs("open-files").error == "Too many open files"


def test_a_log_is_finite_and_keeps_its_end(runs: Runs) -> None:
    assert runs("write-a-long-log", job_log_bytes_max=100_000).end == "succeeded"
    assert 40_000 < len(runs.log) <= 100_000
    assert runs.log.splitlines()[-1].startswith("line 3999 ")


def test_what_a_process_left_behind_dies_with_it(runs: Runs) -> None:
    assert runs("leave-a-child").end == "succeeded"
    [left] = re.findall(r"left (\d+)", runs.log)
    wait_for(lambda: not is_alive(int(left)))


def test_a_process_has_a_session_of_its_own_the_least_priority_and_no_secret(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_ADMIN_KEY", "secret")
    outcome = runs("look-around", job_nice=19)
    assert outcome == Outcome("succeeded", result={"done": True}, progress=outcome.progress)
    assert outcome.progress is not None and outcome.progress[:3] == ("begin", 3, 3)
    found = json.loads(runs.log)
    assert found["environment"].keys() <= {"XYLEM_KERNEL_CACHE"}
    assert found["nice"] == 19 and found["group"] == found["session"] != os.getsid(0)


@pytest.mark.parametrize(("word", "end"), [("cancel", "cancelled"), ("lost", "lost")])
def test_a_process_is_killed_when_its_job_is_cancelled_or_lost(runs: Runs, word: Word, end: str) -> None:
    runs.word = word
    assert runs("sleep").end == end


def test_a_process_is_killed_when_its_worker_stops(runs: Runs) -> None:
    stopping = threading.Event()
    stopping.set()
    assert runs("sleep", stopping).end == "stopped"


_WORKER = """
import sys, threading
from pathlib import Path
from tests.jobs_helpers import Desk, settings_for
from service.jobs.worker import Worker
desk = Desk(settings_for(Path(sys.argv[1])))
Worker(desk.settings, desk.database, "doomed", "tests.job_children").run(threading.Event())
"""


def test_a_process_dies_with_its_worker(tmp_path: Path) -> None:
    desk = Desk(settings_for(tmp_path))
    job = desk.add("tell-number-and-sleep")
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, str(tmp_path)])
    try:
        wait_for(lambda: b"left " in read_log(desk.settings.store, job))
        [left] = re.findall(rb"left (\d+)", read_log(desk.settings.store, job))
        assert is_alive(int(left))
    finally:
        worker.kill()
        worker.wait()
    wait_for(lambda: not is_alive(int(left)))
    assert desk.jobs.get(job).state == "running"  # until its lease has run out
    desk.database.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_store_that_cannot_be_written_is_noticed_by_its_mode(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir(mode=0o500)
    assert not can_work(tmp_path)


def test_a_worker_without_a_store_that_can_be_written_takes_no_job(tmp_path: Path) -> None:
    desk = Desk(settings_for(tmp_path))
    assert can_work(desk.settings.store)
    job = desk.add("sleep")
    (tmp_path / "file").write_text("")
    elsewhere = desk.settings.model_copy(update={"store": tmp_path / "file"})
    stopping = threading.Event()
    thread = threading.Thread(target=Worker(elsewhere, desk.database, "w").run, args=(stopping,))
    thread.start()
    stopping.wait(1.5)
    stopping.set()
    thread.join()
    assert desk.jobs.get(job).attempts == 0
    desk.database.close()
