"""Jobs as callers use them: submit, get, list, cancel, retry, log, follow, result.

Thread-safe; everything blocks but `follow`.

HTTP routes and `xylem jobs` call nothing else of this room but `service.jobs.data`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from model_store.errors import Conflict
from service.db.engine import Database
from service.errors import JobConflict, JobNotFound, Unavailable
from service.jobs.data import DataRoot
from service.jobs.files import RESULT, directory_of, read_log
from service.jobs.job import Job
from service.jobs.queue import JobQueue, Submitted
from service.settings import Settings

FOLLOW_SECONDS = 0.5
"""The pause between two looks at a job that is followed."""


Look: TypeAlias = Callable[..., Awaitable[Job]]
"""Runs a blocking call, given as function and arguments, elsewhere."""


class Jobs:
    """The jobs of a store and its database.

    database  the caller's, which closes it
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._queue = JobQueue(database, settings.limits)
        self._store = settings.store
        self._follows = settings.store_remote is not None
        self._limits = settings.limits
        self.data = DataRoot(settings.data_dir, settings.limits.data_bytes_max)

    def submit(
        self,
        kind: str,
        body: object,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Submitted:
        """Check a request and add a job for it, or return the one that came with this key before.

        kind  training, threshold-tuning or batch
        body  the JSON value of the request
        traceparent   the span of the request that asks for it, which the job's continues

        `Submitted` is (job, is_new): HTTP answers 202 to both. Raises BadFields with all that is wrong, each
        with its place; IdempotencyConflict; Overloaded when as many jobs wait as may; LimitExceeded;
        BadRequest for an unknown kind or a key that is none; DatabaseUnavailable.
        """
        if kind == "training" and self._follows:
            raise Conflict(
                "expected a store that is published to here, found one that follows XYLEM_STORE_REMOTE: "
                "train elsewhere, and push"
            )
        from service.jobs.kinds import check_request  # trainers and readers: not before they are needed

        request, model = check_request(kind, body, self.data, self._limits)
        return self._queue.submit(kind, model, request, idempotency_key, traceparent)

    def get(self, job_id: str) -> Job:
        """Return a job; `Job.as_json()` is what clients are told. Raises JobNotFound, DatabaseUnavailable."""
        return self._queue.get(job_id)

    def list(
        self, state: str | None = None, model: str | None = None, kind: str | None = None, limit: int = 100
    ) -> list[Job]:
        """Return jobs, the newest first. Raises BadRequest for a bad state or limit, DatabaseUnavailable."""
        return self._queue.list(state, model, kind, limit)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job that waits, or have the one that runs stopped within seconds; return it as it is then.

        Twice is as once. Raises JobConflict for one that succeeded or failed, JobNotFound,
        DatabaseUnavailable.
        """
        return self._queue.cancel(job_id)

    def retry(self, job_id: str) -> Job:
        """Let a job that failed or was cancelled wait again; return it.

        Raises JobConflict for any other, Overloaded, JobNotFound, DatabaseUnavailable.
        """
        return self._queue.retry(job_id)

    def log_text(self, job_id: str) -> str:
        """Return the log of a job so far, at most `job_log_bytes_max` of it. Raises JobNotFound."""
        self._queue.get(job_id)
        return read_log(self._store, job_id).decode("utf-8", "replace")

    async def follow(
        self, job_id: str, after: int = 0, look: Look = asyncio.to_thread
    ) -> AsyncIterator[Job | None]:
        """Yield the job whenever it has changed, the first time at once, and None where it has not.

        It ends when the job has, or is forgotten. A database that does not answer ends nothing: what changed
        meanwhile is told when it answers again.

        after  a revision: what is not newer is not yielded (the Last-Event-ID of server-sent events)
        look   runs a blocking call in a thread

        For an event loop. Raises JobNotFound and DatabaseUnavailable at first only. Bound how many follow at
        a time: each reads twice a second.
        """
        job = await look(self._queue.get, job_id)
        while True:
            is_new = job.revision > after
            if is_new:
                after = job.revision
                yield job
            if job.has_ended:
                return
            if not is_new:
                yield None
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                job = await look(self._queue.get, job_id)
            except JobNotFound:  # it has ended, and was forgotten
                return
            except Unavailable:
                continue

    def result_file(self, job_id: str) -> Path:
        """Return the file of a batch's predictions, lines of JSON, which does not change any more.

        Raises JobConflict for a job that has not succeeded, or is of a kind without a file; JobNotFound;
        DatabaseUnavailable.
        """
        job = self._queue.get(job_id)
        if job.kind != "batch":
            raise JobConflict(f"job {job.id}: expected a batch, which has a file as result, found {job.kind}")
        if job.state != "succeeded":
            raise JobConflict(f"job {job.id}: expected one that has succeeded, found it {job.state}")
        path = directory_of(self._store, job.id) / RESULT
        if not path.is_file():
            raise JobConflict(f"job {job.id}: expected its result in the store, found that it was removed")
        return path


def submitted_json(submitted: Submitted) -> Mapping[str, Any]:
    """Return what a submission is answered with."""
    job = submitted.job
    return {"id": job.id, "kind": job.kind, "state": job.state}
