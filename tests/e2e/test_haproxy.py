"""The shipped haproxy.cfg, in a real haproxy, before two real replicas on loopback."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.balanced import (
    HIDDEN_PATHS,
    RUNS,
    Cluster,
    kill_one,
    refuse_what_is_hidden,
    restart_all,
    stream_a_batch,
)
from tests.replicas import Replica, listens, reserved_ports, wait_until

CONF = Path(__file__).resolve().parents[2] / "deploy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"
DRAIN_SECONDS = 2
"""As deploy/systemd/xylem.env has it: haproxy must see that a replica is not ready before it stops."""


@contextmanager
def balanced(port: int, replicas: list[int], directory: Path) -> Iterator[None]:
    """Run haproxy with the shipped file: only the port and the names of replicas differ."""
    text = CONF.read_text()
    changes = {"bind :8080": f"bind 127.0.0.1:{port}"}
    changes |= {f"xylem-{i}:8080": f"127.0.0.1:{replica}" for i, replica in enumerate(replicas, 1)}
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    conf = directory / "haproxy.cfg"
    conf.write_text(text)
    with subprocess.Popen([HAPROXY, "-f", conf], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: process.poll() is None and listens(port))
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def cluster(shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not Path(HAPROXY).exists():
        pytest.skip("haproxy is not installed")
    directory = tmp_path_factory.mktemp("haproxy")
    with ExitStack() as stack:
        port, *ports = stack.enter_context(reserved_ports(3))
        database = directory / "xylem.db"
        replicas = [
            stack.enter_context(Replica(shared_store, each, database, DRAIN_SECONDS)) for each in ports
        ]
        stack.enter_context(balanced(port, ports, directory))
        yield Cluster(port, port, replicas)


@RUNS
def test_a_rolling_restart_under_load_fails_no_request(cluster: Cluster, n_requests: int) -> None:
    restart_all(cluster, n_requests)


@RUNS
def test_the_death_of_a_replica_breaks_no_more_than_what_is_in_flight(
    cluster: Cluster, n_requests: int
) -> None:
    kill_one(cluster, n_requests)


def test_a_batch_of_any_length_streams_both_ways(cluster: Cluster) -> None:
    stream_a_batch(cluster)


@pytest.mark.parametrize("path", HIDDEN_PATHS)
def test_what_is_for_those_who_run_it_is_not_published(cluster: Cluster, path: str) -> None:
    refuse_what_is_hidden(cluster, path)


def test_without_a_replica_the_answer_is_a_problem_too(cluster: Cluster) -> None:
    for replica in cluster.replicas:
        replica.stop(signal.SIGKILL)
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=120)
    connection.request("GET", "/v1/models")
    response = connection.getresponse()
    assert response.status in (502, 503)
    assert response.headers["retry-after"] == "1"
    assert json.loads(response.read())["code"] == "unavailable"
    connection.close()
    for replica in cluster.replicas:
        replica.__enter__()
