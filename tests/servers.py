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
"""An admin key: what `ServerProcess.admin` asks with, where it is the server's."""

_RUN = (
    "import sys; from pathlib import Path;"
    "from xylem.server.serve import run; from xylem.base.settings import read_settings;"
    "run(read_settings(store=Path(sys.argv[1]), port=0, workers=int(sys.argv[2])))"
)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for as long as the slowest machine may need."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def busy(*calls: Callable[[], object]) -> Iterator[list[Future[None]]]:
    """Call each again and again in a thread while the block runs; raise
    in the end what one of them raised.

    One that has raised is done.
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
            for each in running:
                each.result()


Answer = tuple[int, dict[str, str], bytes]
"""Its status, the headers by their names in lower case, and its bytes."""


class Connection:
    """A connection that is kept, so that heads are remembered; of names of headers, _ is -."""

    def __init__(self, port: int, seconds: float = STOP_SECONDS) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; the next request opens another."""
        self._connection.close()

    def begin(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> http.client.HTTPResponse:
        """The head of an answer, of which the body is still to be read."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body, {"content-type": "application/json", **given})
        return self._connection.getresponse()

    def exchange(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request; return its answer."""
        response = self.begin(method, path, body, **headers)
        given = {name.lower(): value for name, value in response.getheaders()}
        return response.status, given, response.read()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON (else the bytes) of an answer."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        status, given, content = self.exchange(method, path, data, **headers)
        return status, json.loads(content) if "json" in given.get("content-type", "") else content


def exchange(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> Answer:
    """As `Connection.exchange`, on a new connection."""
    with Connection(port) as connection:
        return connection.exchange(method, path, body, **headers)


class ServerProcess:
    """A server over a store, on a port of its own; keywords are settings, as in XYLEM_ variables.

    before         what its process does first
    start_seconds  how long it may take until it is ready
    until_ready    whether the block begins when it is ready, or when it listens
    command        what is started instead; the settings are in its environment
    more           further variables of its environment
    """

    def __init__(
        self,
        store: Path,
        workers: int = 1,
        *,
        before: str = "",
        start_seconds: float = START_SECONDS,
        until_ready: bool = True,
        command: Sequence[str] = (),
        more: Mapping[str, str] = MappingProxyType({}),
        **settings: object,
    ) -> None:
        self._start_seconds = start_seconds
        self._until_ready = until_ready
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("XYLEM_")
        }
        if "XYLEM_KERNEL_CACHE" in os.environ:
            environment["XYLEM_KERNEL_CACHE"] = os.environ["XYLEM_KERNEL_CACHE"]
        environment["XYLEM_JOBS"] = "0"  # but for the tests of jobs: a process more, and a database
        environment |= {f"XYLEM_{name.upper()}": str(value) for name, value in settings.items()}
        environment |= more
        # written and read through two descriptors: one would have one
        # place, which to read it moves back
        self._log = tempfile.NamedTemporaryFile("ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            command or [sys.executable, "-c", before + _RUN, str(store), str(workers)],
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
        """What it has written to standard error."""
        return Path(self._log.name).read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The logged events of a name."""
        whole = (line for line in self.log().splitlines(keepends=True) if line.endswith("\n"))
        lines = [
            line for line in whole if line.startswith("{")
        ]  # a first admin key is told in words
        return [event for line in lines if (event := json.loads(line))["event"] == name]

    def requests(self, ids: Collection[str]) -> list[dict[str, Any]]:
        """The logged requests of these ids, each of which is waited
        for: logs come a moment after answers.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            found = [event for event in self.events("request") if event["request_id"] in ids]
            if {event["request_id"] for event in found} >= set(ids):
                return found
            self._wait(deadline)

    def status(self, path: str) -> int:
        """The status of a GET; 0 when nobody listens."""
        try:
            return self.ask("GET", path)[0]
        except OSError:
            return 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """As `Connection.ask`, on a new connection."""
        with Connection(self.port) as connection:
            return connection.ask(method, path, body, **headers)

    def admin(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """As `ask`, with the admin key KEY; the path is below /v1/admin."""
        return self.ask(method, f"/v1/admin{path}", body, authorization=f"Bearer {KEY}", **headers)

    def exchange(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """As `Connection.exchange`, on a new connection."""
        return exchange(self.port, method, path, body, **headers)

    def raw(self, data: bytes, seconds: float = STOP_SECONDS) -> bytes:
        """Everything that comes back for these bytes until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(data)
            received = b""
            with suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    received += part
            return received

    def stream(self, path: str, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The lines of a batch's answer while its lines are sent by another thread."""
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
        """The resident memory of the process; of `VmHWM` the most that it had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.findall(rf"{field}:\s+(\d+) kB", status)[0])

    def terminate(self) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def answer_on(connection: socket.socket) -> tuple[int, Any]:
    """The status and the JSON of the answer that comes next on a connection."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())
