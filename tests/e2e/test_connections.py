"""Connections as clients make them: odd heads, closed halves,
answers nobody reads, workers that die.
"""

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.replicas import try_once
from tests.helpers.served_models import publish_all
from tests.helpers.servers import Connection, ServerProcess, busy, wait_for

RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
PREDICT, BATCH, FEEDBACK = (f"/v1/models/raw/{route}" for route in ("predict", "batch", "feedback"))
BODY = json.dumps({"instances": [RAW]}).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One with a store of its own: it gets feedback."""
    store = tmp_path_factory.mktemp("connections")
    publish_all(store)
    with ServerProcess(store) as process:
        yield process
        assert process.terminate() == 0, process.log()


def request(
    *headers: bytes, path: str = PREDICT, body: bytes = BODY, version: bytes = b"1.1"
) -> bytes:
    """A request after which the connection stays open."""
    fixed = [b"content-type: application/json", b"content-length: %d" % len(body)]
    lines = [b"POST %b HTTP/%b" % (path.encode(), version), *fixed, *headers, b"", body]
    return b"\r\n".join(lines)


def answer_to(server: ServerProcess, sent: bytes) -> tuple[int, dict[str, str], Any]:
    """The status, the headers in lower case and the JSON that come until the connection closes."""
    head, _, body = server.raw(sent).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body) if body else None


CLOSE = b"connection: close"


def test_a_request_has_one_host(server: ServerProcess) -> None:
    assert answer_to(server, request(CLOSE, b"host: x"))[0] == 200
    assert answer_to(server, request(CLOSE, version=b"1.0"))[0] == 200
    for hosts, found in (((), "none"), ((b"host: x", b"host: y"), "2")):
        status, _, problem = answer_to(server, request(CLOSE, *hosts))
        assert (status, problem["code"]) == (400, "http-error")
        assert problem["detail"] == f"expected one Host header, found {found}"


def test_no_host_is_refused_after_others_were_answered(server: ServerProcess) -> None:
    for host, status in (((b"host: x",), 200), ((), 400)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            for _ in range(3):
                connection.sendall(request(*host))
                response = http.client.HTTPResponse(connection)
                response.begin()
                assert response.status == status
                response.read()


def test_a_coding_other_than_chunks_is_refused(server: ServerProcess) -> None:
    refused = "unsupported-content-encoding"
    for coding, code in (
        (b"chunked", None),
        (b"gzip, chunked", refused),
        (b"identity, chunked", refused),
    ):
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
        head = (
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: "
            b"application/json\r\nconnection: close\r\n"
        )
        sent = head % PREDICT.encode() + b"transfer-encoding: %b\r\n\r\n" % coding + chunks
        status, _, answer = answer_to(server, sent)
        assert (status, answer.get("code")) == (415 if code else 200, code)
        assert code is None or "expected chunked" in answer["detail"]


@pytest.mark.parametrize(
    ("sent", "path", "found"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "", "Invalid method encountered"),
        (b"BREW /pot HTTP/1.1\r\nhost: x\r\n\r\n", "", "Invalid method encountered"),
        (b"GET /livez HTTP/1.1\r\nhost: x\r\na b: c\r\n\r\n", "/livez", "Invalid header token"),
        (b"POST /v1/m HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "/v1/m", "chunk size"),
        (
            b"GET /v1/m?q=%s HTTP/1.1\r\ncontent-length: -1\r\n\r\n" % (b"x" * 999),
            "/v1/m",
            "Content-Length",
        ),
    ],
    ids=["tls", "method", "header", "chunk", "length"],
)
def test_bytes_that_are_no_http(server: ServerProcess, sent: bytes, path: str, found: str) -> None:
    status, headers, problem = answer_to(server, sent)
    assert (status, problem["code"], problem["instance"]) == (400, "http-error", path)
    assert problem["detail"].startswith("expected a request of HTTP/1.1, found: ")
    assert found in problem["detail"]
    assert headers["content-type"] == "application/problem+json"
    assert headers["x-request-id"] == problem["request_id"]
    assert headers["connection"] == "close"
    (logged,) = server.requests([problem["request_id"]])
    assert (logged["status"], logged["code"]) == (400, "http-error")


def test_head_without_http_gets_no_body(server: ServerProcess) -> None:
    status, headers, problem = answer_to(
        server, b"HEAD /livez HTTP/1.1\r\nhost: x\r\na b: c\r\n\r\n"
    )
    assert (status, problem) == (400, None)
    assert int(headers["content-length"]) > 0
    assert headers["x-request-id"]


def test_a_head_that_is_too_long_is_told_so_while_it_is_sent(server: ServerProcess) -> None:
    """The client sends on after the limit, and reads its answer all the same."""
    sent = b"GET /livez?q=%s HTTP/1.1\r\nhost: x\r\n\r\n" % (b"x" * 2_000_000)
    status, _, problem = answer_to(server, sent)
    assert (status, problem["code"]) == (431, "head-too-long")
    assert re.search(r"^head: expected at most 65536 .* found \d+ or more", problem["detail"])


def test_no_http_after_a_good_request_leaves_its_answer(server: ServerProcess) -> None:
    received = server.raw(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\nBREW / HTTP/1.1\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200")
    assert received.count(b"HTTP/1.1") == 1


def answer_to_half(port: int, sent: bytes) -> bytes:
    """Send, close our half of the connection, and return all that comes until the
    other one closes.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_client_that_closes_its_half_is_answered(server: ServerProcess) -> None:
    event = {"event_id": "half", "instance": RAW, "labels": ["label::3"]}
    long = {"instances": [RAW] * 1000, "exact": True}
    for path, body in ((PREDICT, json.loads(BODY)), (PREDICT, long), (FEEDBACK, event)):
        sent = request(b"host: x", path=path, body=json.dumps(body).encode())
        for _ in range(2):  # of the second one the head is known
            assert answer_to_half(server.port, sent).startswith(b"HTTP/1.1 200 ")
    two = request(b"host: x") * 2
    assert answer_to_half(server.port, two).count(b"HTTP/1.1 200 ") == 2


