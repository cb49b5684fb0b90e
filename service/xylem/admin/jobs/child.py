"""The process of one job: `python -m xylem.admin.jobs.child MESSAGES PARENT`.

It reads its order from standard input, and limits its own resources before it imports the code that
does the work. MESSAGES is a descriptor; the last line that the process writes to it is the result,
or the error. Its standard output and error are the log of the job.
"""

import errno
import fcntl
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from xylem.admin.jobs.confinement import confine
from xylem.admin.jobs.files import directory_of
from xylem.admin.jobs.messages import Reporter
from xylem.base import Settings, Unavailable, configure, located, log

# How long this process waits for an earlier process of the same job to end.
#
# The earlier process is on the same machine; its worker has lost the job.
LOCK_SECONDS = 10.0

_LOCK = "lock"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> int:
    """Run the job; return the exit status."""
    messages = int(sys.argv[1])
    parent = int(sys.argv[2])
    order = json.loads(sys.stdin.buffer.readline())
    settings = Settings(**order["settings"])
    confine(settings.limits, parent)
    configure("info")
    reporter = Reporter(messages)
    try:
        reporter.result(_run(order["job"], order["claim"], settings, reporter))
    except Exception as error:
        log(logging.ERROR, "job_failed", error=error, detail=str(error)[:2000])
        reporter.error(*_fault(error, settings))
        return 1
    return 0


def _run(job_id: str, secret: str, settings: Settings, reporter: Reporter) -> dict[str, Any]:
    reporter.progress("start", 0, 0)
    from xylem.admin.jobs.context import JobContext, patiently
    from xylem.admin.jobs.data import DataRoot
    from xylem.admin.jobs.jobs import Jobs
    from xylem.admin.jobs.kinds import run_job
    from xylem.admin.jobs.leases import Claim, Leases
    from xylem.base import Database
    from xylem.serving import store_of

    database = Database.from_settings(settings, creates=False)  # it exists, as it has the job
    job = patiently(lambda: Jobs(database, settings).get(job_id))
    directory = directory_of(settings.store, job_id)
    lock = _lock(directory)

    def report(phase: str, done: int, total: int) -> None:
        if phase != reporter.phase:
            log(logging.INFO, "phase", phase=phase)
        reporter.progress(phase, done, total)

    context = JobContext(
        claim=Claim(job, secret),
        settings=settings,
        store=store_of(settings.store),
        database=database,
        leases=Leases(database, settings.limits),
        data=DataRoot(settings.data_dir, settings.limits.data_bytes_max),
        directory=directory,
        on_progress=report,
    )
    try:
        return run_job(context)
    finally:
        database.close()
        os.close(lock)


def _lock(directory: Path) -> int:
    """Lock the job's directory, and return the descriptor of the lock.

    So only one process at a time works in the directory. Raises Unavailable if another one keeps it
    locked.
    """
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(
                    "expected no other process of this job, found one that still runs"
                ) from None
            time.sleep(0.1)


def _fault(error: Exception, settings: Settings) -> tuple[str, str]:
    """Return the message for callers about an error, and its code."""
    from xylem.admin.jobs.data import DataRoot
    from xylem.admin.jobs.process import memory_exceeded
    from xylem.serving import code_of

    if isinstance(error, MemoryError):
        outcome = memory_exceeded(settings.limits)
        return outcome.error, outcome.code
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        fault = f"expected space to write, found: {error.strerror}"
        return f"{fault} (or a file beyond the limit job_file_bytes_max)", "no-space"
    code = code_of(error)
    if code == "internal-error":
        return (
            "expected the job to run, found an error of the service, "
            f"{type(error).__name__}: see its log"
        ), code
    message = DataRoot(settings.data_dir, 1).with_relative_paths(located(error))
    return message.replace(f"{settings.store}/", ""), code


if __name__ == "__main__":
    sys.exit(main())
