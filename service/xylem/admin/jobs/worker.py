"""A worker: claims jobs and runs each in its own process. `xylem serve` starts it as a module.

The module is `python -m xylem.admin.jobs.worker`. It imports no code that computes. Each of its
threads has one job at a time; the process of a job dies with its worker.
"""

import contextlib
import datetime
import json
import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from functools import partial
from types import FrameType

from xylem.admin.jobs.files import (
    BoundedLog,
    can_work,
    make_directory,
    remove_forgotten,
    remove_leftovers,
)
from xylem.admin.jobs.job import JobProgress
from xylem.admin.jobs.job_span import JobSpan
from xylem.admin.jobs.leases import Claim, ClaimLost, Leases, Word
from xylem.admin.jobs.process import CHILD, JobProcess, Outcome
from xylem.admin.jobs.schedules import Schedules
from xylem.base import (
    Database,
    DatabaseUnavailable,
    Settings,
    Tracer,
    configure,
    log,
    open_tracer,
    write_in_background,
)
from xylem_store import FileSystem, collect

POLL_SECONDS = 0.5  # the pause between two looks for a job that waits

# The pause after the database, or the store, has failed.
PAUSE_SECONDS = 2.0

UNWRITABLE_SECONDS = 30.0  # the pause after the store could not be written
PARENT_SECONDS = 1.0  # the pause between two checks that the parent process lives
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Worker:
    """Runs one job at a time, in the thread that calls `run`.

    That thread must live as long as the process.
    """

    settings: Settings
    database: Database
    name: str
    module: str = CHILD
    tracer: Tracer | None = None

    def __post_init__(self) -> None:
        self._leases = Leases(self.database, self.settings.limits)

    def run(self, stopping: threading.Event) -> None:
        """Run jobs until `stopping` is set; then queue the present job for another worker.

        It goes on whatever errors are raised. A job that an error leaves unfinished is claimed by
        another worker after its lease.
        """
        while not stopping.is_set():
            try:
                is_waiting = self._leases.is_waiting()
                if is_waiting and not can_work(self.settings.store):
                    log(logging.ERROR, "job_store_unwritable", store=str(self.settings.store))
                    stopping.wait(UNWRITABLE_SECONDS)
                    continue
                claim = self._leases.claim(self.name) if is_waiting else None
                if claim is None:
                    stopping.wait(POLL_SECONDS)
                else:
                    self._work(claim, stopping)
            except DatabaseUnavailable as error:
                log(logging.ERROR, "database_failed", detail=str(error))
                stopping.wait(PAUSE_SECONDS)
            except Exception as error:
                log(logging.ERROR, "job_worker_failed", error=error)
                stopping.wait(PAUSE_SECONDS)

    def _work(self, claim: Claim, stopping: threading.Event) -> None:
        """Run a claimed job to its end, and store how it ended."""
        job = claim.job
        span = JobSpan(self.tracer, claim.job)
        fields = {"kind": job.kind, "model": job.model, "attempt": job.attempts, **span.fields}
        log(logging.INFO, "job_started", job=job.id, **fields)
        try:
            directory = make_directory(self.settings.store, job.id)
            job_log = BoundedLog(directory, self.settings.limits.job_log_bytes_max)
            _write(job_log, "started", attempt=job.attempts, worker=self.name)
            process = JobProcess(
                claim=claim,
                settings=self.settings,
                directory=directory,
                log=job_log,
                tell=partial(self._renew, claim),
                on_phase=span.note,
                module=self.module,
            )
            outcome = process.run(stopping)
            _write(job_log, outcome.end, detail=outcome.error)
        except OSError as error:  # the store is full or gone, or no process can be started
            fault = (
                "expected to start the job's process, found: "
                f"{error.strerror or type(error).__name__}"
            )
            outcome = Outcome(
                "failed", fault, "no-space" if error.filename is None else "unavailable"
            )
        self._settle(claim, outcome, stopping)
        log(
            logging.INFO, "job_ended", job=job.id, end=outcome.end, code=outcome.code, **span.fields
        )
        span.end(outcome.end, outcome.code)
        self._clear(claim, outcome)

    def _renew(self, claim: Claim, progress: JobProgress | None) -> Word:
        try:
            return self._leases.renew(claim, progress)
        except DatabaseUnavailable as error:  # no other worker can claim the job now
            log(logging.ERROR, "database_failed", job=claim.job.id, detail=str(error))
            return "go on"

    def _settle(self, claim: Claim, outcome: Outcome, stopping: threading.Event) -> None:
        """Store how a job ended; try again while the database does not answer.

        A worker that is stopping tries only once: after the lease, another worker runs the job,
        with the same end.
        """
        while True:
            try:
                with contextlib.suppress(ClaimLost):
                    self._store_outcome(claim, outcome)
                return
            except DatabaseUnavailable as error:
                log(logging.ERROR, "database_failed", job=claim.job.id, detail=str(error))
                if stopping.wait(PAUSE_SECONDS):
                    return

    def _store_outcome(self, claim: Claim, outcome: Outcome) -> None:
        has_attempts = claim.job.attempts < self.settings.limits.job_attempts_max
        if outcome.end == "succeeded":
            self._leases.succeed(claim, outcome.result, outcome.progress)
        elif outcome.end == "cancelled":
            self._leases.cancel(claim)
        elif outcome.end == "stopped" or (outcome.end == "unavailable" and has_attempts):
            self._leases.give_back(claim, is_counted=outcome.end == "unavailable")
        elif outcome.end in ("failed", "unavailable"):
            self._leases.fail(claim, outcome.error, outcome.code)

    def _clear(self, claim: Claim, outcome: Outcome) -> None:
        """Remove files that an ended job does not need, and all files of forgotten jobs."""
        store = self.settings.store
        with contextlib.suppress(OSError):
            if outcome.end != "succeeded":
                collect(FileSystem(), store)  # removes files of an unfinished publication
        if outcome.end in ("succeeded", "failed", "cancelled"):
            remove_leftovers(store, claim.job.id)
        with contextlib.suppress(DatabaseUnavailable):
            remove_forgotten(store, self._leases.known_ids)


