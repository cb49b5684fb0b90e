"""The process of a server's workers: it is started again when it dies."""

import contextlib
import logging
import os
import subprocess
import sys
import time

from xylem.admin.jobs.messages import send_order
from xylem.admin.jobs.process import inherited_environment
from xylem.base import Settings, log

# The pause before a process that died is started again.
RESTART_SECONDS = 2.0

# The time that the process of the workers has to give back its jobs; then it is killed.
#
# Other workers claim jobs that were not given back after their leases.
STOP_SECONDS = 10.0


class JobWorkers:
    """The process that runs the jobs of a server, outside the server's interpreter and event loop.

    Not thread-safe: the thread that serves calls it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0

    @property
    def pid(self) -> int | None:
        """Return the number of the process; None if there is none now."""
        return None if self._process is None else self._process.pid

    def tend(self) -> None:
        """Start the process; after a pause, start it again if it died.

        Call this about once a second; it takes a millisecond.
        """
        if self._settings.jobs == 0:
            return
        if self._process is not None and (status := self._process.poll()) is not None:
            log(logging.ERROR, "job_worker_died", pid=self._process.pid, status=status)
            self._process, self._start_at = None, time.monotonic() + RESTART_SECONDS
        if self._process is None and time.monotonic() >= self._start_at:
            try:
                self._process = self._start()
            except OSError as error:
                log(logging.ERROR, "job_worker_failed", detail=error.strerror)
                self._start_at = time.monotonic() + RESTART_SECONDS

    def stop(self) -> None:
        """Tell the process to end; its jobs are queued again. `join` waits for its end."""
        if self._process is not None:
            self._process.terminate()

    def join(self) -> None:
        """Wait for the process to end; kill it if it does not."""
        if self._process is None:
            return
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log(logging.ERROR, "job_worker_killed", pid=self._process.pid)
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process in a group of its own: only the server gets the terminal's signals."""
        process = subprocess.Popen(
            [sys.executable, "-m", "xylem.admin.jobs.worker"],
            stdin=subprocess.PIPE,
            env=inherited_environment(),
            process_group=0,
        )
        send_order(process, self._settings, jobs=self._settings.jobs, parent=os.getpid())
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return process
