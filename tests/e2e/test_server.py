"""Real processes on loopback: start, answer, stream, swap, reload, drain and stop."""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.served_models import publish_model
from tests.helpers.servers import START_SECONDS, ServerProcess, answer_on, wait_for

from xylem.api.door.admission import PROBES
from xylem_store.store import Store

RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
BODY = {"instances": [RAW], "top_r": 3}
PREDICT = "/v1/models/raw/predict"
SECRET = "the text of a customer"


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    limits = {"body_bytes_max": 20_000, "body_seconds_max": 1.0, "keep_alive_seconds": 1}
    with ServerProcess(shared_store, **limits) as process:
        yield process
        assert process.terminate() == 0, process.log()


def request_bytes(body: bytes, *headers: bytes) -> bytes:
    lines = [
        b"POST %b HTTP/1.1" % PREDICT.encode(),
        b"host: x",
        b"content-type: application/json",
        *headers,
    ]
    return b"\r\n".join([*lines, b"", body])


def declared(body: bytes, *headers: bytes) -> bytes:
    """A request that says how long its body is."""
    return request_bytes(body, b"content-length: %d" % len(body), *headers)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A request whose body comes in chunks; the connection ends with it."""
    parts = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return request_bytes(parts + end, b"transfer-encoding: chunked", CLOSE)


CLOSE = b"connection: close"
DATA = json.dumps(BODY).encode()
GOOD = declared(DATA)


def connected(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def test_it_starts_answers_and_logs_no_payload(server: ServerProcess) -> None:
    status, body = server.ask("POST", PREDICT, BODY, **{"x-request-id": "mine"})
    assert (status, body["version"], len(body["predictions"][0]["labels"])) == (200, 2, 3)
    text = {"instances": [{"text": SECRET}]}
    server.ask("POST", "/v1/models/text/predict", text, **{"x-request-id": "secret"})
    server.ask("POST", PREDICT, {**text, SECRET: 1}, **{"x-request-id": "refused"})
    assert server.status("/docs") == 200
    event, _, refused = server.requests(["mine", "secret", "refused"])
    assert (event["route"], event["status"], event["method"]) == (
        "/v1/models/{model}/predict",
        200,
        "POST",
    )
    assert (event["model"], event["version"], event["alias"]) == ("raw", 2, "latest")
    assert (refused["model"], refused["version"], refused["code"]) == ("raw", 2, "bad-request")
    assert {each["path"] for each in server.events("request") if each["status"] == 200}.isdisjoint(
        PROBES
    )
    assert SECRET not in server.log()


def test_a_stream_of_many_lines_in_bounded_memory(shared_store: Path) -> None:
    n_lines, path = 50_000, "/v1/models/raw/batch?top_r=3"
    answered = threading.Event()

    def lines() -> Iterator[bytes]:
        for i in range(n_lines):
            if i == n_lines // 2:  # answers begin long before the lines end
                assert answered.wait(120)
            yield json.dumps({"id": i, **RAW}).encode() + b"\n"

    with ServerProcess(shared_store) as server:
        list(server.stream(path, (next(lines()) for _ in range(2000))))
        before, n_answers = server.memory_bytes(), 0
        for i, line in enumerate(server.stream(path, lines())):
            answered.set()
            answer = json.loads(line)
            assert (answer["id"], len(answer["labels"])) == (i, 3)
            n_answers += 1
            if i % 1000 == 0:
                assert server.memory_bytes() - before < 40 << 20
    assert n_answers == n_lines


def test_a_damaged_new_version_is_not_served(own_store: Store) -> None:
    """R20: the old version answers on, and the fault is reported."""
    with ServerProcess(own_store.root, store_poll_seconds=0.05) as server:
        version = publish_model(own_store, "raw", "raw", seed=5).version
        wait_for(lambda: server.ask("POST", PREDICT, BODY)[1]["version"] == version)
        own_store.promote("raw", 2)
        wait_for(lambda: server.ask("POST", PREDICT, BODY)[1]["version"] == 2)
        home = own_store.root / "models" / "raw"
        for file in (home / "versions" / str(version)).rglob("*.npy"):
            *others, last = file.read_bytes()
            damaged = file.with_suffix(".new")
            damaged.write_bytes(bytes([*others, last ^ 1]))
            damaged.replace(file)
        shutil.copy(
            home / "aliases" / "latest.json", home / "aliases" / "damaged.json"
        )  # moved by hand
        wait_for(lambda: b'alias="damaged"' in server.ask("GET", "/metrics")[1])
        status, body = server.ask("POST", f"/v1/models/raw/versions/{version}/predict", BODY)
        assert (status, body["code"]) == (503, "model-unavailable")
        ready = server.ask("GET", "/readyz")[1]
        assert ready["status"] == "ready"
        assert [(f["model"], f["ref"]) for f in ready["failures"]] == [("raw", str(version))]
        assert server.ask("POST", PREDICT, BODY)[1]["version"] == 2
        assert (
            b'xylem_model_failed{model="raw",ref="%d"} 1.0' % version
            in server.ask("GET", "/metrics")[1]
        )


def test_everything_in_flight_completes_after_sigterm(shared_store: Path) -> None:
    """R17: readiness goes first, requests still come in for a
    while, and those in flight are answered.
    """
    limits = {"drain_seconds": START_SECONDS, "body_seconds_max": START_SECONDS}
    with ServerProcess(shared_store, **limits) as server:
        held = [connected(server) for _ in range(10)]
        for connection in held:
            connection.sendall(GOOD[:-10])
        idle, plain = connected(server), connected(server)
        idle.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        for _ in range(3):  # later ones are answered from their bytes
            plain.sendall(GOOD)
            assert answer_on(plain)[0] == 200
        closed = threading.Event()
        batch = server.stream("/v1/models/raw/batch", some_before_and_some_after(closed))
        next(batch)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: server.status("/readyz") == 503)
        time.sleep(0.5)  # longer than it takes the server to look whether the while is over
        assert server.ask("POST", PREDICT, BODY)[0] == 200
        plain.sendall(GOOD)
        received = b"".join(iter(partial(plain.recv, 65536), b""))
        assert (status_of(received), CLOSE in received) == (200, True)
        server.process.send_signal(signal.SIGTERM)  # the second one ends the while
        wait_for(lambda: server.status("/livez") == 0)  # no longer accepting, and still alive
        assert server.process.poll() is None
        closed.set()
        for connection in held:
            connection.sendall(GOOD[-10:])
            status, answer = answer_on(connection)
            assert (status, len(answer["predictions"])) == (200, 1)
            connection.close()
        assert sum(1 for _ in batch) == 19
        idle.close()
        plain.close()
        assert server.process.wait(60) == 0, server.log()
        assert server.events("stopped")


def some_before_and_some_after(closed: threading.Event) -> Iterator[bytes]:
    """Twenty lines of a batch, the last ten when the server no longer accepts connections."""
    for i in range(20):
        if i == 10:
            assert closed.wait(120)
        yield json.dumps(RAW).encode() + b"\n"


def test_workers_share_a_socket_reload_are_replaced_and_end_with_their_parent(
    own_store: Store,
) -> None:
    process = ServerProcess(own_store.root, workers=2, store_poll_seconds=3600, drain_seconds=0.1)
    wait_for(lambda: len(process.events("worker_started")) == 2)
    deadline = time.monotonic() + START_SECONDS
    while len(process.events("models_opened")) < 2 and not process.events("worker_died"):
        assert time.monotonic() < deadline
        process.process.send_signal(signal.SIGHUP)  # ends no worker that starts
        time.sleep(0.02)
    with process as server:
        assert not server.events("worker_died")
        publish_model(own_store, "raw", "raw", seed=5)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(server.events("model_swapped")) == 2)
        assert {server.ask("POST", PREDICT, BODY)[1]["version"] for _ in range(20)} == {3}
        os.kill(server.events("worker_started")[0]["pid"], signal.SIGKILL)
        wait_for(lambda: len(server.events("models_opened")) == 3)
        assert server.ask("POST", PREDICT, BODY)[0] == 200
        server.process.kill()
        server.process.wait()
        wait_for(lambda: server.status("/livez") == 0)


def test_a_second_interrupt_ends_it_at_once_without_a_complaint(shared_store: Path) -> None:
    with ServerProcess(shared_store, shutdown_seconds=START_SECONDS) as server:
        with connected(server) as connection:
            lines = [
                b"POST /v1/models/raw/batch HTTP/1.1",
                b"host: x",
                b"content-type: application/x-ndjson",
            ]
            connection.sendall(b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b""]))
            wait_for(lambda: b"xylem_requests_in_flight 2.0" in server.ask("GET", "/metrics")[1])
            server.process.send_signal(signal.SIGINT)
            wait_for(lambda: server.status("/livez") == 0)
            assert server.process.poll() is None  # it waits for the batch
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(60) == 0
        assert "Traceback" not in server.log()
        assert {event["level"] for event in server.events("message")} <= {"warning"}
        assert server.events("stopped")


def ignores_hangup(pid: int) -> bool:
    """Whether a process has told the system that SIGHUP is not to end it."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"^SigIgn:\s+(\w+)$", status, re.MULTILINE)
    return bool(int(mask, 16) >> (signal.SIGHUP - 1) & 1)