def run_workers(
    settings: Settings, jobs: int, parent: int | None = None, metrics_port: int | None = None
) -> None:
    """Run `jobs` jobs at a time until SIGTERM or SIGINT. Call it from the main thread.

    parent        the process whose end stops this one; None: there is none
    metrics_port  the port that answers `GET /metrics`; 0: a free port; None: no port

    A second signal has no effect: it stops within about a second anyhow. Raises BadParameter for a
    database that is not valid, Unavailable for a port that is not free.
    """
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    previous_handlers = {number: signal.signal(number, stop) for number in _SIGNALS}
    database = Database.from_settings(settings)
    page = None
    if metrics_port is not None:
        # not imported by the workers of a server, which have no port
        from xylem.admin.jobs.figures import FiguresPage

        page = FiguresPage(database, settings, metrics_port)
    tracer = open_tracer(settings, "jobs")
    host = f"{socket.gethostname()}:{os.getpid()}"
    workers = [
        Worker(settings, database, f"{host}:{number}", CHILD, tracer) for number in range(jobs)
    ]
    threads = [threading.Thread(target=worker.run, args=(stopping,)) for worker in workers]
    schedules = Schedules(database, settings)
    schedules.start()
    for thread in threads:
        thread.start()
    log(
        logging.INFO, "job_worker_started", jobs=jobs, database=database.public_url, pid=os.getpid()
    )
    while any(thread.is_alive() for thread in threads):
        stopping.wait(PARENT_SECONDS)
        if parent not in (None, os.getppid()):
            stopping.set()
        for thread in threads if stopping.is_set() else ():
            thread.join()
    schedules.close()
    if page is not None:
        page.close()
    database.close()
    if tracer is not None:
        tracer.close()
    for number, handler in previous_handlers.items():
        signal.signal(number, handler)


def _write(job_log: BoundedLog, event: str, **fields: object) -> None:
    """Write a line of the worker into a job's log, in the format of the other lines."""
    job_log.write(
        json.dumps(
            {
                "time": datetime.datetime.now(datetime.UTC).isoformat(),
                "level": "info",
                "event": event,
                **fields,
            }
        ).encode()
        + b"\n"
    )


def main() -> None:
    """Run the workers of a server; the order is on standard input."""
    order = json.loads(sys.stdin.buffer.readline())
    settings = Settings(**order["settings"])
    configure(settings.log_level)
    write_in_background()
    run_workers(settings, order["jobs"], order["parent"])


if __name__ == "__main__":
    main()
