"""Two `xylem serve` on loopback for a load balancer to stand before, and clients that ask without a pause."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from tests.servers import exchange

XYLEM = Path(sys.executable).with_name("xylem")
WAIT_SECONDS = 110.0
KEY = "correct-horse-battery-staple"
PREDICT = "/v1/models/raw/predict"
INSTANCE = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
BODY = json.dumps({"instances": [INSTANCE], "top_r": 3})
JSON = {"content-type": "application/json"}
N_CLIENTS = 4
BROKEN = 0
"""Counted in the place of a status: no answer, or one that broke off."""

FAILURES = (BROKEN, 502, 503, 504)
REFUSED_TWICE = -1
"""Counted when a request that failed is asked once more and fails again."""


@contextmanager
def reserved_ports(n: int) -> Iterator[list[int]]:
    """Ports that only who asks for them by number can listen on: no other process is given one meanwhile.

    Servers set SO_REUSEADDR, and so does who reserves, who does not listen.
    """
    with ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(n)]
        for holder in holders:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
        yield [holder.getsockname()[1] for holder in holders]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Replica:
    """`xylem serve` on a port of its own, which can be stopped and started again."""

    def __init__(self, store: Path, port: int, database: Path, drain_seconds: float = 0.3) -> None:
        self.port = port
        self._drain_seconds = drain_seconds
        self._database_url = f"sqlite:///{database}"
        self._data = database.parent / "data"
        self._data.mkdir(exist_ok=True)
        self._command = [XYLEM, "serve", "--store", store, "--port", str(port)]

    def __enter__(self) -> Self:
        changes = {
            "XYLEM_DRAIN_SECONDS": str(self._drain_seconds),
            "XYLEM_DATABASE_URL": self._database_url,
            "XYLEM_JOBS": "0",
            "XYLEM_ADMIN_KEY": KEY,
            "XYLEM_DATA_DIR": str(self._data),
        }
        environment = {**os.environ, **changes}
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, env=environment)
        wait_until(self.is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)

    def is_ready(self) -> bool:
        assert self._process.poll() is None
        try:
            return exchange(self.port, "GET", "/readyz")[0] == 200
        except OSError:
            return False

    def stop(self, how: signal.Signals) -> int:
        if self._process.poll() is None:
            self._process.send_signal(how)
        return self._process.wait(120)

    def answered(self) -> int:
        """How many predict requests it has answered with 200."""
        text = exchange(self.port, "GET", "/metrics")[2].decode()
        counts = re.findall(r"^xylem_requests_total\{.*predict.*200.*\} ([0-9.]+)$", text, re.MULTILINE)
        return int(sum(map(float, counts)))


@contextmanager
def load(port: int) -> Iterator[Counter[int]]:
    """Ask for predictions from some clients while the block runs; count the answers by status.

    A request that fails is asked once more at once, as clients do.
    """
    counts: Counter[int] = Counter()
    stop = threading.Event()

    def ask_once(connection: http.client.HTTPConnection) -> int:
        try:
            connection.request("POST", PREDICT, BODY, JSON)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return BROKEN
        return response.status

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        failed = False
        while not stop.is_set():
            status = ask_once(connection)
            counts[status] += 1
            if failed and status != 200:
                counts[REFUSED_TWICE] += 1
            failed = status in FAILURES
        connection.close()

    clients = [threading.Thread(target=ask) for _ in range(N_CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield counts
    finally:
        stop.set()
        for client in clients:
            client.join()