def test_a_batch_of_a_half_closed_connection_is_answered(server: ServerProcess) -> None:
    lines = (json.dumps(RAW).encode() + b"\n") * 5000
    sent = request(b"host: x", CLOSE, path=BATCH, body=lines).replace(b"/json", b"/x-ndjson")
    assert answer_to_half(server.port, sent).count(b'"labels"') == 5000


def test_a_client_that_closes_within_a_request_is_let_go(server: ServerProcess) -> None:
    for sent in (request(b"host: x")[:-1], b"POST /v1", b""):
        assert answer_to_half(server.port, sent) == b""


def send_until_it_stands_still(port: int, sent: bytes) -> socket.socket:
    """Send again and again on a connection that nothing is read from,
    until no more is taken, or a reset.
    """
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(sent)
    connection.settimeout(10.0)
    line = json.dumps(RAW).encode() + b"\n"
    try:
        for _ in range(10_000):
            connection.sendall(b"%x\r\n%b\r\n" % (len(line) * 100, line * 100))
    except (TimeoutError, ConnectionResetError, BrokenPipeError):
        return connection
    raise AssertionError("expected the server to stop reading")


def aborted(server: ServerProcess) -> float:
    text = server.ask("GET", "/metrics")[1].decode()
    return float(re.findall(r"^xylem_connections_aborted_total (\S+)", text, re.MULTILINE)[0])


def has_open(server: ServerProcess, connection: socket.socket) -> bool:
    """Return whether the server has its end of a connection open."""
    files = [file for file in Path(f"/proc/{server.process.pid}/fd").iterdir() if file.is_symlink()]
    inodes = {str(file.readlink()) for file in files}
    ours = f":{connection.getsockname()[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(ours) and f"socket:[{row[9]}]" in inodes for row in rows)


N_LONG = 100
LONG = json.dumps({"instances": [RAW] * 1000, "top_r": 50}).encode()


