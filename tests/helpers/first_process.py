"""Run a command as the first process of a container: PID 1 of a namespace of its own."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

START_SECONDS = 120.0
STOP_SECONDS = 60.0
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

_XYLEM = (sys.executable, "-m", "xylem")


def is_available() -> bool:
    """Return whether this machine allows such a process."""
    if shutil.which(UNSHARE[0]) is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


class FirstProcess:
    """A process that is PID 1; when it ends, all processes that it started end."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        """Start `command`; `options` are those of Popen."""
        self._process = subprocess.Popen([*UNSHARE, *command], **options)
        self.stdin = self._process.stdin
        self.stdout = self._process.stdout
        self.stderr = self._process.stderr
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.pid = int(self._wait_for(lambda: children.read_text().strip()))

    @classmethod
    def of_xylem(cls, *arguments: str, **options: Any) -> Self:
        """Start the command `xylem` with these arguments."""
        return cls((*_XYLEM, *arguments), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def wait_for_handler(self) -> None:
        """Wait until the process has a handler for SIGTERM.

        A signal that comes earlier, before any line of xylem runs, is lost.
        """
        self._wait_for(self._handles_sigterm)

    def terminate(self) -> int:
        """Send SIGTERM once; return the exit status."""
        self.send(signal.SIGTERM)
        return self._process.wait(STOP_SECONDS)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to PID 1 itself, as a container's engine does."""
        if self._process.poll() is None:
            subprocess.run(["kill", f"-{number}", str(self.pid)], check=False, capture_output=True)

    def _handles_sigterm(self) -> bool:
        status = Path(f"/proc/{self.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    def _wait_for(self, condition: Any) -> Any:
        deadline = time.monotonic() + START_SECONDS
        while not (value := condition()):
            assert self._process.poll() is None and time.monotonic() < deadline
            time.sleep(0.001)
        return value
