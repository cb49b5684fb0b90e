"""Faults of all kinds under load: what is acknowledged counts once, what is answered is true.

`make faults` runs it for an hour, the suite each fault once.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.campaign.disturbed import Disturbance, Network, why_not
from tests.campaign.faults import Stage, possible
from tests.campaign.load import BLOCK, FEEDBACK, MODEL, ROWS, Answers, Asker, Feeder
from tests.helpers.databases import socket_path
from tests.helpers.replicas import PREDICT, Replica, reserved_ports, try_once
from tests.helpers.served_models import publish_model
from tests.helpers.servers import Connection, busy, wait_for
from xylem_store.store import Store

VERSIONS = (1, 2)
THRESHOLDS = f"/v1/models/{MODEL}/versions/1/thresholds"
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
        settings = {"database_url": url, "threshold_refresh_ms": 100, "access_log": 0}
        replicas = [
            stack.enter_context(Replica(store.root, port, disturbance.environment, **settings))
            for port in stack.enter_context(reserved_ports(2))
        ]
        yield Stage(store.root, replicas, random.Random(seed), 1.0, disturbance, network, pid, disk)
        for replica in replicas:
            assert replica.stop(signal.SIGTERM) == 0, replica.log()


def expected_answers(port: int) -> Answers:
    """What each version answers in peace."""
    found = {}
    with Connection(port) as connection:
        for (at, row), version in itertools.product(enumerate(ROWS), VERSIONS):
            path = f"/v1/models/{MODEL}/versions/{version}/predict"
            status, answer = connection.ask("POST", path, {"instances": [row], "top_r": 3})
            assert status == 200, answer
            found[at, version] = answer["predictions"][0]["labels"]
    return found


class Publisher:
    """Moves the alias and publishes versions all the time; refused
    or not, it leaves nothing half done.
    """

    def __init__(self, root: Path) -> None:
        self._store = Store(root)
        self._turns = itertools.count()
        self.counts: Counter[str] = Counter()

    def __call__(self) -> None:
        turn = next(self._turns)
        try:
            self._store.promote(MODEL, VERSIONS[turn % 2])
            made = publish_model(self._store, "other", "raw", seed=turn)
            if made.version > 1:
                self._store.delete("other", made.version - 1)
            self.counts["published"] += 1
        except Exception as error:  # what a full disk says
            self.counts[type(error).__name__] += 1
        time.sleep(0.2)


def check(stage: Stage, rounds: int) -> None:
    """Break one thing after the other under load; then hold what
    counts against what was acknowledged.
    """
    expected = expected_answers(stage.replicas[0].port)
    publisher, done = Publisher(stage.store), Counter[str]()
    with ExitStack() as stack:

        def connections() -> list[Connection]:
            return [stack.enter_context(Connection(replica.port)) for replica in stage.replicas]

        askers = [Asker(connections(), expected) for _ in range(N_ASKERS)]
        feeders = [Feeder(connections(), f"f{number}") for number in range(N_FEEDERS)]
        with busy(*askers, *feeders, publisher) as workers:
            for _ in range(rounds):
                faults = possible(stage)
                stage.random.shuffle(faults)
                for fault in faults:
                    fault(stage)
                    done[fault.__name__] += 1
                    time.sleep(stage.random.uniform(0, 0.3))
                    assert not any(worker.done() for worker in workers), done
        for feeder in feeders:
            feeder.finish()
    found: dict[str, Any] = {
        "faults": dict(done),
        "answers": dict(sum((asker.statuses for asker in askers), Counter())),
        "acknowledged": sum(feeder.n_acknowledged for feeder in feeders),
        "sent again": sum(feeder.n_again for feeder in feeders),
        "store": dict(publisher.counts),
    }
    print(json.dumps(found, indent=1))
    check_account(stage, feeders)
    assert found["answers"][200] > 20 * rounds
    assert found["acknowledged"] > 20 * rounds


def check_account(stage: Stage, feeders: list[Feeder]) -> None:
    """Every acknowledged event is known to both replicas and counts once, and the
    store is whole.
    """
    n_events = sum(feeder.n_acknowledged for feeder in feeders)
    for replica in stage.replicas:
        with Connection(replica.port) as connection:
            wait_for(lambda kept=connection: try_once(kept, PREDICT, {"instances": ROWS})[0] == 200)
            for feeder in feeders:
                for first in range(0, feeder.n_acknowledged, BLOCK):
                    status, answer = connection.ask("POST", FEEDBACK, feeder.block(first))
                    assert status == 200, answer
                    assert {one["result"] for one in answer["results"]} == {"duplicate"}
            wait_for(lambda kept=connection: kept.ask("GET", THRESHOLDS)[1]["n_events"] == n_events)
    store = Store(stage.store)
    for name in (MODEL, "other"):
        for version in store.versions(name):
            store.open(name, version)  # which verifies it


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_each_fault_once(stage: Stage) -> None:
    stage.seconds = 0.2
    check(stage, rounds=1)


@pytest.mark.soak
def test_faults_for_long(stage: Stage) -> None:
    check(stage, rounds=int(os.environ.get("ROUNDS", "60")))