def ask_without_reading(server: ServerProcess) -> socket.socket:
    """Send so many requests on one connection that their answers fill all buffers of the system."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    sent = request(b"host: x", body=LONG) * N_LONG + request(b"host: x", CLOSE, body=LONG)

    def send() -> None:
        with contextlib.suppress(OSError):
            connection.sendall(sent)

    threading.Thread(target=send, daemon=True).start()
    return connection


def test_clients_that_do_not_read_are_given_up(shared_store: Path) -> None:
    """One that asks for much, and one that writes all of a batch before it reads.

    Without a file for its answers; test_batches_written_first.py has those with one.
    """
    head = (
        b"POST %b?top_r=20 HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
        % BATCH.encode()
    )
    settings = {"body_seconds_max": 1, "shutdown_seconds": 120, "batch_spool_mib": 0}
    with ServerProcess(shared_store, **settings) as server:
        with ask_without_reading(server):
            wait_for(lambda: aborted(server) == 1)
        connection = send_until_it_stands_still(
            server.port, head + b"transfer-encoding: chunked\r\n\r\n"
        )
        wait_for(lambda: aborted(server) == 2)
        wait_for(lambda: len(server.events("connection_aborted")) == 2)  # logs come a moment later
        wait_for(lambda: not has_open(server, connection))
        started = time.monotonic()
        assert server.terminate() == 0
        assert (
            time.monotonic() - started < 60
        )  # it does not wait for the client, who is still there
        connection.close()


def test_a_client_that_reads_slowly_gets_all_of_its_answers(shared_store: Path) -> None:
    with ServerProcess(shared_store, body_seconds_max=2) as server:
        with ask_without_reading(server) as connection:
            n_answers, tail, until = 0, b"", time.monotonic() + 6  # longer than three waits
            while part := connection.recv(65536):
                joined = tail + part
                n_answers += joined.count(b'"threshold_epoch"')
                tail = joined[-16:]
                time.sleep(0.05 if time.monotonic() < until else 0)
        assert n_answers == N_LONG + 1
        assert aborted(server) == 0


def test_a_new_worker_takes_no_connection_before_models_are_open(
    shared_store: Path,
) -> None:
    """R18 within a replica: what fails is at most what the killed worker was answering."""
    n_clients = 4
    with ServerProcess(shared_store, workers=2, access_log=False) as server:
        wait_for(lambda: len(server.events("models_opened")) == 2)
        seen: Counter[int] = Counter()

        def ask() -> None:
            with Connection(server.port) as connection:
                seen[try_once(connection, PREDICT, BODY)[0]] += 1

        with busy(*[ask] * n_clients):
            for n_opened in (3, 4):
                os.kill(server.events("worker_started")[n_opened - 3]["pid"], signal.SIGKILL)
                wait_for(lambda n=n_opened: len(server.events("models_opened")) == n)
            n_before = seen[200]
            wait_for(lambda: seen[200] > n_before + 100)
        assert seen.keys() <= {200, 0}
        assert seen[0] <= 2 * n_clients
        assert server.terminate() == 0


def test_a_service_of_two_workers_is_ready_when_both_are(shared_store: Path) -> None:
    """The first one accepts connections before its models are open: the other must wait for it."""
    with ServerProcess(shared_store, workers=2, until_ready=False) as server:
        first = server.events("worker_started")[0]["pid"]
        os.kill(first, signal.SIGSTOP)
        wait_for(lambda: len(server.events("models_opened")) >= 1)
        with contextlib.suppress(TimeoutError), Connection(server.port, seconds=1) as connection:
            assert connection.ask("GET", "/readyz")[0] == 503
        os.kill(first, signal.SIGCONT)
        wait_for(lambda: server.status("/readyz") == 200)
        assert {server.ask("POST", PREDICT, BODY)[0] for _ in range(50)} == {200}
        assert server.terminate() == 0


def test_the_first_worker_says_at_once_that_the_service_lives(tmp_path: Path) -> None:
    """A store that is missing is never ready; with several workers too, that is said."""
    with ServerProcess(tmp_path / "none", workers=2, until_ready=False) as process:
        wait_for(lambda: len(process.events("store_failed")) == 2)
        status, ready = process.ask("GET", "/readyz")
        assert (status, ready["status"]) == (503, "not ready")
        assert ready["store_error"] == "expected the directory of the models, found none"
        status, problem = process.ask("POST", PREDICT, BODY)
        assert (status, problem["code"]) == (503, "unavailable")
        assert str(tmp_path) not in problem["detail"]
        listed = process.ask("GET", "/v1/models")
        assert (listed[0], listed[1]["detail"]) == (503, problem["detail"])
        (tmp_path / "none").mkdir()
        wait_for(lambda: process.status("/readyz") == 200)
        assert process.terminate() == 0


def test_descriptors_that_are_used_up_are_told(server: ServerProcess) -> None:
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    n_open = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (n_open + 3, before[1]))
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
    wait_for(lambda: bool(server.events("descriptors_used_up")))
    for connection in held:
        connection.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    wait_for(lambda: server.status("/livez") == 200)
    assert len(server.events("descriptors_used_up")) == 1


@pytest.mark.parametrize(("soft", "hard", "says"), [(64, 4096, ""), (64, 200, "found 200")])
def test_the_limit_of_open_files_is_raised_as_far_as_it_may(
    soft: int, hard: int, says: str
) -> None:
    code = (
        f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from xylem.server.descriptors import raise_limit; raise_limit(1024)\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == hard
    assert ("descriptors_few" in done.stderr) == bool(says)
    assert says in done.stderr
