"""The processes for jobs: a worker starts one for each job, and a server one for its workers."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from xylem.admin.jobs.confinement import group_memory_bytes, memory_bytes, stand_back
from xylem.admin.jobs.files import WORK, BoundedLog
from xylem.admin.jobs.job import JobProgress
from xylem.admin.jobs.leases import Claim, Word
from xylem.admin.jobs.messages import LINE_BYTES_MAX, Rate, send_order
from xylem.base import Limits, Settings

# the pause between two looks at the memory of a job, and at whether its worker stops
TICK_SECONDS = 0.1
# each 10th look is at all processes of the group, the others only at its first one
GROUP_TICKS = 10

# The pause between two calls of `tell`, which stores the progress in the database.
TELL_SECONDS = 1.0

_READ_BYTES = 1 << 16

# Codes of temporary faults: the job is queued again.
_UNAVAILABLE = frozenset(("database-unavailable", "database-unsupported", "unavailable"))

# The module that a job's process runs.
CHILD = "xylem.admin.jobs.child"

# The XYLEM_ variables that a started process gets in its environment.
#
# The settings are sent through a pipe.
KEPT_VARIABLES = frozenset(("XYLEM_KERNEL_CACHE", "XYLEM_KERNEL_CPU"))

End = Literal["succeeded", "failed", "cancelled", "lost", "stopped", "unavailable"]


class Outcome(NamedTuple):
    """How a job's process ended.

    end     lost: another worker has the job; stopped: this worker stops; unavailable: try it again
    result  the result, if it succeeded
    """

    end: End
    error: str = ""
    code: str = ""
    result: Mapping[str, Any] | None = None
    progress: JobProgress | None = None


@dataclass
class JobProcess:
    """The process of one claimed job.

    Call `run` once, in a thread that lives as long as the worker.

    log       receives the standard output and error of the process
    tell      called about once a second with the progress; returns "go on", "cancel" or "lost"
    on_phase  called with the phase whenever the process reports its progress
    module    the module that the process runs
    """

    claim: Claim
    settings: Settings
    directory: Path
    log: BoundedLog
    tell: Callable[[JobProgress | None], Word]
    on_phase: Callable[[str], None]
    module: str = CHILD

    def __post_init__(self) -> None:
        self._rate = Rate()
        self._progress: JobProgress | None = None
        self._final: dict[str, Any] | None = None
        self._lines = b""

    def run(self, stopping: threading.Event) -> Outcome:
        """Start the process, and return how it ended. At the return, its process group is dead."""
        reading, writing = os.pipe()
        try:
            process = self._start(writing)
        finally:
            os.close(writing)
        try:
            assert process.stdout is not None
            with selectors.DefaultSelector() as ready:
                ready.register(reading, selectors.EVENT_READ, self._take_message)
                ready.register(process.stdout, selectors.EVENT_READ, self.log.write)
                outcome = self._watch(process, ready, stopping)
                _kill(process)
                while self._read(ready, 0.0):  # read what the dead process left in its pipes
                    pass
            return (outcome or self._judge(process.returncode))._replace(progress=self._progress)
        finally:
            _kill(process)
            os.close(reading)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _start(self, messages: int) -> subprocess.Popen[bytes]:
        """Start the process: it has its own session and group, and no settings in its environment.

        The settings are sent through a pipe.
        """
        work = self.directory / WORK
        work.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", self.module, str(messages), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(messages,),
            start_new_session=True,
            env={**inherited_environment(), "TMPDIR": str(work.resolve())},
        )
        stand_back(process.pid, self.settings.limits.job_nice)
        job = self.claim.job
        send_order(process, self.settings, job=job.id, model=job.model, claim=self.claim.secret)
        return process

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        ready: selectors.BaseSelector,
        stopping: threading.Event,
    ) -> Outcome | None:
        limits = self.settings.limits
        end_at = time.monotonic() + limits.job_seconds_max
        tell_at = 0.0
        ticks = 0
        # WNOWAIT: until the process is waited for, no other process gets its number
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._read(ready, TICK_SECONDS)
            if stopping.is_set():
                return Outcome("stopped")
            if time.monotonic() > end_at:
                return _exceeded(f"{limits.job_seconds_max:g} seconds", "job_seconds_max")
            ticks += 1
            measure = group_memory_bytes if ticks % GROUP_TICKS == 0 else memory_bytes
            if measure(process.pid) > limits.job_memory_bytes_max:
                return memory_exceeded(limits)
            if time.monotonic() >= tell_at:
                word = self.tell(self._progress)
                if word != "go on":
                    return Outcome("cancelled" if word == "cancel" else "lost")
                tell_at = time.monotonic() + TELL_SECONDS
        return None

    def _read(self, ready: selectors.BaseSelector, seconds: float) -> bool:
        if not ready.get_map():
            time.sleep(seconds)
            return False
        events = ready.select(seconds)
        for key, _ in events:
            data = os.read(key.fd, _READ_BYTES)
            if data:
                key.data(data)
            else:
                ready.unregister(key.fileobj)
        return bool(events)

    def _take_message(self, data: bytes) -> None:
        *lines, self._lines = (self._lines + data).split(b"\n")
        self._lines = self._lines[:LINE_BYTES_MAX]
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                message = json.loads(line)
                if "progress" in message:
                    self._progress = self._rate.progress(*message["progress"])
                    self.on_phase(self._progress.phase)
                else:
                    self._final = message

    def _judge(self, status: int) -> Outcome:
        """Return the outcome, from the last message of a process and its exit status."""
        if self._final is not None and "error" in self._final:
            code = str(self._final.get("code"))
            return Outcome(
                "unavailable" if code in _UNAVAILABLE else "failed", self._final["error"], code
            )
        if self._final is not None and status == 0:
            return Outcome("succeeded", result=self._final["result"])
        if status == -signal.SIGXCPU:
            return _exceeded(
                f"{self.settings.limits.job_cpu_seconds_max:g} seconds of processor time",
                "job_cpu_seconds_max",
            )
        ending = f"status {status}"
        if status < 0:
            ending = f"that signal {-status} ({signal.Signals(-status).name}) ended it"
            if status == -signal.SIGKILL:
                ending += ": the system, out of memory, or somebody else"
        return Outcome(
            "failed", f"expected the job's process to end by itself, found {ending}", "crashed"
        )


def memory_exceeded(limits: Limits) -> Outcome:
    """Return the outcome of a job that took too much memory."""
    return _exceeded(f"{limits.job_memory_bytes_max} bytes of memory", "job_memory_bytes_max")


def _exceeded(bound: str, limit: str) -> Outcome:
    return Outcome(
        "failed",
        f"expected the job to take at most {bound} (limit {limit}), found it to take more",
        "limit-exceeded",
    )


def inherited_environment() -> dict[str, str]:
    """Return the environment for a process that this one starts.

    It is that of this process, without settings, and with PYTHONPATH for its Python packages.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("XYLEM_") or name in KEPT_VARIABLES
    }
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(str(Path(place).absolute()) for place in sys.path),
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group of a process that was not waited for yet, and wait for the process."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
