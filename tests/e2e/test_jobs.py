"""Jobs with real workers: of a server, of `xylem worker`, and the commands that look after them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from service.jobs.job import Job
from service.jobs.messages import settings_as_json
from tests.conftest import Run
from tests.databases import database_url, postgresql  # noqa: F401
from tests.jobs_helpers import TRAINING, Desk, settings_for
from tests.servers import ServerProcess, wait_for


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(settings_for(tmp_path, job_lease_seconds=1.0))
    yield made
    made.database.close()


class WorkerProcess:
    """A worker over the store of a desk."""

    def __init__(self, desk: Desk, jobs: int = 1) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "service.jobs.worker"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        order = {"settings": settings_as_json(desk.settings), "jobs": jobs, "parent": os.getpid()}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        for stream in (self.process.stdin, self.process.stderr):
            assert stream is not None
            stream.close()
        return self.process.wait()


def job_when(desk: Desk, job_id: str, holds: Callable[[Job], bool]) -> Job:
    """The job once something holds of it."""
    wait_for(lambda: holds(desk.jobs.get(job_id)))
    return desk.jobs.get(job_id)


SLOW: dict[str, Any] = {
    **TRAINING,
    "trainer": "huffman-tree",
    "parameters": {"epochs": 1000, "dim": 512},
}
"""A training that takes some seconds: it can be seen under way."""


def has_begun(job: Job) -> bool:
    return job.progress is not None


def test_a_job_whose_worker_is_killed_is_taken_over(tmp_path: Path, database_url: str) -> None:  # noqa: F811
    desk = Desk(settings_for(tmp_path, job_lease_seconds=1.0), database_url)
    job_id = desk.jobs.submit("training", SLOW).job.id
    worker = WorkerProcess(desk)
    job_when(desk, job_id, has_begun)
    worker.end(signal.SIGKILL)
    other = WorkerProcess(desk)
    job = job_when(desk, job_id, lambda job: job.has_ended)
    assert (job.state, job.attempts, job.version) == ("succeeded", 2, 1), job
    assert Store(desk.settings.store).versions("m") == (1,)
    assert other.end(signal.SIGTERM) == 0
    desk.database.close()


def test_a_worker_that_is_told_to_stop_gives_its_job_back(desk: Desk) -> None:
    job_id = desk.jobs.submit("training", SLOW).job.id
    worker = WorkerProcess(desk)
    job_when(desk, job_id, has_begun)
    assert worker.end(signal.SIGTERM) == 0
    job = desk.jobs.get(job_id)
    assert (job.state, job.attempts) == ("queued", 0)


def test_jobs_are_cancelled_fail_with_the_reason_and_are_tried_again(desk: Desk, run_here: Run) -> None:
    store = desk.settings.store
    small = desk.limited(job_memory_bytes_max=32 << 20)
    job_id = desk.jobs.submit("training", SLOW).job.id
    worker = WorkerProcess(small)
    job = job_when(desk, job_id, lambda job: job.has_ended)
    assert (job.state, job.error_code) == ("failed", "limit-exceeded"), job
    assert "job_memory_bytes_max" in str(job.error)
    assert list((store / "jobs" / job_id).iterdir()) and not (store / "jobs" / job_id / "work").exists()
    worker.end(signal.SIGTERM)
    small.database.close()

    worker = WorkerProcess(desk)
    answer = run_here("jobs", "retry", job_id, "--json", store=store)
    assert json.loads(answer.stdout)["state"] == "queued"
    job_when(desk, job_id, has_begun)
    answer = run_here("jobs", "cancel", job_id, "--json", store=store)
    assert json.loads(answer.stdout)["cancel_asked"] is True
    assert job_when(desk, job_id, lambda job: job.has_ended).state == "cancelled"
    worker.end(signal.SIGTERM)
    assert Store(store).versions("m") == ()

    [listed] = json.loads(run_here("jobs", "list", "--json", store=store).stdout)["jobs"]
    assert (listed["id"], listed["state"]) == (job_id, "cancelled")
    assert "cancelled" in run_here("jobs", "show", job_id, store=store).stdout
    lines = run_here("jobs", "log", job_id, store=store).stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines].count("started") == 2
    for command in ("show", "log", "cancel", "retry"):
        assert run_here("jobs", command, "nope", store=store).returncode == 2
        assert run_here("jobs", command, "nope", store=store / "none").returncode == 2
    assert run_here("jobs", "list", store=store / "none").returncode == 0


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[1]) == pid and stat[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_server_runs_jobs_beside_it_and_starts_their_worker_again(desk: Desk, workers: int) -> None:
    settings: dict[str, Any] = {
        "jobs": 1,
        "data_dir": desk.settings.data_dir,
        "job_lease_seconds": 1,
        "job_nice": 0,
    }
    with ServerProcess(desk.settings.store, workers, **settings) as server:
        wait_for(lambda: bool(server.events("job_worker_started")))
        [started] = server.events("job_worker_started")
        assert started["pid"] in children_of(server.process.pid)
        os.kill(started["pid"], signal.SIGKILL)
        wait_for(lambda: len(server.events("job_worker_started")) == 2)
        if workers == 1:
            job_id = desk.jobs.submit("training", TRAINING).job.id
            assert job_when(desk, job_id, lambda job: job.has_ended).state == "succeeded"
            wait_for(lambda: server.status("/v1/models/m") == 200)
            figure = b'xylem_jobs_ended_total{kind="training",state="succeeded"} 1.0\n'
            wait_for(lambda: figure in server.ask("GET", "/metrics")[1])
            assert server.terminate() == 0
        else:  # a server that is killed takes the worker with it
            server.process.kill()
        pids = [event["pid"] for event in server.events("job_worker_started")]
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


_SERVER = """
import sys, time
from pathlib import Path
from service.jobs.serving import JobWorkers
from tests.jobs_helpers import settings_for
jobs = JobWorkers(settings_for(Path(sys.argv[1]), jobs=1))
jobs.tend()
print(jobs.pid, flush=True)
time.sleep(3600)
"""


def test_the_worker_of_a_server_that_was_killed_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SERVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stderr is not None
        pid = int(server.stdout.readline())
        assert b"job_worker_started" in server.stderr.readline()
        server.kill()
        wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_xylem_worker_runs_until_it_is_told_to_stop(desk: Desk) -> None:
    environment = {**os.environ, "XYLEM_DATA_DIR": str(desk.settings.data_dir), "XYLEM_JOB_NICE": "0"}
    command = [sys.executable, "-m", "service.cli.entry", "worker", "--jobs", "2", "--json"]
    worker = subprocess.Popen(
        [*command, "--store", str(desk.settings.store)], env=environment, stdout=subprocess.PIPE
    )
    ids = [desk.jobs.submit("training", {**TRAINING, "seed": seed}).job.id for seed in range(2)]
    jobs = [job_when(desk, job_id, lambda job: job.has_ended) for job_id in ids]
    assert [job.state for job in jobs] == ["succeeded"] * 2
    assert {job.version for job in jobs} == {1, 2}
    worker.send_signal(signal.SIGTERM)
    said, _ = worker.communicate()
    assert worker.returncode == 0 and json.loads(said.splitlines()[-1]) == {"stopped": True}
