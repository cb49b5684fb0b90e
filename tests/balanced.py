"""What must hold behind each load balancer that a configuration is shipped for, before two real replicas."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from typing import NamedTuple

import pytest

from tests.replicas import (
    BODY,
    BROKEN,
    INSTANCE,
    N_CLIENTS,
    PREDICT,
    REFUSED_TWICE,
    Replica,
    load,
    wait_until,
)

RUNS = pytest.mark.parametrize(
    "n_requests", [200, pytest.param(5000, marks=pytest.mark.soak)], ids=["quick", "soak"]
)
"""So many requests are answered at least while replicas come and go."""

HIDDEN_PATHS = [
    "/metrics",
    "/metrics/",
    "//metrics",
    "/%6Detrics",
    "/v1/admin",
    "/v1/admin/jobs",
    "//v1//admin/keys",
    "/v1/%61dmin/keys",
    "/v1/admin/models/raw/thresholds/tune",
]
"""Ways to name what is for those who run it."""

UPGRADES = [
    "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    "Upgrade: h2c\r\nUser-Agent: Java-http-client/17.0.15\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\nUser-Agent: Go-http-client/1.1\r\n",
]
"""Headers by which clients of Java and Go ask for another protocol."""


class Cluster(NamedTuple):
    """The balancer's port for requests, that for streams, and the replicas behind it."""

    port: int
    stream_port: int
    replicas: list[Replica]


def restart_all(cluster: Cluster, n_requests: int) -> None:
    """R16: a rolling restart under load fails no request, and both replicas answer before and after."""
    before = [replica.answered() for replica in cluster.replicas]

    def least() -> int:
        pairs = zip(cluster.replicas, before, strict=True)
        return min(replica.answered() - then for replica, then in pairs)

    with load(cluster.port) as counts:
        wait_until(lambda: least() > 20)
        while counts[200] < n_requests:
            for replica in cluster.replicas:
                assert replica.stop(signal.SIGTERM) == 0
                replica.__enter__()
                wait_until(lambda replica=replica: replica.answered() > 20)  # type: ignore[misc]
    assert counts.keys() == {200}, counts


def kill_one(cluster: Cluster, n_requests: int) -> None:
    """R18: the death of a replica breaks no more than what is in flight, and nothing that is asked twice.

    The balancer repeats what has no answer; an answer that had begun breaks off.
    """
    with load(cluster.port) as counts:
        while counts[200] < n_requests:
            wait_until(lambda: counts[200] > 50)
            n_broken = counts[BROKEN]
            cluster.replicas[0].stop(signal.SIGKILL)
            seen = counts[200]
            wait_until(lambda seen=seen: counts[200] > seen + 100)  # type: ignore[misc]
            cluster.replicas[0].__enter__()
            assert counts[BROKEN] <= n_broken + N_CLIENTS, counts
    assert counts.keys() <= {200, BROKEN}, counts
    assert counts[REFUSED_TWICE] == 0, counts


def stream_a_batch(cluster: Cluster) -> None:
    """A batch of any length streams both ways: answers come while lines are still to be sent."""
    n_lines, n_first = 20_000, 10
    lines = b"".join(json.dumps({"id": i, **INSTANCE}).encode() + b"\n" for i in range(n_lines))
    cut = lines.index(b'{"id": %d,' % n_first)
    with socket.create_connection(("127.0.0.1", cluster.stream_port), timeout=120) as connection:
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


def refuse_what_is_hidden(cluster: Cluster, path: str) -> None:
    """What is for those who run the service is not published: the balancer itself says so."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=120)
    for method in ("GET", "POST"):
        connection.request(method, path)
        response = connection.getresponse()
        assert response.status == 404
        assert json.loads(response.read())["code"] == "route-not-found"
        assert "x-request-id" not in response.headers  # no replica was asked
    connection.close()


def ignore_upgrades(port: int) -> None:
    """A request that asks for another protocol has one answer, and no request is found in its body."""
    hidden = f"GET {PREDICT.removesuffix('/predict')} HTTP/1.1\r\nhost: x\r\n\r\n"
    for upgrade in UPGRADES:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for body, status in [(BODY, 200), (hidden, 400), (hidden, 400), (BODY, 200)] * 3:
                head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n{upgrade}Content-Type: application/json\r\n"
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
                time.sleep(0.02)  # the body comes in a packet of its own
                connection.sendall(body.encode())
                response = http.client.HTTPResponse(connection)
                response.begin()
                found = json.loads(response.read())
                assert (response.status, "predictions" in found) == (status, status == 200)
