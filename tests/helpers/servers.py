"""Real server processes on loopback, and a client that reads while it writes."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

START_SECONDS = 240.0
STOP_SECONDS = 60.0
KEY = "correct-horse-battery-staple"
"""An admin key, with which `ServerProcess.admin` sends requests."""

_RUN = (
    "import sys; from pathlib import Path;"
    "from xylem.server.serve import run; from xylem.base.settings import read_settings;"
    "run(read_settings(store=Path(sys.argv[1]), port=0, workers=int(sys.argv[2])))"
)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most START_SECONDS, enough for the slowest machine."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def busy(*calls: Callable[[], object]) -> Iterator[list[Future[None]]]:
    """Call each function again and again, in a thread of its own, while the block runs.

    A function that raises is not called again, and its error is raised after the block.
    """
    stopping = threading.Event()

    def repeat(call: Callable[[], object]) -> None:
        while not stopping.is_set():
            call()

    with ThreadPoolExecutor(len(calls)) as threads:
        running = [threads.submit(repeat, call) for call in calls]
        try:
            yield running
        finally:
            stopping.set()
            for thread in running:
                thread.result()


Answer = tuple[int, dict[str, str], bytes]
"""(status, headers by name in lower case, body)."""


class Connection:
    """A connection that stays open, so that the server remembers heads of requests.

    In names of headers, _ becomes -.
    """

    def __init__(self, port: int, seconds: float = STOP_SECONDS) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._connection.close()

    def begin(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> http.client.HTTPResponse:
        """Send a request; return its answer, whose body is not yet read."""
        request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(
            method, path, body, {"content-type": "application/json", **request_headers}
        )
        return self._connection.getresponse()

    def exchange(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request; return its answer."""
        response = self.begin(method, path, body, **headers)
        response_headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, response_headers, response.read()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Send a request; return its status, and the answer as a value of JSON or as bytes."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        status, response_headers, content = self.exchange(method, path, data, **headers)
        return status, json.loads(content) if "json" in response_headers.get(
            "content-type", ""
        ) else content


def exchange(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> Answer:
    """Do the same as `Connection.exchange`, on a new connection."""
    with Connection(port) as connection:
        return connection.exchange(method, path, body, **headers)


class ServerProcess:
    """A server for a store, on a port of its own; keywords are settings, as in XYLEM_ variables.

    prelude              code that its process runs first
    start_seconds        how long it may take until it is ready
    until_ready          whether the block begins when the server is ready, or when it listens
    command              a command that is run instead; the settings are in its environment
    environment_changes  further variables of its environment
    """

    def __init__(
        self,
        store: Path,
        workers: int = 1,
        *,
        prelude: str = "",
        start_seconds: float = START_SECONDS,
        until_ready: bool = True,
        command: Sequence[str] = (),
        environment_changes: Mapping[str, str] = MappingProxyType({}),
        **settings: object,
    ) -> None:
        self._start_seconds = start_seconds
        self._until_ready = until_ready
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("XYLEM_")
        }
        if "XYLEM_KERNEL_CACHE" in os.environ:
            environment["XYLEM_KERNEL_CACHE"] = os.environ["XYLEM_KERNEL_CACHE"]
        environment["XYLEM_JOBS"] = "0"  # jobs need another process and a database
        environment |= {f"XYLEM_{name.upper()}": str(value) for name, value in settings.items()}
        environment |= environment_changes
        # the log is read through another descriptor: reading through this one would move the
        # position at which the process writes
        self._log = tempfile.NamedTemporaryFile("ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            command or [sys.executable, "-c", prelude + _RUN, str(store), str(workers)],
            stderr=self._log,
            env=environment,
        )
        self.port = 0
        self.store = store

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._start_seconds
        while not self.port:
            self.port = next(
                (int(re.findall(r":(\d+)$", e["url"])[0]) for e in self.events("listening")), 0
            )
            self._wait(deadline)
        while self.status("/readyz" if self._until_ready else "/livez") != 200:
            self._wait(deadline)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def _wait(self, deadline: float) -> None:
        assert self.process.poll() is None, self.log()
        assert time.monotonic() < deadline, self.log()
        time.sleep(0.02)

    def log(self) -> str:
        """Return what the process has written to standard error."""
        return Path(self._log.name).read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the logged events of a name."""
        complete_lines = (
            line for line in self.log().splitlines(keepends=True) if line.endswith("\n")
        )
        lines = [
            line for line in complete_lines if line.startswith("{")
        ]  # the line with a first admin key is no JSON
        return [event for line in lines if (event := json.loads(line))["event"] == name]

    def requests(self, ids: Collection[str]) -> list[dict[str, Any]]:
        """Wait for the log entries of these requests, which come shortly after the answers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            logged = [event for event in self.events("request") if event["request_id"] in ids]
            if {event["request_id"] for event in logged} >= set(ids):
                return logged
            self._wait(deadline)

    def status(self, path: str) -> int:
        """Return the status of a GET, or 0 if the port refuses connections."""
        try:
            return self.ask("GET", path)[0]
        except OSError:
            return 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Do the same as `Connection.ask`, on a new connection."""
        with Connection(self.port) as connection:
            return connection.ask(method, path, body, **headers)

    def admin(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Do the same as `ask`, with the admin key KEY and a path below /v1/admin."""
        return self.ask(method, f"/v1/admin{path}", body, authorization=f"Bearer {KEY}", **headers)

    def exchange(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Do the same as `Connection.exchange`, on a new connection."""
        return exchange(self.port, method, path, body, **headers)

    def raw(self, data: bytes, seconds: float = STOP_SECONDS) -> bytes:
        """Send bytes; return all bytes that come until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(data)
            received = b""
            with suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    received += part
            return received

    def stream(self, path: str, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the lines of a batch's answer, while another thread sends the batch's lines."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
            connection.sendall(head.encode() + b"transfer-encoding: chunked\r\n\r\n")

            def send() -> None:
                for line in lines:
                    connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))
                connection.sendall(b"0\r\n\r\n")

            writer = threading.Thread(target=send, daemon=True)
            writer.start()
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert response.status == 200, response.read()
            yield from response
            writer.join()

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """Return the resident memory of the process; with `VmHWM` the most that it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.findall(rf"{field}:\s+(\d+) kB", status)[0])

    def terminate(self) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def answer_on(connection: socket.socket) -> tuple[int, Any]:
    """Read the next answer on a connection; return its status and its JSON."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())
