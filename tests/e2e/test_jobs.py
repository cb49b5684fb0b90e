"""Jobs with real workers: of a server, of `xylem worker`, and the commands that look after them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.helpers.jobs_helpers import TRAINING, Desk, settings_for
from tests.helpers.servers import ServerProcess, wait_for

import xylem
from xylem.admin.jobs.job import Job
from xylem.admin.jobs.messages import settings_as_json
from xylem_store.store import Store


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(settings_for(tmp_path, job_lease_seconds=1.0))
    yield made
    made.database.close()


Start = Callable[[Desk], Any]


@pytest.fixture
def start_worker() -> Iterator[Start]:
    """Starts workers over the store of a desk, none of which outlives the test."""
    workers: list[Any] = []

    def start(desk: Desk) -> Any:
        command = [sys.executable, "-m", "xylem.admin.jobs.worker"]
        worker: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        workers.append(worker)
        order = {"settings": settings_as_json(desk.settings), "jobs": 1, "parent": os.getpid()}
        worker.stdin.write(json.dumps(order).encode() + b"\n")
        worker.stdin.flush()
        return worker

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate()


def end(worker: Any, number: signal.Signals) -> int:
    worker.send_signal(number)
    return int(worker.wait())


def job_when(desk: Desk, job_id: str, holds: Callable[[Job], bool]) -> Job:
    """The job once something holds of it."""
    wait_for(lambda: holds(desk.jobs.get(job_id)))
    return desk.jobs.get(job_id)


def ended(desk: Desk, job_id: str) -> Job:
    return job_when(desk, job_id, lambda job: job.has_ended)


SLOW: dict[str, Any] = {
    **TRAINING,
    "trainer": "huffman-tree",
    "parameters": {"epochs": 1000, "dim": 512},
}
"""A training that takes some seconds: it can be seen under way."""


def has_begun(job: Job) -> bool:
    return job.progress is not None


def test_the_job_of_a_killed_worker_goes_on(
    tmp_path: Path, database_url: str, start_worker: Start
) -> None:
    desk = Desk(settings_for(tmp_path, job_lease_seconds=1.0), database_url)
    job_id = desk.jobs.submit("training", SLOW).id
    worker = start_worker(desk)
    job_when(desk, job_id, has_begun)
    end(worker, signal.SIGKILL)
    other = start_worker(desk)
    job = ended(desk, job_id)
    assert (job.state, job.attempts, job.version) == ("succeeded", 2, 1), job
    assert Store(desk.settings.store).versions("m") == (1,)
    assert end(other, signal.SIGTERM) == 0
    desk.database.close()


def test_jobs_are_released_fail_are_retried_and_cancelled(
    desk: Desk, run_here: Run, start_worker: Start
) -> None:
    store = desk.settings.store

    def told(*arguments: str) -> Any:
        return json.loads(run_here("jobs", *arguments, "--json", store=store).stdout)

    job_id = desk.jobs.submit("training", SLOW).id
    worker = start_worker(desk)
    job_when(desk, job_id, has_begun)
    assert end(worker, signal.SIGTERM) == 0
    job = desk.jobs.get(job_id)
    assert (job.state, job.attempts) == ("queued", 0)

    small = desk.limited(job_memory_bytes_max=32 << 20)
    worker = start_worker(small)
    job = ended(desk, job_id)
    assert (job.state, job.error_code) == ("failed", "limit-exceeded"), job
    assert "job_memory_bytes_max" in str(job.error)
    assert (
        list((store / "jobs" / job_id).iterdir())
        and not (store / "jobs" / job_id / "work").exists()
    )
    end(worker, signal.SIGTERM)
    small.database.close()

    worker = start_worker(desk)
    assert told("retry", job_id)["state"] == "queued"
    job_when(desk, job_id, has_begun)
    assert told("cancel", job_id)["cancel_asked"] is True
    assert ended(desk, job_id).state == "cancelled"
    end(worker, signal.SIGTERM)
    assert Store(store).versions("m") == ()

    assert [(one["id"], one["state"]) for one in told("list")["jobs"]] == [(job_id, "cancelled")]
    assert "cancelled" in run_here("jobs", "show", job_id, store=store).stdout
    lines = run_here("jobs", "log", job_id, store=store).stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines].count("started") == 3
    for command in ("show", "log", "cancel", "retry"):
        assert run_here("jobs", command, "nope", store=store).returncode == 2
        assert run_here("jobs", command, "nope", store=store / "none").returncode == 2
    assert run_here("jobs", "list", store=store / "none").returncode == 0


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_server_runs_jobs_and_starts_their_worker_again(desk: Desk, workers: int) -> None:
    settings: dict[str, Any] = {
        "data_dir": desk.settings.data_dir,
        "job_lease_seconds": 1,
        "job_nice": 0,
    }
    with ServerProcess(desk.settings.store, workers, jobs=1, **settings) as server:
        wait_for(lambda: bool(server.events("job_worker_started")))
        [started] = server.events("job_worker_started")
        parent = f"PPid:\t{server.process.pid}\n"
        assert parent in Path(f"/proc/{started['pid']}/status").read_text()
        os.kill(started["pid"], signal.SIGKILL)
        wait_for(lambda: len(server.events("job_worker_started")) == 2)
        if workers == 1:
            job_id = desk.jobs.submit("training", TRAINING).id
            assert ended(desk, job_id).state == "succeeded"
            wait_for(lambda: server.status("/v1/models/m") == 200)
            figure = b'xylem_jobs_ended_total{kind="training",state="succeeded"} 1.0\n'
            wait_for(lambda: figure in server.ask("GET", "/metrics")[1])
        server.process.kill()  # it takes the worker with it
        pids = [event["pid"] for event in server.events("job_worker_started")]
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_xylem_worker_runs_until_it_is_told_to_stop(desk: Desk) -> None:
    environment = {
        **os.environ,
        "XYLEM_DATA_DIR": str(desk.settings.data_dir),
        "XYLEM_JOB_NICE": "0",
    }
    options = ["--jobs", "2", "--json", "--store", str(desk.settings.store)]
    command = [sys.executable, "-m", "xylem.cli.entry", "worker", *options]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    ids = [desk.jobs.submit("training", {**TRAINING, "seed": seed}).id for seed in range(2)]
    jobs = [ended(desk, job_id) for job_id in ids]
    assert [job.state for job in jobs] == ["succeeded"] * 2
    assert {job.version for job in jobs} == {1, 2}
    worker.send_signal(signal.SIGTERM)
    said, _ = worker.communicate()
    assert worker.returncode == 0 and json.loads(said.splitlines()[-1]) == {"stopped": True}


KEY = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return settings_for(tmp_path_factory.mktemp("jobs_url")).store


@pytest.fixture(scope="module")
def url(store: Path) -> Iterator[str]:
    """A server without a worker: jobs wait."""
    with ServerProcess(
        store, admin_key=KEY, data_dir=store.parent / "data", open_scopes="none"
    ) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def job(url: str) -> Iterator[xylem.Job]:
    with xylem.Client(url, KEY) as client:
        yield client.train("m", "ovr", "train.jsonl")


def test_a_server_tells_of_jobs_what_its_database_does(
    run_here: Run, url: str, store: Path, job: xylem.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_KEY", KEY)

    def both(*arguments: str) -> list[dict[str, object]]:
        asked = (
            run_here("jobs", *arguments, *more, "--json", store=store)
            for more in ((), ("--url", url))
        )
        return [json.loads(done.stdout) for done in asked if done.returncode == 0]

    def there(*arguments: str) -> str:
        done = run_here("jobs", *arguments, "--url", url, store=store)
        assert done.returncode == 0, done.stderr
        return done.stdout

    local, remote = both("list", "--model", "m", "--kind", "training", "--state", "queued")
    assert local == remote and job.id in str(remote)
    local, remote = both("show", job.id)
    assert local == remote and remote["state"] == "queued"
    local, remote = both("log", job.id)
    assert local == remote == {"id": job.id, "log": ""}
    assert "queued" in there("list") and there("log", job.id) == ""
    assert "cancelled" in there("cancel", job.id)
    local, remote = both("show", job.id)
    assert local == remote and remote["state"] == "cancelled"
    assert json.loads(there("retry", job.id, "--json"))["state"] == "queued"
    run_here("jobs", "cancel", job.id, store=store)
    assert job.id not in there("list", "--state", "queued")


def test_what_a_server_refuses_ends_the_command(
    run_here: Run,
    url: str,
    store: Path,
    job: xylem.Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("another-key-of-mine\n")
    event = json.dumps({"event_id": "e", "instance": {"text": "x"}, "labels": []})
    for key, arguments, said in (
        ("", ("jobs", "show", job.id), "401 unauthorized"),
        ("", ("jobs", "show", job.id, "--key-file", bad), "401 unauthorized"),
        (KEY, ("jobs", "show", "0" * 24), "404 job-not-found"),
        (KEY, ("jobs", "retry", job.id), "409 job-conflict"),
        (KEY, ("jobs", "list", "--state", "odd"), "422 bad-request"),
        (KEY, ("jobs", "show", ".."), "expected a name"),
        ("", ("jobs", "list", "--store", store), "--store cannot be used with --url"),
        ("", ("jobs", "list", "--url", "ftp://127.0.0.1"), "--url: expected"),
        (KEY, ("feedback", "none"), "404 model-not-found"),
        ("another-key", ("feedback", "none"), "401 "),
        ("two keys", ("feedback", "none"), "--key: expected visible characters"),
    ):
        monkeypatch.setenv("XYLEM_KEY", key)
        command, what, *more = arguments
        done = run_here(command, what, "--url", url, *more, store=store, input=event)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert not [secret for secret in (KEY, "another-key", "two keys") if secret in done.stderr]


async def test_both_clients_rotate_a_key(url: str) -> None:
    keys = "/v1/admin/keys"
    with xylem.Client(url, KEY) as client:
        made = client.call("POST", keys, name="shop", scopes=["predict"])
        rotate = f"{keys}/{made['id']}/rotate"
        following = client.call("POST", rotate, overlap_seconds=3600, lifetime_seconds=7200)
        assert following["scopes"] == ["predict"] and following["id"] != made["id"]
        listed = {key["id"]: key for key in client.call("GET", keys)["keys"]}
        assert listed[made["id"]]["expires"] and listed[made["id"]]["state"] == "active"
        with xylem.Client(url, following["key"]) as shop:
            assert shop.models() == []
    async with xylem.AsyncClient(url, KEY) as there:
        last = await there.call("POST", f"{keys}/{following['id']}/rotate", overlap_seconds=0)
        await there.call("DELETE", f"{keys}/{last['id']}")
        with pytest.raises(xylem.ProblemError) as gone:
            await there.call("POST", f"{keys}/{last['id']}/rotate")
        assert (gone.value.status, gone.value.code) == (404, "key-not-found")
