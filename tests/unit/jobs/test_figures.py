"""The figures of jobs: what waits and runs, what came of the others, and who may see them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from service.access.key_text import AccessScope
from service.access.keys import add_key, all_keys
from service.jobs.figures import FiguresPage, JobFigures
from tests.jobs_helpers import Desk, settings_for
from tests.servers import exchange, wait_for


@pytest.fixture
def desk(tmp_path: Path, database_url: str) -> Iterator[Desk]:
    made = Desk(settings_for(tmp_path, job_attempts_max=2), database_url)
    yield made
    made.database.close()


def figures(desk: Desk) -> dict[tuple[str, str, str], float]:
    """Each figure by its name, kind and state."""
    registry = CollectorRegistry()
    found = JobFigures(desk.database)
    registry.register(found)
    found.read()
    return {
        (sample.name, sample.labels["kind"], sample.labels["state"]): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_what_waits_runs_and_has_ended_is_counted(desk):
    assert figures(desk) == {}
    ids = [desk.add() for _ in range(6)]
    tuning = desk.jobs.add("threshold-tuning", "m", {}).id
    found = figures(desk)
    assert found["xylem_jobs", "training", "queued"] == 6
    assert found["xylem_jobs", "threshold-tuning", "queued"] == 1
    ends = {"succeeded", "failed", "cancelled"}
    assert {state for name, _, state in found if name == "xylem_jobs_ended_total"} == ends
    assert not any(value for (name, _, _), value in found.items() if "ended" in name or "total" in name)
    claims = [desk.claim() for _ in ids]
    desk.leases.succeed(claims[0], {})
    desk.leases.fail(claims[1], "no", "bad-data")
    desk.leases.cancel(claims[2])
    desk.leases.give_back(claims[3], is_counted=False)
    desk.end_lease(ids[4])  # its worker died: it waits for another
    desk.jobs.cancel(tuning)
    found = figures(desk)
    assert found["xylem_jobs", "training", "queued"] == 2
    assert found["xylem_jobs", "training", "running"] == 1
    assert found["xylem_jobs", "threshold-tuning", "queued"] == 0
    assert 0 <= found["xylem_job_oldest_seconds", "training", "running"] < 60
    for state in ends:
        assert found["xylem_jobs_ended_total", "training", state] == 1
        assert 0 < found["xylem_job_seconds_total", "training", state] < 60
    assert found["xylem_jobs_ended_total", "threshold-tuning", "cancelled"] == 1
    assert found["xylem_job_seconds_total", "threshold-tuning", "cancelled"] == 0
    desk.jobs.retry(ids[1])  # it may end again
    desk.finish()
    found = figures(desk)
    assert found["xylem_jobs_ended_total", "training", "succeeded"] == 2
    assert found["xylem_jobs_ended_total", "training", "failed"] == 1


def test_totals_outlive_the_jobs(desk):
    few = desk.limited(jobs_kept_max=2)
    for _ in range(5):
        few.add()
        few.finish()
    assert len(few.jobs.list()) == 2
    assert figures(few)["xylem_jobs_ended_total", "training", "succeeded"] == 5


def ask(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    status, _, text = exchange(port, "GET", path, **headers)
    return status, text.decode()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_page_is_for_those_who_may_see_figures(desk):
    desk.add()
    page = FiguresPage(desk.database, desk.settings, 0)
    status, text = ask(page.port)
    assert (status, 'xylem_jobs{kind="training",state="queued"} 1.0' in text) == (200, True)
    assert "process_resident_memory_bytes" in text
    assert ask(page.port, "/metrics/x")[0] == ask(page.port, "/")[0] == 404
    page.close()
    with desk.database.write() as connection:
        seeing, predicting = (
            add_key(connection, scope.value, frozenset({scope}), None).text
            for scope in (AccessScope.METRICS, AccessScope.PREDICT)
        )
    changes = {"open_scopes": ("predict",), "admin_key": SecretStr("open sesame")}
    shut = FiguresPage(desk.database, desk.settings.model_copy(update=changes), 0)
    assert ask(shut.port)[0] == 401
    for key, status in (("x", 401), (predicting, 403), (seeing, 200), ("open sesame", 200)):
        assert ask(shut.port, authorization=f"Bearer {key}")[0] == status, key
    with desk.database.read() as connection:
        assert len(list(all_keys(connection))) == 2  # no first admin key is made by who only asks
    shut.close()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_answers_on_its_port(desk, tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-m", "service.cli.entry", "worker", "--metrics-port", "0"]
    own = {"XYLEM_STORE": str(desk.settings.store), "XYLEM_DATABASE_URL": desk.database.shown}
    how = {"env": {**os.environ, **own}, "text": True}
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file, **how) as worker:
        wait_for(lambda: "job_worker_started" in log.read_text() or worker.poll() is not None)
        [port] = re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", log.read_text())
        assert ask(int(port))[0] == 200
        command[-1] = port
        twice = subprocess.run(command, capture_output=True, timeout=120, check=False, **how)
        assert (twice.returncode, "expected an address to listen on" in twice.stderr) == (1, True), twice
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
