"""Messages between a worker and a job's process: the order at the start, then lines of JSON."""

import contextlib
import json
import os
import subprocess
import time
from typing import Any

from pydantic import SecretStr

from xylem.admin.jobs.job import JobProgress
from xylem.base import Settings

# The longest line; results of jobs are small.
LINE_BYTES_MAX = 1 << 20

# The least time between two lines about the same phase.
TELL_SECONDS = 0.1


class Reporter:
    """Writes {"progress": [phase, done, total]}, {"result": ...}, and {"error": ..., "code": ...}.

    phase  the last phase that was reported
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.phase = ""
        self._update_time = 0.0

    def progress(self, phase: str, done: int, total: int) -> None:
        """Report how far the job is, at the beginning and end of each phase, and now and then."""
        time_now = time.monotonic()
        is_end = total > 0 and done >= total
        if phase == self.phase and not is_end and time_now < self._update_time + TELL_SECONDS:
            return
        self.phase = phase
        self._update_time = time_now
        self._tell({"progress": [phase[:100], int(done), int(total)]})

    def result(self, result: object) -> None:
        """Report the result of the job, in the last line."""
        self._tell({"result": result})

    def error(self, detail: str, code: str) -> None:
        """Report why the job cannot be done, in the last line."""
        self._tell({"error": detail[:4000], "code": code})

    def _tell(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]


class Rate:
    """Computes how fast a job is, and how long it will take, from the progress of its process."""

    def __init__(self) -> None:
        self._phase = ""
        self._began = 0.0
        self._first = 0

    def progress(self, phase: str, done: int, total: int) -> JobProgress:
        """Return the progress, with its rate and the time left, if they are known yet."""
        time_now = time.monotonic()
        if phase != self._phase or done < self._first:
            self._phase = phase
            self._began = time_now
            self._first = done
        seconds = time_now - self._began
        if seconds < TELL_SECONDS or done <= self._first:
            return JobProgress(phase, done, total)
        rate = (done - self._first) / seconds
        seconds_left = (total - done) / rate if total >= done else None
        return JobProgress(
            phase,
            done,
            total,
            round(rate, 3),
            None if seconds_left is None else round(seconds_left, 3),
        )


def settings_as_json(settings: Settings) -> dict[str, Any]:
    """Return settings, with their secrets, to be sent to a started process through a pipe.

    The admin's key is left out, because no such process needs it.
    """
    values = settings.model_dump(mode="json", exclude={"admin_key"})
    for name in values:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            values[name] = value.get_secret_value()
    return values


def send_order(process: subprocess.Popen[bytes], settings: Settings, **order: object) -> None:
    """Send the order to a started process: a line on its standard input, which stays open.

    If the process is dead already, its exit status will show that.
    """
    assert process.stdin is not None
    line = json.dumps({"settings": settings_as_json(settings), **order}).encode() + b"\n"
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line)
        process.stdin.flush()
