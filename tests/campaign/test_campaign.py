"""Faults of all kinds under load: what is acknowledged counts once, what is answered is true.

`make faults` runs it for an hour, the suite each fault once.
"""

import itertools
import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from model_store.store import Store
from tests.campaign.cluster import Replica
from tests.campaign.disturbed import Disturbance, why_not
from tests.campaign.faults import Stage, possible
from tests.campaign.load import BLOCK, FEEDBACK, MODEL, PREDICT, ROWS, Answers, Asker, Client, Feeder
from tests.campaign.network import Network
from tests.databases import socket_path
from tests.replicas import reserved_ports, wait_until
from tests.served_models import publish_model
from tests.servers import exchange

VERSIONS = (1, 2)
N_ASKERS, N_FEEDERS = 2, 2
SMALL_DISK_BYTES = 64 << 20


@contextmanager
def small_disk(directory: Path) -> Iterator[Path | None]:
    """A file system of its own of 64 MiB, where one can be had (by root); else None."""
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "xylem", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def database_pid(url: str) -> int:
    """The first process of a PostgreSQL of ours."""
    [data] = socket_path(url).parent.glob("**/postmaster.pid")
    return int(data.read_text().split()[0])


@pytest.fixture
def stage(database_url: str, tmp_path: Path, seed: int) -> Iterator[Stage]:
    """Two replicas that serve version 1 and 2 of a model in turns, and all that can break."""
    if reason := why_not():
        pytest.skip(reason)
    is_sqlite = database_url.startswith("sqlite")
    with ExitStack() as stack:
        directory = tmp_path / "disk"
        directory.mkdir()
        disk = stack.enter_context(small_disk(directory))
        store = Store(directory / "store")
        for version in VERSIONS:
            publish_model(store, MODEL, "raw", seed=version)
        network, pid = None, None
        if is_sqlite:
            url = f"sqlite:///{directory}/xylem.db"
        else:
            network = stack.enter_context(Network(socket_path(database_url)))
            away = make_url(database_url).set(host="127.0.0.1", port=network.port, query={})
            url, pid = away.render_as_string(hide_password=False), database_pid(database_url)
        disturbance = Disturbance(tmp_path)
        ports = stack.enter_context(reserved_ports(2))
        replicas = [Replica(store.root, port, url, disturbance.environment) for port in ports]
        for replica in replicas:
            stack.callback(replica.close)
            replica.start()
        yield Stage(store.root, replicas, random.Random(seed), 1.0, disturbance, network, pid, disk)
        for replica in replicas:
            assert replica.terminate() == 0, replica.log()[-3000:]


def expected_answers(port: int) -> Answers:
    """What each version answers in peace."""
    client = Client(port)
    found = {}
    for (at, row), version in itertools.product(enumerate(ROWS), VERSIONS):
        path = f"/v1/models/{MODEL}/versions/{version}/predict"
        wait_until(lambda path=path, row=row: client.ask(path, {"instances": [row]})[0] == 200)  # type: ignore[misc]
        answer = client.ask(path, {"instances": [row], "top_r": 3})[1]
        found[at, version] = answer["predictions"][0]["labels"]
    client.close()
    return found


class Publisher(threading.Thread):
    """Moves the alias and publishes versions all the time; refused or not, it leaves nothing half done."""

    def __init__(self, root: Path, stopping: threading.Event) -> None:
        super().__init__()
        self._store = Store(root)
        self._stopping = stopping
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Publish, promote, delete."""
        for turn in itertools.count():
            if self._stopping.is_set():
                return
            try:
                self._store.promote(MODEL, VERSIONS[turn % 2])
                made = publish_model(self._store, "other", "raw", seed=turn)
                if made.version > 1:
                    self._store.delete("other", made.version - 1)
                self.counts["published"] += 1
            except Exception as error:  # what a full disk says
                self.counts[type(error).__name__] += 1
            self._stopping.wait(0.2)


def run(stage: Stage, rounds: int) -> tuple[dict[str, Any], list[Feeder]]:
    """Break one thing after the other under load; return what was counted."""
    ports = [replica.port for replica in stage.replicas]
    expected = expected_answers(ports[0])
    stopping = threading.Event()
    askers = [Asker(ports, stopping, expected) for _ in range(N_ASKERS)]
    feeders = [Feeder(ports, stopping, f"f{number}") for number in range(N_FEEDERS)]
    workers = [*askers, *feeders]
    publisher = Publisher(stage.store, stopping)
    for thread in (*workers, publisher):
        thread.start()
    done: Counter[str] = Counter()
    try:
        for _ in range(rounds):
            faults = possible(stage)
            stage.random.shuffle(faults)
            for fault in faults:
                fault(stage)
                done[fault.__name__] += 1
                time.sleep(stage.random.uniform(0, 0.3))
                assert not any(worker.faults for worker in workers), (done, [w.faults for w in workers])
    finally:
        stopping.set()
        for thread in (*workers, publisher):
            thread.join()
    assert not any(worker.faults for worker in workers), (done, [worker.faults for worker in workers])
    found = {
        "faults": dict(done),
        "answers": dict(sum((asker.statuses for asker in askers), Counter())),
        "acknowledged": sum(feeder.n_acknowledged for feeder in feeders),
        "sent again": sum(feeder.n_again for feeder in feeders),
        "store": dict(publisher.counts),
    }
    return found, feeders


def check_account(stage: Stage, feeders: list[Feeder]) -> None:
    """Every acknowledged event is known to both replicas and counts once, and the store is whole."""
    n_events = sum(feeder.n_acknowledged for feeder in feeders)
    for replica in stage.replicas:
        client = Client(replica.port)
        wait_until(lambda client=client: client.ask(PREDICT, {"instances": ROWS})[0] == 200)  # type: ignore[misc]
        for feeder in feeders:
            for first in range(0, feeder.n_acknowledged, BLOCK):
                status, answer = client.ask(FEEDBACK, feeder.block(first))
                assert status == 200, answer
                assert {one["result"] for one in answer["results"]} == {"duplicate"}
        client.close()
        wait_until(lambda replica=replica: counted(replica.port) == n_events)  # type: ignore[misc]
    store = Store(stage.store)
    for name in (MODEL, "other"):
        for version in store.versions(name):
            store.open(name, version)  # which verifies it


def counted(port: int) -> int:
    """How many events a replica's thresholds of version 1 rest on."""
    _, _, found = exchange(port, "GET", f"/v1/models/{MODEL}/versions/1/thresholds")
    return int(json.loads(found)["n_events"])


def check(stage: Stage, rounds: int) -> None:
    found, feeders = run(stage, rounds)
    print(json.dumps(found, indent=1))
    check_account(stage, feeders)
    assert found["answers"][200] > 20 * rounds
    assert found["acknowledged"] > 20 * rounds


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_each_fault_once(stage: Stage) -> None:
    stage.seconds = 0.2
    check(stage, rounds=1)


@pytest.mark.soak
def test_faults_for_long(stage: Stage) -> None:
    check(stage, rounds=int(os.environ.get("ROUNDS", "60")))
