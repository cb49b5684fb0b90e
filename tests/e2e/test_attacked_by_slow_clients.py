"""Clients that send or read slowly, many at a time: memory is bounded, and others are answered."""

import contextlib
import http.client
import json
import re
import socket
import time
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.helpers.served_models import publish_all, publish_model
from tests.helpers.servers import KEY, START_SECONDS, ServerProcess, answer_on, wait_for

from xylem_store.store import Store

RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
PREDICT = "/v1/models/raw/predict"
MIB = 1 << 20
BODY_BYTES = 8 * MIB - 1024
"""Bytes of a body that never ends, almost as many as a body may have."""

BUDGET = 32 * MIB
SLACK = 96 * MIB
"""What a server may need besides: buffers of the connections, copies of a body, what
Python keeps.
"""

BODY_ROUTES = {
    "predict": (PREDICT, "application/json"),
    "score": ("/v1/models/raw/score", "application/json"),
    "tensors in JSON": ("/v2/models/raw/infer", "application/json"),
    "binary tensors": ("/v2/models/raw/infer", "application/octet-stream"),
    "feedback": ("/v1/models/raw/feedback", "application/json"),
    "annif": ("/v1/projects/raw/suggest-batch", "application/json"),
    "annif's form": ("/v1/projects/raw/suggest", "application/x-www-form-urlencoded"),
    "annif's learn": ("/v1/projects/raw/learn", "application/json"),
    "admin": ("/v1/admin/training-jobs", "application/json"),
    "admin's keys": ("/v1/admin/keys", "application/json"),
}
"""Those that hold their bodies whole."""

STREAM_ROUTES = {
    "batch": ("/v1/models/raw/batch", "application/x-ndjson"),
    "feedback in lines": ("/v1/models/raw/feedback", "application/x-ndjson"),
}
"""Those that hold some lines, of so many streams as a limit allows."""

N_LABELS, N_INSTANCES = 600, 166
LONG = {"instances": [RAW] * N_INSTANCES, "top_r": N_LABELS, "beam_width": 1000}
"""A body of 9 kB, the answer to which has 99,600 labels."""


@pytest.fixture(scope="module")
def wide_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a store with small models, and one of many labels."""
    root = tmp_path_factory.mktemp("slow-clients")
    publish_all(root)
    publish_model(Store(root), "wide", "raw", n_labels=N_LABELS)
    return root


def head_of(path: str, media: str, *lines: str, n_bytes: int | None = None) -> bytes:
    """The head of a request with the admin key; a body without a length has chunks."""
    length = "transfer-encoding: chunked" if n_bytes is None else f"content-length: {n_bytes}"
    key = f"authorization: Bearer {KEY}"
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "host: x", f"content-type: {media}", length, key, *lines, "", ""]
    ).encode()


def request_of(path: str, body: bytes) -> bytes:
    return head_of(path, "application/json", n_bytes=len(body)) + body


class Clients:
    """Connections that are held open, closed at the end of the block."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.connections: list[socket.socket] = []

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.connections:
            connection.close()

    def send(self, sent: bytes, *, receive_bytes: int = 0) -> socket.socket:
        """Open a connection and send as much as the server takes."""
        connection = socket.socket()
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(START_SECONDS)
        connection.connect(("127.0.0.1", self.server.port))
        self.connections.append(connection)
        with contextlib.suppress(OSError):  # it is refused, and closed
            connection.sendall(sent)
        return connection

    def send_all(self, requests: list[bytes], **options: int) -> None:
        """Send each on a connection of its own, some at a time."""
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda sent: self.send(sent, **options), requests))

    def statuses(self) -> Counter[int]:
        """The statuses that have come so far, by how often."""
        found: Counter[int] = Counter()
        for connection in self.connections:
            connection.settimeout(0.01)
            with contextlib.suppress(OSError, IndexError, ValueError):
                found[int(connection.recv(4096, socket.MSG_PEEK).split()[1])] += 1
        return found


def figure(server: ServerProcess, name: str) -> float:
    text = server.ask("GET", "/metrics", authorization=f"Bearer {KEY}")[1].decode()
    return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)))


def growth(server: ServerProcess, attack: Callable[[], None]) -> int:
    """By how many bytes the resident memory of a server grew during an attack, at most."""
    before = server.memory_bytes()
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # VmHWM begins again
    attack()
    return server.memory_bytes("VmHWM") - before


def is_served(server: ServerProcess) -> None:
    """Assert that usual requests are answered, new heads and known ones."""
    for _ in range(3):
        status, answer = server.ask(
            "POST", PREDICT, {"instances": [RAW]}, authorization=f"Bearer {KEY}"
        )
        assert (status, len(answer["predictions"])) == (200, 1)
    assert server.admin("GET", "/keys")[0] == 200


QUICK = 24
FULL = pytest.param(400, marks=pytest.mark.soak)


PACKED = ("content-encoding: gzip",)

SPEED = 20_000
"""Bytes a second of a client on a bad mobile network."""


