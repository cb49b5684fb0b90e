"""Processes of jobs that misbehave: each ends with the reason, and leaves nothing behind."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.jobs_helpers import Desk, settings_for, working
from tests.helpers.servers import wait_for

from xylem.admin.jobs.files import (
    WORK,
    BoundedLog,
    can_work,
    make_directory,
    read_log,
    remove_leftovers,
)
from xylem.admin.jobs.job import JobProgress
from xylem.admin.jobs.leases import Word
from xylem.admin.jobs.process import JobProcess, Outcome
from xylem_store.store import Store

MEMORY = 96 << 20


class Runs:
    """Runs misbehaving children as a worker would."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.job = ""
        self.word: Word = "go on"

    def __call__(self, way: str, stopping: threading.Event | None = None, **limits: Any) -> Outcome:
        settings = self.desk.limited(**{"job_memory_bytes_max": MEMORY, **limits}).settings
        self.job = self.desk.add(way)
        claim = self.desk.claim()
        assert claim.job.id == self.job
        directory = make_directory(settings.store, self.job)
        log = BoundedLog(directory, settings.limits.job_log_bytes_max)
        process = JobProcess(
            claim, settings, directory, log, self.tell, str, "tests.helpers.job_children"
        )
        return process.run(stopping or threading.Event())

    def tell(self, progress: JobProgress | None) -> Word:
        return self.word

    @property
    def log(self) -> str:
        return read_log(self.desk.settings.store, self.job).decode()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(settings_for(tmp_path))
    yield made
    made.database.close()


@pytest.fixture
def runs(desk: Desk) -> Runs:
    return Runs(desk)


def is_alive(pid: int) -> bool:
    """Whether a process lives, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("way", "limits", "code", "error"),
    [
        ("eat", {}, "limit-exceeded|memory", ""),
        ("eat-slowly", {}, "limit-exceeded", "job_memory_bytes_max"),
        ("eat-shared", {}, "limit-exceeded", "job_memory_bytes_max"),
        ("eat-in-a-child", {}, "limit-exceeded", "job_memory_bytes_max"),
        ("spin", {"job_cpu_seconds_max": 1.0}, "limit-exceeded", "job_cpu_seconds_max"),
        ("sleep", {"job_seconds_max": 1.0}, "limit-exceeded", "job_seconds_max"),
        ("crash", {}, "crashed", "SIGSEGV"),
        ("fail", {}, "crashed", "status 3"),
        ("open-files", {}, "os-error", "^Too many open files$"),
    ],
)
def test_a_process_that_misbehaves_ends_with_the_reason(
    runs: Runs, way: str, limits: Any, code: Any, error: Any
) -> None:
    outcome = runs(way, **limits)
    assert outcome.end == "failed" and re.fullmatch(code, outcome.code)
    assert re.search(error, outcome.error)


def test_mapped_files_are_no_memory_of_the_job(runs: Runs) -> None:
    assert runs("map-a-file").end == "succeeded"


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


def test_a_database_that_is_away_does_not_stop_a_job(
    desk: Desk, capfd: pytest.CaptureFixture[str]
) -> None:
    job, said = desk.add("wait-for-a-word"), ""

    def has_failed() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "database_failed" in said

    with working(desk.settings, desk.database, "tests.helpers.job_children"):
        wait_for(lambda: desk.jobs.get(job).progress is not None)
        other = sqlite3.connect(desk.settings.store / "xylem.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        wait_for(has_failed)
        (desk.settings.store / "jobs" / job / WORK / "go-on").touch()
        other.execute("ROLLBACK")
        other.close()
        wait_for(lambda: desk.jobs.get(job).has_ended)
    assert (desk.jobs.get(job).state, desk.jobs.get(job).attempts) == ("succeeded", 1)


def test_a_log_is_finite_and_keeps_its_end(runs: Runs) -> None:
    assert runs("write-a-long-log", job_log_bytes_max=100_000).end == "succeeded"
    assert 40_000 < len(runs.log) <= 100_000
    assert runs.log.splitlines()[-1].startswith("line 3999 ")


def test_what_a_process_left_behind_dies_with_it(runs: Runs) -> None:
    assert runs("leave-a-child").end == "succeeded"
    [left] = re.findall(r"left (\d+)", runs.log)
    wait_for(lambda: not is_alive(int(left)))


def test_a_process_has_its_own_session_low_priority_no_secret(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_ADMIN_KEY", "secret")
    outcome = runs("look-around", job_nice=19)
    assert outcome == Outcome("succeeded", result={"done": True}, progress=outcome.progress)
    assert outcome.progress is not None
    assert (outcome.progress.phase, outcome.progress.done, outcome.progress.total) == (
        "begin",
        3,
        3,
    )
    found = json.loads(runs.log)
    assert found["environment"].keys() <= {"XYLEM_KERNEL_CACHE"}
    assert found["nice"] == 19 and found["group"] == found["session"] != os.getsid(0)


@pytest.mark.parametrize(
    ("word", "is_stopping", "end"),
    [("cancel", False, "cancelled"), ("lost", False, "lost"), ("go on", True, "stopped")],
)
def test_a_process_is_killed_with_its_job_or_its_worker(
    runs: Runs, word: Any, is_stopping: Any, end: Any
) -> None:
    runs.word, stopping = word, threading.Event()
    if is_stopping:
        stopping.set()
    assert runs("sleep", stopping).end == end


_WORKER = """
import sys, threading
from pathlib import Path
from tests.helpers.jobs_helpers import Desk, settings_for
from xylem.admin.jobs.worker import Worker
desk = Desk(settings_for(Path(sys.argv[1])))
Worker(desk.settings, desk.database, "doomed", "tests.helpers.job_children").run(threading.Event())
"""


def test_a_process_dies_with_its_worker(desk: Desk, tmp_path: Path) -> None:
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_store_that_cannot_be_written_is_noticed_by_its_mode(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir(mode=0o500)
    assert not can_work(tmp_path)


def test_a_worker_without_a_writable_store_takes_no_job(desk: Desk, tmp_path: Path) -> None:
    assert can_work(desk.settings.store)
    job = desk.add("sleep")
    (tmp_path / "file").write_text("")
    elsewhere = desk.settings.model_copy(update={"store": tmp_path / "file"})
    with working(elsewhere, desk.database):
        time.sleep(1.5)  # it looks for jobs each second
    assert desk.jobs.get(job).attempts == 0