@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.6])
def test_a_hangup_does_not_end_a_server_that_starts(shared_store: Path, seconds: float) -> None:
    """The command takes its time to import what it needs; it looks at the store afterwards anyway.

    The time counts from the first line of ours: before that, Python itself has not started.
    """
    options = ["--store", str(shared_store), "--port", "0"]
    command = [sys.executable, "-m", "xylem.cli.entry", "serve", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: ignores_hangup(process.pid))
        time.sleep(seconds)
        process.send_signal(signal.SIGHUP)
        assert any('"event":"models_opened"' in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(60) == 0


def test_a_port_in_use_is_said(server: ServerProcess) -> None:
    code = (
        "from xylem.server.serve import run; from xylem.base.settings import read_settings;"
        f"run(read_settings(port={server.port}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert f"127.0.0.1:{server.port}: expected an address to listen on" in done.stderr


# --- raw sockets


def status_of(received: bytes) -> int:
    return int(received.split(b" ", 2)[1]) if received.startswith(b"HTTP/1.1 ") else 0


CHUNKED = chunked(b"{}", end=b"")


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (b"GET /livez HTTP/1.1\r\na: ", b"x" * 65536),
        (CHUNKED + b"0\r\n", b"a: b\r\n" * 10_000),
        (CHUNKED + b"0\r\na: ", b"x" * 65536),
        (CHUNKED + b"5;", b"x" * 65536),
        (b"", b"\r\n" * 32768),
        (
            b"GET /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
            b"10000\r\n" + b"x" * 65536 + b"\r\n",
        ),
    ],
    ids=["head", "trailers", "trailer", "extension", "empty", "unwanted"],
)
def test_what_is_no_body_and_never_ends_is_cut_off(
    server: ServerProcess, begin: bytes, part: bytes
) -> None:
    before, sent = server.memory_bytes(), 0
    with connected(server) as connection:
        connection.sendall(begin)
        with pytest.raises(OSError):
            while sent < 100 << 20:
                sent += connection.send(part)
    assert sent < 10 << 20
    assert server.memory_bytes() - before < 20 << 20


