"""The shipped haproxy.cfg, in a real haproxy, before two real replicas on loopback."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.replicas import (
    BROKEN,
    INSTANCE,
    N_CLIENTS,
    Replica,
    listens,
    load,
    reserved_ports,
    wait_until,
)

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
def cluster(
    shared_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, list[Replica]]]:
    """The port of haproxy, and the two replicas."""
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
        yield port, replicas


def test_a_rolling_restart_under_load_fails_no_request(cluster: tuple[int, list[Replica]]) -> None:
    """R16 at quick size; both replicas answer before, and after."""
    port, replicas = cluster
    before = [replica.answered() for replica in replicas]

    def least() -> int:
        return min(replica.answered() - then for replica, then in zip(replicas, before, strict=True))

    with load(port) as counts:
        wait_until(lambda: least() > 20)
        for replica in replicas:
            assert replica.stop(signal.SIGTERM) == 0
            replica.__enter__()
            wait_until(lambda replica=replica: replica.answered() > 20)  # type: ignore[misc]
    assert counts.keys() == {200}


def test_the_death_of_a_replica_breaks_no_more_than_what_is_in_flight(
    cluster: tuple[int, list[Replica]],
) -> None:
    """R18: haproxy repeats what has no answer; an answer that had begun breaks off."""
    port, replicas = cluster
    with load(port) as counts:
        wait_until(lambda: counts[200] > 50)
        replicas[0].stop(signal.SIGKILL)
        seen = counts[200]
        wait_until(lambda: counts[200] > seen + 100)
        replicas[0].__enter__()
    assert counts.keys() <= {200, BROKEN}
    assert counts[BROKEN] <= N_CLIENTS


def test_a_batch_of_any_length_streams_both_ways(cluster: tuple[int, list[Replica]]) -> None:
    n_lines, n_first = 20_000, 10
    lines = b"".join(json.dumps({"id": i, **INSTANCE}).encode() + b"\n" for i in range(n_lines))
    cut = lines.index(b'{"id": %d,' % n_first)
    with socket.create_connection(("127.0.0.1", cluster[0]), timeout=120) as connection:
        head = (
            "POST /v1/models/raw/batch?top_r=1 HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
        )
        connection.sendall(f"{head}content-length: {len(lines)}\r\n\r\n".encode() + lines[:cut])
        response = http.client.HTTPResponse(connection)
        response.begin()
        first = [json.loads(response.readline())["id"] for _ in range(n_first)]  # the rest is not sent yet
        rest = threading.Thread(target=connection.sendall, args=(lines[cut:],))
        rest.start()
        ids = [json.loads(line)["id"] for line in response]
        rest.join()
    assert [*first, *ids] == list(range(n_lines))


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/metrics/", "//metrics", "/%6Detrics", "/v1/admin", "/v1/admin/jobs", "//v1//admin/keys",
     "/v1/%61dmin/keys", "/v1/admin/models/raw/thresholds/tune"],
)  # fmt: skip
def test_what_is_for_those_who_run_it_is_not_published(cluster: tuple[int, list[Replica]], path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", cluster[0], timeout=120)
    for method in ("GET", "POST"):
        connection.request(method, path)
        response = connection.getresponse()
        assert response.status == 404
        assert json.loads(response.read())["code"] == "route-not-found"
        assert "x-request-id" not in response.headers  # no replica was asked
    connection.close()


def test_without_a_replica_the_answer_is_a_problem_too(cluster: tuple[int, list[Replica]]) -> None:
    port, replicas = cluster
    for replica in replicas:
        replica.stop(signal.SIGKILL)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/v1/models")
    response = connection.getresponse()
    assert response.status in (502, 503)
    assert response.headers["retry-after"] == "1"
    assert json.loads(response.read())["code"] == "unavailable"
    connection.close()
    for replica in replicas:
        replica.__enter__()
