"""The shipped haproxy.cfg, in a real haproxy, before two real replicas on loopback."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.balanced import (
    HIDDEN_PATHS,
    RUNS,
    Cluster,
    ignore_upgrades,
    kill_one,
    refuse_what_is_hidden,
    restart_all,
    stream_a_batch,
)
from tests.replicas import BODY, PREDICT, Replica, listens, reserved_ports, wait_until

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


class Dying(socketserver.ThreadingTCPServer):
    """Says that it is ready, and closes the connection of any other request: a replica at its death."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, *, resets: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Death)
        self.port: int = self.server_address[1]
        self.resets = resets
        self.n_deaths = 0


class _Death(socketserver.StreamRequestHandler):
    server: Dying

    def handle(self) -> None:
        head = self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        if b"/readyz" in head:
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return
        self.server.n_deaths += 1
        if self.server.resets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize("pause", [None, 0.0, 0.02], ids=["whole", "two packets", "body later"])
def test_a_request_is_repeated_however_its_client_sends_it(
    cluster: Cluster, tmp_path: Path, pause: float | None, resets: bool
) -> None:
    """A body in a packet of its own: haproxy repeats only what it has whole."""
    n_requests = 20
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(BODY)}\r\n\r\n"
    with ExitStack() as stack:
        [port] = stack.enter_context(reserved_ports(1))
        dying = stack.enter_context(Dying(resets=resets))
        threading.Thread(target=dying.serve_forever, daemon=True).start()
        stack.callback(dying.shutdown)
        stack.enter_context(balanced(port, [dying.port, cluster.replicas[1].port], tmp_path))
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(n_requests):
            if pause is None:
                connection.sendall((head + BODY).encode())
            else:
                connection.sendall(head.encode())
                time.sleep(pause)
                connection.sendall(BODY.encode())
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert (response.status, len(json.loads(response.read())["predictions"])) == (200, 1)
        assert dying.n_deaths > 0


def test_an_upgrade_is_ignored_and_its_body_read(cluster: Cluster) -> None:
    ignore_upgrades(cluster.port)


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
