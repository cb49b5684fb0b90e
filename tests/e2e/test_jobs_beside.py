"""R19: jobs that misbehave, and a database that goes away under them, cost who predicts nothing."""

from __future__ import annotations

import gzip
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import make_url
from tests.campaign.disturbed import Network
from tests.helpers.databases import socket_path
from tests.helpers.jobs_helpers import TRAINING, Desk, settings_for, working
from tests.helpers.served_models import publish_all
from tests.helpers.servers import ServerProcess, wait_for

from xylem_store.store import Store

KEY = "correct-horse-battery-staple"
ADMIN = {"authorization": f"Bearer {KEY}"}
PREDICT = "/v1/models/raw/predict"
REQUEST = {"instances": [{"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}]}

MISBEHAVIOURS = {
    **dict.fromkeys(("eat", "eat_in_a_child", "spin"), "limit-exceeded"),
    **dict.fromkeys(("crash", "fail"), "crashed"),
    **dict.fromkeys(("fill_a_disk", "open_files"), "os-error"),
    "leave_a_child": None,
}
"""What a job of tests.helpers.job_children does, by its model's name, and with what code it fails.
"""


def labels_of(answer: tuple[int, Any]) -> tuple[int, Any]:
    """An answer without what is new in each: its prediction id."""
    status, found = answer
    return status, [one["labels"] for one in found["predictions"]] if status == 200 else found


class Predicting(threading.Thread):
    """Asks the same all the time; what is not answered as at first is a fault."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._server = server
        self._stopping = threading.Event()
        self.faults: list[Any] = []
        self.n_asked = 0

    def run(self) -> None:
        expected = labels_of(self._server.ask("POST", PREDICT, REQUEST))
        while not self._stopping.is_set() and not self.faults:
            try:
                found = labels_of(self._server.ask("POST", PREDICT, REQUEST))
            except OSError as error:
                self.faults.append(error)
                return
            self.n_asked += 1
            if found != expected or found[0] != 200:
                self.faults.append(found)

    def __enter__(self) -> Predicting:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()
        assert self.faults == []
        assert self.n_asked > 0


def ended(server: ServerProcess, job_id: str) -> dict[str, Any]:
    """A job, once it has ended."""
    path = f"/v1/admin/jobs/{job_id}"
    wait_for(lambda: server.ask("GET", path, **ADMIN)[1].get("ended") is not None)
    found: dict[str, Any] = server.ask("GET", path, **ADMIN)[1]
    return found


BOMB_BLOCKS = 500
"""So many blocks of a megabyte, each of which packs to a kilobyte, make the bomb."""

BOMB_ROWS = 100_000_000


def write_bombs(data: Path) -> list[str]:
    """Labelled files of at most 2 MB that unpack to half a
    gigabyte or more: of lines, of empty rows.
    """
    line = b"1 1:1 5:0.5\n"
    block = gzip.compress(line * ((1 << 20) // len(line)))
    (data / "bomb.svm.gz").write_bytes(block * BOMB_BLOCKS)
    empty = {"indices": np.zeros(0, np.int32), "data": np.zeros(0, np.float32)}
    pointers = np.zeros(BOMB_ROWS + 1, np.int64)
    np.savez_compressed(
        data / "bomb.X.npz", format=b"csr", shape=[BOMB_ROWS, 7], indptr=pointers, **empty
    )
    shutil.copy(data / "bomb.X.npz", data / "bomb.Y.npz")
    assert max(path.stat().st_size for path in data.glob("bomb*")) < 2 << 20
    return ["bomb.svm.gz", "bomb.X.npz"]


def test_a_file_that_unpacks_to_gigabytes_takes_no_server_memory(
    tmp_path: Path,
) -> None:
    settings = settings_for(tmp_path)
    publish_all(settings.store)
    names = write_bombs(settings.data_dir)
    options: dict[str, Any] = {"jobs": 1, "job_nice": 0, "job_memory_bytes_max": 192 << 20}
    with ServerProcess(
        settings.store, admin_key=KEY, data_dir=settings.data_dir, **options
    ) as server:
        before = server.memory_bytes()
        for name in names:
            path = "/v1/admin/models/raw/thresholds/tune"
            status, answer = server.ask("POST", path, {"data": name}, **ADMIN)
            assert (status, answer["code"]) == (422, "limit-exceeded"), answer
            assert "job_memory_bytes_max" in answer["detail"]
        assert server.memory_bytes("VmHWM") - before < 64 << 20
        assert not server.events("failure")


def test_jobs_that_misbehave_leave_predictions_alone(tmp_path: Path) -> None:
    sizes = {"job_memory_bytes_max": 96 << 20, "job_file_bytes_max": 16 << 20}
    desk = Desk(settings_for(tmp_path, job_cpu_seconds_max=2.0, job_seconds_max=60.0, **sizes))
    publish_all(desk.settings.store)
    data = desk.settings.data_dir
    with (
        ServerProcess(
            desk.settings.store, admin_key=KEY, data_dir=data, access_log=False
        ) as server,
        Predicting(server),
        working(desk.settings, desk.database, "tests.helpers.job_children"),
    ):
        ids = {}
        for name in MISBEHAVIOURS:
            request = TRAINING | {"model": name}
            status, answer = server.ask("POST", "/v1/admin/training-jobs", request, **ADMIN)
            assert status == 202, answer
            ids[name] = answer["id"]
        jobs = {name: ended(server, job_id) for name, job_id in ids.items()}
        assert {name: job["error_code"] for name, job in jobs.items()} == MISBEHAVIOURS, jobs
        assert all((job["error"] is None) == (job["state"] == "succeeded") for job in jobs.values())
        assert server.status("/readyz") == 200
        assert not server.events("failure")
    assert not list((desk.settings.store / "jobs").glob("*/work"))
    desk.database.close()


@pytest.fixture
def network(database_url: str) -> Iterator[Network]:
    with Network(socket_path(database_url)) as made:
        yield made


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_database_that_goes_away_loses_no_job(
    tmp_path: Path, database_url: str, network: Network
) -> None:
    settings = settings_for(tmp_path)
    publish_all(settings.store)
    url = make_url(database_url).set(host="127.0.0.1", port=network.port, query={})
    options: dict[str, Any] = {"jobs": 1, "job_nice": 0, "job_lease_seconds": 2.0, "admin_key": KEY}
    options |= {
        "data_dir": settings.data_dir,
        "database_url": url.render_as_string(hide_password=False),
    }
    with ServerProcess(settings.store, **options) as server, Predicting(server):

        def asked(method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
            return server.ask(method, f"/v1/admin/{path}", body, **ADMIN, **headers)

        wait_for(lambda: asked("GET", "jobs")[0] == 200)
        first = asked("POST", "training-jobs", TRAINING)[1]["id"]
        followed: list[bytes] = []  # by a follower that outlives the outage
        follower = threading.Thread(
            target=lambda: followed.append(asked("GET", f"jobs/{first}/events")[1])
        )
        follower.start()
        wait_for(lambda: asked("GET", f"jobs/{first}")[1]["state"] == "running")
        network.state = "refuses"
        network.cut()
        again = {"idempotency-key": "sent-again"}
        for method, path, body, headers in (
            ("POST", "training-jobs", TRAINING, again),
            ("GET", "jobs", None, {}),
            ("GET", f"jobs/{first}", None, {}),
            ("DELETE", f"jobs/{first}", None, {}),
            ("GET", f"jobs/{first}/events", None, {}),
            ("GET", "audit", None, {}),
            ("POST", "keys", {"name": "k", "scopes": ["predict"]}, {}),
            # an alias needs no database, but the audit entry of its change does
            ("POST", "models/raw/promote", {"version": 1, "alias": "new"}, {}),
        ):
            status, answer = asked(method, path, body, **headers)
            assert (status, answer["code"]) == (503, "database-unavailable"), (path, answer)
            assert str(network.port) not in str(answer)
        assert "new" not in Store(settings.store).info("raw").aliases
        time.sleep(1.0)
        archive = asked("GET", "models/raw/archive?version=1")[1]
        assert asked("GET", "data")[0] == 200
        assert server.status("/readyz") == 200
        network.state = "flows"
        promotion = {"version": 1, "alias": "new"}
        wait_for(lambda: asked("POST", "models/raw/promote", promotion)[0] == 200)
        assert asked("GET", "models/raw/history")[1]["changes"][0]["alias"] == "new"
        status, answer = asked("POST", "models/copy/archive", archive)
        assert (status, answer) == (200, {"model": "copy", "version": 1})
        wait_for(lambda: asked("POST", "training-jobs", TRAINING, **again)[0] == 202)
        second = asked("POST", "training-jobs", TRAINING, **again)[1]["id"]
        jobs = [ended(server, job) for job in (first, second)]
        assert [job["state"] for job in jobs] == ["succeeded"] * 2, jobs
        assert sorted(job["version"] for job in jobs) == [1, 2]
        assert len(asked("GET", "jobs")[1]["jobs"]) == 2
        assert Store(settings.store).info("raw").aliases["new"] == 1
        [found] = asked("GET", "models/copy/history")[1]["changes"]
        assert found["to_version"] == 1
        follower.join()
        assert b'"succeeded"' in followed[0]
        assert not server.events("failure")