def padded(n: int) -> bytes:
    """A good request whose head has so many bytes, of which names and values count."""
    fixed = "host x content-type application/json content-length connection close a".replace(
        " ", ""
    )
    n_fixed = len(PREDICT) + len(fixed) + len(str(len(DATA)))
    return declared(DATA, CLOSE, b"a: " + b"x" * (n - n_fixed))


LONG = b'{"instances": []'.ljust(19_999) + b"}"
HUGE = request_bytes(b"", b"content-length: 1000000000000", b"expect: 100-continue")
PIECES = [LONG[i : i + 999] for i in range(0, 20_000, 999)]


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        pytest.param(padded(65_536), 200, b"predictions", id="a head at the limit"),
        pytest.param(padded(65_537), 431, b"head-too-long", id="a head one byte longer"),
        pytest.param(declared(LONG, CLOSE), 422, b"bad-request", id="a body at the limit"),
        pytest.param(
            declared(LONG + b" ", CLOSE), 413, b"body-too-large", id="a body one byte longer"
        ),
        pytest.param(chunked(*PIECES), 422, b"bad-request", id="chunks at the limit"),
        pytest.param(chunked(*PIECES, b" "), 413, b"body-too-large", id="chunks one byte longer"),
        pytest.param(b"", 0, b"", id="nothing comes"),
        pytest.param(b"GET", 0, b"", id="no head comes"),
        pytest.param(b"GET /livez HTTP/1.1\r\nhost: x\r\n", 0, b"", id="no end of a head comes"),
        pytest.param(
            request_bytes(b"{", b"content-length: 100"), 408, b"body-timeout", id="no body comes"
        ),
        pytest.param(HUGE, 413, CLOSE, id="a huge body before it is sent"),
    ],
)
def test_limits_of_heads_and_bodies(
    server: ServerProcess, sent: bytes, status: int, says: bytes
) -> None:
    received = server.raw(sent)
    assert (status_of(received), says in received) == (status, True), received


