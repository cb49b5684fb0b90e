"""Two replicas over one store and one database, which can be killed, stopped and started while others ask."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.replicas import KEY, listens, wait_until
from tests.servers import STOP_SECONDS

_SETTINGS = {
    "XYLEM_JOBS": "0",
    "XYLEM_ADMIN_KEY": KEY,
    "XYLEM_THRESHOLD_REFRESH_MS": "100",
    "XYLEM_ACCESS_LOG": "0",
}


class Replica:
    """`xylem serve` on one port, started again after its death."""

    def __init__(self, store: Path, port: int, database_url: str, environment: Mapping[str, str]) -> None:
        self.port = port
        self._environment = {**os.environ, **_SETTINGS, "XYLEM_DATABASE_URL": database_url, **environment}
        self._command = [
            Path(sys.executable).with_name("xylem"),
            "serve",
            "--store",
            store,
            "--port",
            str(port),
        ]
        self._log = tempfile.NamedTemporaryFile("ab")  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(
            [*self._command], stderr=self._log, stdout=self._log, env=self._environment
        )
        wait_until(lambda: self.is_running() and listens(self.port))

    def is_running(self) -> bool:
        """Whether its process lives."""
        assert self._process is not None
        assert self._process.poll() is None, self.log()[-3000:]
        return True

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal to it."""
        assert self._process is not None
        self._process.send_signal(signal_number)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def terminate(self) -> int:
        """Have it end in order; return its status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_SECONDS)

    def log(self) -> str:
        """What it has written."""
        return Path(self._log.name).read_text()

    def close(self) -> None:
        """Kill it, and forget its log."""
        self.kill()
        self._log.close()
