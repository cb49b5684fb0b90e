"""Processes of `xylem serve` that are stopped and started, and clients that send requests."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.helpers.servers import KEY, Connection, busy, exchange, wait_for

XYLEM = Path(sys.executable).with_name("xylem")
wait_until = wait_for
PREDICT = "/v1/models/raw/predict"
INSTANCE = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
BODY = json.dumps({"instances": [INSTANCE], "top_r": 3})
N_CLIENTS = 4
BROKEN = 0
"""In place of a status: there was no answer, or an incomplete one."""

FAILURES = (BROKEN, 502, 503, 504)
REFUSED_TWICE = -1
"""In place of a status: a request failed, was sent again, and failed again."""


@contextmanager
def reserved_ports(n: int) -> Iterator[list[int]]:
    """Reserve ports: the system gives them to no other process, but servers can listen on them.

    This works because servers set SO_REUSEADDR, and so do the sockets here, which do not listen.
    """
    with ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(n)]
        for holder in holders:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
        yield [holder.getsockname()[1] for holder in holders]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Replica:
    """`xylem serve` on a port of its own; keywords are settings, as in XYLEM_ variables."""

    def __init__(
        self,
        store: Path,
        port: int,
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        self.port = port
        self._command = [XYLEM, "serve", "--store", store, "--port", str(port)]
        all_settings = {"jobs": 0, "admin_key": KEY, **settings}
        variables = {f"XYLEM_{name.upper()}": str(value) for name, value in all_settings.items()}
        self._environment = {**os.environ, **(environment or {}), **variables}
        self._output = tempfile.NamedTemporaryFile("ab")  # noqa: SIM115

    def start(self) -> None:
        """Start the process, and wait until it is ready."""
        out = self._output
        self.process = subprocess.Popen(
            self._command, stderr=out, stdout=out, env=self._environment
        )
        wait_for(self.is_ready)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)
        self._output.close()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            return exchange(self.port, "GET", "/readyz")[0] == 200
        except OSError:
            return False

    def stop(self, signal_number: signal.Signals) -> int:
        """Send a signal that ends the process, if it runs; return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(120)

    def log(self) -> str:
        """Return the end of its output."""
        return Path(self._output.name).read_text()[-3000:]

    def answered(self) -> int:
        """Return how many predict requests it has answered with 200."""
        text = exchange(self.port, "GET", "/metrics")[2].decode()
        counts = re.findall(
            r"^xylem_requests_total\{.*predict.*200.*\} ([0-9.]+)$", text, re.MULTILINE
        )
        return int(sum(map(float, counts)))


def try_once(connection: Connection, path: str, body: object) -> tuple[int, Any]:
    """Send a POST; return its status and the answer, or BROKEN if no complete answer came."""
    try:
        return connection.ask("POST", path, body)
    except (OSError, http.client.HTTPException):
        connection.close()
        return BROKEN, {}


@contextmanager
def load(port: int) -> Iterator[Counter[int]]:
    """Send predict requests from several clients while the block runs; count answers by status.

    A request that fails is sent once more, immediately, as clients do.
    """
    counts: Counter[int] = Counter()

    def ask(connection: Connection) -> None:
        status, _ = try_once(connection, PREDICT, BODY.encode())
        counts[status] += 1
        if status in FAILURES:
            status, _ = try_once(connection, PREDICT, BODY.encode())
            counts[status] += 1
            if status != 200:
                counts[REFUSED_TWICE] += 1

    with ExitStack() as stack:
        clients = [stack.enter_context(Connection(port, seconds=120)) for _ in range(N_CLIENTS)]
        stack.enter_context(busy(*(partial(ask, client) for client in clients)))
        yield counts