def test_trailers_are_taken_and_forgotten(server: ServerProcess) -> None:
    received = server.raw(chunked(DATA, end=b"0\r\nx-request-id: trailed\r\n\r\n"))
    assert (status_of(received), b"trailed" in received) == (200, False)


def batch_bytes(version: bytes, *headers: bytes) -> bytes:
    """A batch of one line."""
    line = json.dumps(RAW).encode() + b"\n"
    lines = (b"content-type: application/x-ndjson", b"content-length: %d" % len(line), *headers)
    head = b"POST /v1/models/raw/batch?top_r=1 HTTP/%s\r\nhost: x\r\n" % version
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + line


def test_a_batch_that_waits_for_100_continue_is_asked_for(server: ServerProcess) -> None:
    head, _, line = batch_bytes(b"1.1", b"expect: 100-continue").partition(b"\r\n\r\n")
    with connected(server) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(line)
        status, answer = answer_on(connection)
        assert (status, len(answer["labels"])) == (200, 1)


def test_a_batch_over_http_1_0_ends_with_its_connection(server: ServerProcess) -> None:
    head, _, body = server.raw(batch_bytes(b"1.0")).partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"transfer-encoding" not in head.lower()
    (line,) = body.splitlines()
    assert len(json.loads(line)["labels"]) == 1


def test_an_endless_chunked_body_is_cut_off_and_the_answer_is_seen(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.sendall(request_bytes(b"", b"transfer-encoding: chunked"))
        chunk = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
        for _ in range(10):
            connection.sendall(chunk)
        status, answer = answer_on(connection)
        assert (status, answer["code"]) == (413, "body-too-large")
        with pytest.raises(OSError):
            while True:
                connection.sendall(chunk)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /%ff%00%c3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        request_bytes(b"", b"content-length: -1"),
        request_bytes(b"{}", b"content-length: 1", b"content-length: 2"),
        request_bytes(b"", b"content-length: 99999999999999999999999"),
        request_bytes(b"zz\r\n", b"transfer-encoding: chunked"),
        request_bytes(b"0\r\n\r\n", b"transfer-encoding: chunked", b"content-length: 3"),
        request_bytes(b"{}{}GET / HTTP/1.1\r\n\r\n", b"content-length: 2", b"connection: close"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: \xff\xfe\r\nconnection: close\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close, upgrade\r\nupgrade: "
        b"websocket\r\n\r\n",
    ],
    ids=range(14),
)
def test_bytes_that_are_not_a_good_request(server: ServerProcess, data: bytes) -> None:
    received = server.raw(data)
    assert status_of(received) < 500, received
    assert server.status("/livez") == 200


def test_pipelined_requests_are_answered_in_order(server: ServerProcess) -> None:
    one = b"GET /v1/models/%s HTTP/1.1\r\nhost: x\r\n%s\r\n"
    received = server.raw(
        one % (b"raw", b"") + one % (b"text", b"") + one % (b"none", CLOSE + b"\r\n")
    )
    assert [received.count(text) for text in (b"HTTP/1.1 200", b"HTTP/1.1 404")] == [2, 1]
    assert received.index(b'"name":"raw"') < received.index(b'"name":"text"')


def test_requests_with_mutated_bytes(server: ServerProcess) -> None:
    """R6 on raw sockets: no 5xx, no hang, and the server lives on."""

    def mutated(seed: int) -> bytes:
        chooser = random.Random(seed)
        request = bytearray(declared(DATA, CLOSE))
        for _ in range(chooser.randint(1, 5)):
            i = chooser.randrange(len(request))
            change = chooser.choice(
                [[], [chooser.randrange(256)], list(b"\r\n\r\n"), [0x20], [0x25, 0x66]]
            )
            request[i : i + chooser.randint(0, 2)] = bytes(change)
        return bytes(request)

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda seed: status_of(server.raw(mutated(seed))), range(300)))
    assert max(statuses) < 500
    assert {200, 400} <= set(statuses)
    assert server.status("/livez") == 200
