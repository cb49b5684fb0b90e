"""Servers of gRPC start, share a port, say whether they are ready, and stop without a loss."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.helpers.grpc_calls import SECONDS, ask, channel_to, method, port_of, refusal_of, typed
from tests.helpers.oip_requests import csr
from tests.helpers.servers import START_SECONDS, ServerProcess, wait_for

from xylem.base.sockets import listen
from xylem.extras.grpc.messages import SERVICE, message_class

ROW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
STATES = health_pb2.HealthCheckResponse


def infer_request(n: int = 1, **parameters: int) -> Any:
    """A request for so many rows, with parameters that are integers."""
    return message_class("ModelInferRequest")(
        model_name="raw",
        inputs=[typed(one["name"], one["data"]) for one in csr([ROW] * n)],
        parameters={name: {"int64_param": value} for name, value in parameters.items()},
    )


def watched(stub: Any) -> tuple[list[int], threading.Thread]:
    """The states of the service as a watcher is told, and the thread that watches."""
    states: list[int] = []

    def watch() -> None:
        try:
            for response in stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE)):
                states.append(response.status)
        except grpc.RpcError as error:
            states.append(-error.code().value[0])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return states, thread


def test_all_in_flight_complete_and_the_health_goes_first(shared_store: Path) -> None:
    """After SIGTERM calls are taken for a while; then those in flight are answered, and watchers
    do not hold the process.
    """
    limits = {"drain_seconds": START_SECONDS, "body_seconds_max": START_SECONDS}
    with (
        ServerProcess(shared_store, grpc_port=0, **limits) as server,
        channel_to(server) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        wait_for(lambda: stub.Check(request).status == STATES.SERVING)
        states, watcher = watched(stub)
        wait_for(lambda: states == [STATES.SERVING])
        goes_on = threading.Event()

        def late() -> Iterator[bytes]:
            goes_on.wait(SECONDS)
            yield infer_request(3).SerializeToString()

        stream = channel.stream_unary(f"/{SERVICE}/ModelInfer")
        held = [stream.future(late(), timeout=SECONDS) for _ in range(5)]
        gauge = b"xylem_requests_in_flight 6.0"  # the page's own request is one
        wait_for(lambda: gauge in server.ask("GET", "/metrics")[1])
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: states == [STATES.SERVING, STATES.NOT_SERVING])
        assert not ask(channel, "ServerReady").ready and ask(channel, "ServerLive").live
        assert method(channel, "ModelInfer")(infer_request(), timeout=SECONDS).model_name == "raw"
        server.process.send_signal(signal.SIGTERM)  # the second one ends the while
        wait_for(lambda: server.status("/livez") == 0)
        assert server.process.poll() is None
        with channel_to(server) as other, pytest.raises(grpc.RpcError) as refused:
            ask(other, "ServerLive")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        goes_on.set()
        for call in held:
            answer = message_class("ModelInferResponse").FromString(call.result())
            assert answer.outputs[3].contents.int_contents == [5, 5, 5]
        assert server.process.wait(SECONDS) == 0, server.log()
        watcher.join(SECONDS)
        assert not watcher.is_alive() and server.events("stopped")
        assert server.events("failure") == server.events("message") == []


def test_a_call_that_does_not_end_is_ended_in_time(shared_store: Path) -> None:
    with (
        ServerProcess(
            shared_store, grpc_port=0, drain_seconds=0, shutdown_seconds=1, body_seconds_max=60
        ) as server,
        channel_to(server) as channel,
    ):
        ends = threading.Event()

        def never() -> Iterator[bytes]:
            ends.wait(SECONDS)
            yield b""

        held = channel.stream_unary(f"/{SERVICE}/ModelInfer").future(never(), timeout=SECONDS)
        wait_for(lambda: b"xylem_requests_in_flight 2.0" in server.ask("GET", "/metrics")[1])
        assert server.terminate() == 0, server.log()
        assert isinstance(held.exception(), grpc.RpcError)
        ends.set()


def test_several_processes_answer_at_one_port(shared_store: Path) -> None:
    """Each has its own socket; one that is killed is replaced."""
    with ServerProcess(shared_store, workers=2, grpc_port=0) as server:
        port = port_of(server)

        def workers() -> set[str]:
            page = server.ask("GET", "/metrics")[1].decode()
            lines = [line for line in page.splitlines() if "ServerLive" not in line]
            lines = [line for line in lines if line.startswith("xylem_requests_total")]
            return {line.split('worker="')[1][0] for line in lines if "/v2/health/live" in line}

        def call() -> bool:
            with channel_to(server) as channel:
                return bool(ask(channel, "ServerLive").live) and workers() == {"0", "1"}

        wait_for(call)
        first = server.events("worker_started")[0]["pid"]
        subprocess.run(["kill", "-9", str(first)], check=True)
        wait_for(lambda: len(server.events("worker_started")) == 3)
        assert port_of(server) == port
        wait_for(lambda: all(answers(server) for _ in range(20)))
        assert server.terminate() == 0


def answers(server: ServerProcess) -> bool:
    """Whether a new connection is answered."""
    with channel_to(server) as channel:
        try:
            return bool(ask(channel, "ServerReady").ready)
        except grpc.RpcError as error:
            assert refusal_of(error).status is grpc.StatusCode.UNAVAILABLE
            return False


def command(
    store: Path, *arguments: str, prelude: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """`xylem serve` with arguments, in a process that must end by itself."""
    script = f"{prelude}; from xylem.command import main; import sys; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", script, "serve", "--store", str(store), "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_in_use_is_reported(tmp_path: Path, workers: str) -> None:
    with closing(listen("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = command(tmp_path, "--grpc-port", str(port), "--workers", workers)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}: expected an address to listen on, found: " in done.stderr


def test_a_missing_library_is_reported(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['grpc'] = None"
    done = command(tmp_path, "--grpc-port", "0", prelude=hidden)
    assert done.returncode == 2
    fault = "xylem serve --grpc-port needs grpcio: pip install 'xylem-serve[grpc]'"
    assert fault in " ".join(done.stderr.split())


def test_without_a_port_nothing_is_loaded(shared_store: Path) -> None:
    for settings, is_loaded in ({"grpc_port": 0}, True), ({}, False):
        with ServerProcess(shared_store, **settings) as server:
            libraries = Path(f"/proc/{server.process.pid}/maps").read_text()
            assert ("cygrpc" in libraries) == is_loaded
