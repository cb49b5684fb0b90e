"""Figures of the queue: counted in the database, and shown on pages of workers."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from pydantic import SecretStr
from tests.helpers.job_figures import figures
from tests.helpers.jobs_helpers import Desk
from tests.helpers.servers import exchange, wait_for

from xylem.admin.jobs.figures import FiguresPage
from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import add_key, all_keys


def test_what_waits_runs_and_has_ended_is_counted(desk: Desk) -> None:
    assert figures(desk) == {}
    ids = [desk.add() for _ in range(6)]
    tuning = desk.jobs.add("threshold-tuning", "m", {}).id
    found = figures(desk)
    assert found["xylem_jobs", "training", "queued"] == 6
    assert found["xylem_jobs", "threshold-tuning", "queued"] == 1
    ends = {"succeeded", "failed", "cancelled"}
    assert {state for name, _, state in found if name == "xylem_jobs_ended_total"} == ends
    assert not any(
        value for (name, _, _), value in found.items() if "ended" in name or "total" in name
    )
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


def ask(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    status, _, text = exchange(port, "GET", path, **headers)
    return status, text.decode()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_page_is_for_those_who_may_see_figures(desk: Desk) -> None:
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
    assert ask(shut.port, "/livez") == (200, '{"status":"alive"}')
    for key, status in (("x", 401), (predicting, 403), (seeing, 200), ("open sesame", 200)):
        assert ask(shut.port, authorization=f"Bearer {key}")[0] == status, key
    with desk.database.read() as connection:
        assert len(list(all_keys(connection))) == 2  # no first admin key is made by who only asks
    shut.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
@pytest.mark.parametrize("host", ["::", "*", "[::]"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_page_answers_both_families(desk: Desk, host: str) -> None:
    changes = {"host": host, "open_scopes": ("metrics",)}
    page = FiguresPage(desk.database, desk.settings.model_copy(update=changes), 0)
    for address in ("127.0.0.1", "[::1]"):
        with urlopen(f"http://{address}:{page.port}/metrics", timeout=60) as answer:
            assert answer.status == 200
    page.close()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_answers_on_its_port(desk: Desk, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "xylem.cli.entry", "worker", "--metrics-port", "0"]
    own = {"XYLEM_STORE": str(desk.settings.store), "XYLEM_DATABASE_URL": desk.database.public_url}
    how = {"env": {**os.environ, **own}, "text": True}
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=file, **how) as worker,
    ):
        wait_for(lambda: "job_worker_started" in log.read_text() or worker.poll() is not None)
        [port] = re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", log.read_text())
        assert ask(int(port))[0] == 200
        command[-1] = port
        twice = subprocess.run(command, capture_output=True, timeout=120, check=False, **how)
        assert (twice.returncode, "expected an address to listen on" in twice.stderr) == (
            1,
            True,
        ), twice
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