def sent_slowly(server: ServerProcess, sent: bytes) -> socket.socket:
    """Send at SPEED."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=START_SECONDS)
    for start in range(0, len(sent), SPEED // 5):
        connection.sendall(sent[start : start + SPEED // 5])
        time.sleep(0.2)
    return connection


def read_slowly(connection: socket.socket, n_bytes: int) -> bytes:
    """Read so many bytes at SPEED."""
    received = b""
    while len(received) < n_bytes and (part := connection.recv(SPEED // 5)):
        received += part
        time.sleep(0.2)
    return received


@pytest.mark.parametrize("n_clients", [QUICK, FULL])
def test_bodies_are_held_within_a_budget(wide_store: Path, n_clients: int) -> None:
    """Each is, or unpacks to, almost as much as a body may have.

    Its last byte never comes, or all come.
    """
    with ServerProcess(wide_store, bodies_bytes_max=BUDGET, admin_key=KEY) as server:
        is_served(server)
        body = b"[" + b" " * BODY_BYTES
        packing = zlib.compressobj(9, zlib.DEFLATED, 31)
        begun = packing.compress(body) + packing.flush(zlib.Z_SYNC_FLUSH)
        for name, (path, media) in {**BODY_ROUTES, **STREAM_ROUTES}.items():
            for content, lines in ((body, ()), (begun, PACKED)):
                sent = head_of(path, media, *lines) + b"%x\r\n%b\r\n" % (len(content), content)
                with Clients(server) as clients:

                    def attack(clients: Clients = clients, sent: bytes = sent) -> None:
                        clients.send_all([sent] * n_clients)
                        assert figure(server, "xylem_body_bytes") <= BUDGET
                        is_served(server)

                    grown = growth(server, attack)
                    assert grown < BUDGET + SLACK, (name, lines, grown / MIB)
                    if content is body and name in BODY_ROUTES:
                        wait_for(lambda clients=clients: clients.statuses()[503] > 0)
        wait_for(lambda: figure(server, "xylem_body_bytes") == 0)
        packed = zlib.compress(body, 9, 31)
        sent = head_of(PREDICT, "application/json", *PACKED, n_bytes=len(packed)) + packed
        with Clients(server) as clients:

            def attack_at_once() -> None:
                clients.send_all([sent] * n_clients)
                wait_for(lambda: clients.statuses().total() == n_clients)

            grown = growth(server, attack_at_once)
            assert grown < BUDGET + SLACK, grown / MIB
            assert clients.statuses().keys() <= {400, 422, 503}
        is_served(server)
        assert figure(server, "xylem_body_bytes") == 0
        assert server.terminate() == 0


@pytest.mark.parametrize("n_clients", [QUICK, pytest.param(338, marks=pytest.mark.soak)])
def test_answers_that_nobody_reads_are_held_within_a_budget(
    wide_store: Path, n_clients: int
) -> None:
    """They are in flight until their bytes have left.

    Clients that read least are ended, and no others.
    """
    path, body = "/v1/models/wide/predict", json.dumps(LONG).encode()
    sent = request_of(path, body) * 3
    with ServerProcess(wide_store, answers_bytes_max=BUDGET, admin_key=KEY) as server:
        is_served(server)
        expected = server.ask("POST", path, body, authorization=f"Bearer {KEY}")[1]
        with Clients(server) as clients:
            honest = clients.send(request_of(path, body), receive_bytes=4096)
            received = bytearray()

            def attack() -> None:
                clients.send_all([sent] * n_clients, receive_bytes=4096)
                while figure(server, "xylem_connections_aborted_total") <= n_clients // 2:
                    received.extend(read_slowly(honest, SPEED // 2))
                assert 0 < figure(server, "xylem_answer_bytes") <= BUDGET
                assert figure(server, "xylem_requests_in_flight") > 1
                is_served(server)

            grown = growth(server, attack)
            assert grown < BUDGET + SLACK, grown / MIB
            while not received.endswith(b"]}"):
                received += honest.recv(1 << 16)
            answer = json.loads(received.partition(b"\r\n\r\n")[2])
            assert len(answer["predictions"]) == len(expected["predictions"]) == N_INSTANCES
        wait_for(lambda: figure(server, "xylem_answer_bytes") == 0)
        wait_for(lambda: figure(server, "xylem_requests_in_flight") == 1)
        is_served(server)
        assert server.terminate() == 0


@pytest.mark.parametrize("n_clients", [100, pytest.param(1200, marks=pytest.mark.soak)])
def test_slow_bodies_keep_nobody_out(wide_store: Path, n_clients: int) -> None:
    """More bodies are begun than requests may be in flight, and never go on."""
    with ServerProcess(wide_store, requests_max=n_clients * 5 // 6, admin_key=KEY) as server:
        is_served(server)
        for path in (PREDICT, "/v1/models/raw/feedback"):
            with Clients(server) as clients:
                clients.send_all([head_of(path, "application/json") + b"1\r\n{\r\n"] * n_clients)
                is_served(server)
                body = json.dumps({"instances": [RAW] * 1000}).encode()
                with sent_slowly(server, request_of(PREDICT, body)) as honest:
                    assert answer_on(honest)[0] == 200
                wait_for(lambda clients=clients: clients.statuses()[503] > 0)
                refused = next(each for each in clients.connections if answered(each))
                with http.client.HTTPResponse(refused) as response:
                    response.begin()
                    assert response.headers["retry-after"] == "1"
                    assert json.loads(response.read())["code"] == "overloaded"
        is_served(server)


def answered(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    with contextlib.suppress(OSError):
        return connection.recv(1, socket.MSG_PEEK) != b""
    return False


@pytest.mark.parametrize("n_clients", [100, pytest.param(4000, marks=pytest.mark.soak)])
def test_refused_bodies_keep_nobody_out(wide_store: Path, n_clients: int) -> None:
    """Bodies without a key, of which the client sends on, are refused; again and again."""
    limits = {"requests_max": n_clients // 4, "admin_key": KEY, "open_scopes": "none"}
    sent = (
        head_of(PREDICT, "application/json").replace(b"authorization", b"x-nothing") + b"1\r\n{\r\n"
    )
    with ServerProcess(wide_store, **limits) as server:
        for _ in range(3):
            with Clients(server) as clients:
                clients.send_all([sent] * n_clients)
                is_served(server)
                wait_for(lambda clients=clients: clients.statuses()[401] > n_clients // 2)
