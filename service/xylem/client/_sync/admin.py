"""What admins ask for: jobs, files, aliases. `call` asks for all else."""

import time
from collections.abc import Generator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from xylem.client._sync.base import Base
from xylem.client.calls import (
    JOBS,
    SCHEDULES,
    JsonObject,
    Request,
    State,
    TrainingFields,
    admin_path,
    get,
    job_path,
    query,
    read_object,
    request_of,
    segment,
    submission,
)
from xylem.client.events import ServerEvent
from xylem.client.results import DataFile, DataFiles, Job, Jobs
from xylem.client.runtime import sleep
from xylem.errors import WaitTimeout

_POLL_SECONDS = 0.1
_POLL_SECONDS_MAX = 2.0
_BYTES = (("content-type", "application/octet-stream"),)
_TAR = (("content-type", "application/x-tar"),)


class Admin(Base):
    """The calls that need a key of the scope `admin`."""

    def train(
        self,
        model: str,
        trainer: str,
        data: str | Sequence[str | Mapping[str, Any]],
        **fields: Unpack[TrainingFields],
    ) -> Job:
        """Submit a training of a new version; `data` and `valid` name
        files of the server's data directory.

        Or `data` is a list of files and of `{"feedback": {"model": ..., "days": ...}}`, and `valid`
        is `{"feedback": 0.2}`, the newest part of that.

        A key for idempotency is made if none is given: a submission that is sent again is the same
        job.
        """
        return self._submit("training", model=model, trainer=trainer, data=data, **fields)

    def combine(self, model: str, members: Sequence[str], data: str, **fields: Any) -> Job:
        """Submit a combination of versions, each NAME or NAME@VERSION; `fields` as `vocabulary`."""
        return self._submit("combine", model=model, members=list(members), data=data, **fields)

    def set_vocabulary(self, model: str, vocabulary: str, **fields: Any) -> Job:
        """Submit another vocabulary for a combined version; `fields`: `version`,
        `language`, `by`.
        """
        return self._submit("vocabulary", model=model, vocabulary=vocabulary, **fields)

    def tune(self, model: str, data: str, **fields: Any) -> Job:
        """Submit a tuning of thresholds on a file of the data
        directory; `fields`: `method`, `version`.
        """
        return self._submit("threshold-tuning", model=model, data=data, **fields)

    def batch_job(self, model: str, data: str, **fields: Any) -> Job:
        """Submit a batch over a file of the data directory; `fields` as `top_r` and `threshold`."""
        return self._submit("batch", model=model, data=data, **fields)

    def _submit(self, kind: str, *, idempotency_key: str | None = None, **fields: Any) -> Job:
        return self._read(Job, submission(kind, fields, idempotency_key))

    def job(self, job_id: str) -> Job:
        """Look at a job."""
        return self._read(Job, get(job_path(job_id)))

    def jobs(
        self,
        state: State | None = None,
        model: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """List jobs, the newest first; of a state, a model or a kind."""
        return (self._read(Jobs, get(JOBS, state=state, model=model, kind=kind, limit=limit))).jobs

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Look at a job until it has ended, however that is.

        Raises WaitTimeout after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _POLL_SECONDS
        while not (job := self.job(job_id)).is_ended:
            left = pause if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"expected job {job.id} to end in {timeout:g} s, found it {job.state}"
                )
            sleep(min(pause, left))
            pause = min(pause * 1.5, _POLL_SECONDS_MAX)
        return job

    def cancel(self, job_id: str) -> Job:
        """Cancel a job."""
        return self._read(Job, Request("DELETE", job_path(job_id), repeatable=True))

    def retry(self, job_id: str) -> Job:
        """Queue a job that has ended again."""
        return self._read(Job, request_of("POST", job_path(job_id, "/retry"), {}))

    def log(self, job_id: str) -> str:
        """Return what a job has logged."""
        return (self._send(get(job_path(job_id, "/log")))).decode("utf-8", "replace")

    def events(self, job_id: str) -> Generator[ServerEvent]:
        """Yield the events of a job until the server ends them; a
        connection that breaks is opened again.
        """
        return self._events(job_path(job_id, "/events"))

    def download_result(self, job_id: str, to: str | PathLike[str]) -> int:
        """Write the result of a job to a file; return its bytes. What
        was cut off goes on where it ended.
        """
        return self._download(job_path(job_id, "/result"), Path(to))

    def create_schedule(
        self, kind: str, job: Mapping[str, Any], cron: str | None = None, rows: int | None = None
    ) -> JsonObject:
        """Have jobs come by themselves: at the times of a cron line, or
        whenever rows of feedback have come.

        `job` is the body of a job of the kind, as `training`.
        """
        return self.call("POST", SCHEDULES, kind=kind, job=job, cron=cron, rows=rows)

    def schedules(self) -> list[JsonObject]:
        """List the schedules, the oldest first."""
        listed_schedules: list[JsonObject] = (self.call("GET", SCHEDULES))["schedules"]
        return listed_schedules

    def delete_schedule(self, schedule_id: str) -> JsonObject:
        """Remove a schedule; a job that came of it goes on."""
        return self.call("DELETE", f"{SCHEDULES}/{segment(schedule_id, 'schedule')}")

    def upload(self, name: str, data: str | PathLike[str] | bytes) -> DataFile:
        """Send a file, named by its path, or bytes, to the server's data directory."""
        body = data if isinstance(data, bytes) else Path(data)
        request = Request("PUT", f"/v1/admin/data/{segment(name)}", body, _BYTES, repeatable=True)
        return self._read(DataFile, request)

    def data_files(self) -> list[DataFile]:
        """List the files of the server's data directory."""
        return (self._read(DataFiles, get("/v1/admin/data"))).files

    def delete_data(self, name: str) -> None:
        """Delete a file of the server's data directory."""
        self._send(Request("DELETE", f"/v1/admin/data/{segment(name)}"))

    def export_feedback_rows(
        self, model: str, to: str | PathLike[str], days: int | None = None
    ) -> int:
        """Write the rows that are kept of a model's feedback, lines of
        JSON, to a file; return its bytes.
        """
        return self._download(f"{admin_path(model, '/feedback-rows')}{query(days=days)}", Path(to))

    def delete_feedback_rows(
        self, model: str, event_ids: Sequence[str] | None = None, day: str | None = None
    ) -> JsonObject:
        """Remove rows of feedback: of some events, or of a day, as 2026-11-23."""
        ids = None if event_ids is None else list(event_ids)
        return self.call("POST", admin_path(model, "/feedback-rows/delete"), event_ids=ids, day=day)

    def promote(
        self,
        model: str,
        version: int | None = None,
        alias: str = "latest",
        reason: str | None = None,
    ) -> JsonObject:
        """Make an alias name a version; without one, its canary."""
        return self.call(
            "POST", admin_path(model, "/promote"), version=version, alias=alias, reason=reason
        )

    def rollback(
        self, model: str, alias: str = "latest", to: int | None = None, reason: str | None = None
    ) -> JsonObject:
        """Make an alias name the version that it named before, or
        `to`; while it has a canary, end that.
        """
        return self.call("POST", admin_path(model, "/rollback"), alias=alias, to=to, reason=reason)

    def history(
        self,
        model: str,
        alias: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> JsonObject:
        """Return what the aliases of a model named, when, and who
        changed them; pages end `before` an id.
        """
        return self.call(
            "GET", admin_path(model, "/history"), alias=alias, before=before, limit=limit
        )

    def export_archive(
        self, model: str, to: str | PathLike[str], version: int | None = None
    ) -> int:
        """Write a version, as an archive, to a file; return its bytes."""
        path = f"{admin_path(model, '/archive')}{query(version=version)}"
        return self._download(path, Path(to))

    def import_archive(self, model: str, file: str | PathLike[str]) -> JsonObject:
        """Publish an exported archive as a new version of a model."""
        request = Request("POST", admin_path(model, "/archive"), Path(file), _TAR)
        return read_object(self._send(request))
