"""Real processes on loopback: start, answer, stream, swap, reload, drain and stop."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.raw_requests import BODY, CLOSE, GOOD, PREDICT, RAW, connected, status_of
from tests.helpers.served_models import publish_model
from tests.helpers.servers import START_SECONDS, ServerProcess, answer_on, wait_for

from xylem.api.door.admission import PROBES
from xylem_store.store import Store

SECRET = "the text of a customer"


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store) as process:
        yield process
        assert process.terminate() == 0, process.log()


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


def test_workers_share_a_socket_reload_and_are_replaced(
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
