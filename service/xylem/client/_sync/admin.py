"""Calls for admins: jobs, files, aliases. For everything else there is `call`."""

import time
from collections.abc import Generator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Unpack, cast

from xylem.client._sync.base import Base
from xylem.client.calls import (
    JOBS,
    SCHEDULES,
    JsonObject,
    Request,
    State,
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
from xylem.client.results import DataFile, Job
from xylem.client.runtime import sleep
from xylem.client.training_fields import TrainingFields
from xylem.errors import WaitTimeout

_POLL_SECONDS = 0.1
_POLL_SECONDS_MAX = 2.0
_BYTES = (("content-type", "application/octet-stream"),)
_TAR = (("content-type", "application/x-tar"),)


class Admin(Base):
    """The calls that need a key with the scope `admin`."""

    def train(
        self,
        model: str,
        trainer: str,
        data: str | Sequence[str | Mapping[str, Any]],
        **fields: Unpack[TrainingFields],
    ) -> Job:
        """Submit a training of a new version.

        `data` and `valid` name files of the server's data directory. Or `data` is a list of files
        and of `{"feedback": {"model": ..., "days": ...}}`, and `valid` is `{"feedback": 0.2}`, the
        newest part of these rows.

        Without an `idempotency_key` one is made: a submission that is sent twice is the same job.
        """
        return self._submit("training", model=model, trainer=trainer, data=data, **fields)

    def combine(self, model: str, members: Sequence[str], data: str, **fields: Any) -> Job:
        """Submit a combination of versions, each NAME or NAME@VERSION.

        `fields` may have `vocabulary`, for example.
        """
        return self._submit("combine", model=model, members=list(members), data=data, **fields)

    def set_vocabulary(self, model: str, vocabulary: str, **fields: Any) -> Job:
        """Submit another vocabulary for a combined version.

        `fields` may have `version`, `language` and `by`. With `compare=True` nothing is published:
        the job's result is what would change.
        """
        return self._submit("vocabulary", model=model, vocabulary=vocabulary, **fields)

    def learn(self, model: str, **fields: Any) -> Job:
        """Submit a run of the recipe of a model, with what is new."""
        return self._submit("learn", model=model, **fields)

    def recipe(self, model: str) -> JsonObject:
        """Return the recipe of a model."""
        return self.call("GET", admin_path(model, "/recipe"))

    def set_recipe(self, model: str, recipe: Mapping[str, Any]) -> JsonObject:
        """Replace the recipe of a model; its files are names below the data directory."""
        return self.call("PUT", admin_path(model, "/recipe"), **recipe)

    def tune(self, model: str, data: str, **fields: Any) -> Job:
        """Submit a tuning of thresholds on a file of the data directory.

        `fields` may have `method`, `objective` and `version`.
        """
        return self._submit("threshold-tuning", model=model, data=data, **fields)

    def batch_job(self, model: str, data: str, **fields: Any) -> Job:
        """Submit a batch over a file of the data directory.

        `fields` are options such as `top_r` and `threshold`.
        """
        return self._submit("batch", model=model, data=data, **fields)

    def _submit(self, kind: str, *, idempotency_key: str | None = None, **fields: Any) -> Job:
        return self._read(Job, submission(kind, fields, idempotency_key))

    def job(self, job_id: str) -> Job:
        """Return a job."""
        return self._read(Job, get(job_path(job_id)))

    def jobs(
        self,
        state: State | None = None,
        model: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """List jobs, the newest first; only those of a state, a model or a kind, if given."""
        request = get(JOBS, state=state, model=model, kind=kind, limit=limit)
        return (self._read(dict[str, list[Job]], request))["jobs"]

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Look at a job again and again until it has ended, with success or not; return it.

        Raises WaitTimeout after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _POLL_SECONDS
        while not (job := self.job(job_id)).is_ended:
            seconds_left = pause if deadline is None else deadline - time.monotonic()
            if seconds_left <= 0:
                raise WaitTimeout(
                    f"expected job {job.id} to end in {timeout:g} s, found it {job.state}"
                )
            sleep(min(pause, seconds_left))
            pause = min(pause * 1.5, _POLL_SECONDS_MAX)
        return job

    def cancel(self, job_id: str) -> Job:
        """Cancel a job."""
        return self._read(Job, Request("DELETE", job_path(job_id), repeatable=True))

    def retry(self, job_id: str) -> Job:
        """Queue a job that has ended again."""
        return self._read(Job, request_of("POST", job_path(job_id, "/retry"), {}))

    def log(self, job_id: str) -> str:
        """Return the log of a job."""
        return (self._send(get(job_path(job_id, "/log")))).decode("utf-8", "replace")

    def events(self, job_id: str) -> Generator[ServerEvent]:
        """Yield the events of a job until the server ends them.

        A connection that breaks is opened again.
        """
        return self._events(job_path(job_id, "/events"))

    def download_result(self, job_id: str, to: str | PathLike[str]) -> int:
        """Write the result of a job to a file; return its bytes.

        If the download breaks off, it begins again.
        """
        return self._download(job_path(job_id, "/result"), Path(to))

    def create_schedule(
        self, kind: str, job: Mapping[str, Any], cron: str | None = None, rows: int | None = None
    ) -> JsonObject:
        """Submit jobs automatically: at the times of a cron line, or after every `rows` rows.

        kind  the kind of the jobs, such as `training`
        job   the body of such a job
        rows  the number of new rows of feedback between two jobs
        """
        return self.call("POST", SCHEDULES, kind=kind, job=job, cron=cron, rows=rows)

    def schedules(self) -> list[JsonObject]:
        """List the schedules, the oldest first."""
        return cast(list[JsonObject], (self.call("GET", SCHEDULES))["schedules"])

    def delete_schedule(self, schedule_id: str) -> JsonObject:
        """Remove a schedule; a job that it submitted goes on."""
        return self.call("DELETE", f"{SCHEDULES}/{segment(schedule_id, 'schedule')}")

    def usage(
        self, begin: str | None = None, end: str | None = None, groups: str = "key,model"
    ) -> list[JsonObject]:
        """Return what keys sent to models: a sum for each of `groups`, some of
        hour, key and model.

        begin, end  times as 2026-11-29T00:00:00Z; None: from the first hour on, until now
        """
        fields = {"from": begin, "to": end, "by": groups}
        return cast(list[JsonObject], (self.call("GET", "/v1/admin/usage", **fields))["usage"])

    def upload(self, name: str, data: str | PathLike[str] | bytes) -> DataFile:
        """Send a file, given by its path, or bytes, to the server's data directory."""
        body = data if isinstance(data, bytes) else Path(data)
        return self._read(
            DataFile,
            Request("PUT", f"/v1/admin/data/{segment(name)}", body, _BYTES, repeatable=True),
        )

    def data_files(self) -> list[DataFile]:
        """List the files of the server's data directory."""
        return (self._read(dict[str, list[DataFile]], get("/v1/admin/data")))["files"]

    def delete_data(self, name: str) -> None:
        """Delete a file of the server's data directory."""
        self._send(Request("DELETE", f"/v1/admin/data/{segment(name)}"))

    def export_feedback_rows(
        self, model: str, to: str | PathLike[str], days: int | None = None
    ) -> int:
        """Write the stored rows of a model's feedback to a file of JSON lines; return its bytes."""
        return self._download(f"{admin_path(model, '/feedback-rows')}{query(days=days)}", Path(to))

    def delete_feedback_rows(
        self,
        model: str,
        event_ids: Sequence[str] | None = None,
        day: str | None = None,
        key: str | None = None,
    ) -> JsonObject:
        """Remove rows of feedback: of some events, of a day such as 2026-11-23, or of a key.

        key  the name of the sender's key
        """
        return self.call(
            "POST",
            admin_path(model, "/feedback-rows/delete"),
            event_ids=None if event_ids is None else list(event_ids),
            day=day,
            key=key,
        )

    def corrections(
        self,
        model: str,
        label: str | None = None,
        key: str | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> JsonObject:
        """Return stored rows of a model's feedback, the newest first; some at a time.

        label   only rows with this label
        key     only rows of the key of this name
        before  only rows with smaller numbers than this: the next page
        """
        return self.call(
            "GET",
            admin_path(model, "/corrections"),
            label=label,
            key=key,
            limit=limit,
            before=before,
        )

    def concepts(self, model: str) -> list[JsonObject]:
        """List the concepts that were added to the vocabulary of a model, the oldest first."""
        return cast(
            list[JsonObject], (self.call("GET", admin_path(model, "/concepts")))["concepts"]
        )

    def add_concept(
        self,
        model: str,
        key: str,
        names: Mapping[str, Sequence[str]],
        broader: Sequence[str] = (),
        examples: Sequence[str] = (),
    ) -> Job:
        """Add a concept to the vocabulary of a model; the job publishes a version that answers it.

        names     by language, such as {"fi": ["uusi", "toinen nimi"]}
        broader   keys of the concepts above it
        examples  texts that have it, which the next run learns from
        """
        body = {"key": key, "names": names, "broader": list(broader), "examples": list(examples)}
        return self._read(Job, request_of("POST", admin_path(model, "/concepts"), body))

    def remove_concept(self, model: str, key: str) -> Job:
        """Remove a concept that was added; the job publishes a version without it."""
        return self._read(
            Job, request_of("POST", admin_path(model, "/concepts/delete"), {"key": key})
        )

    def learning(self, model: str) -> JsonObject:
        """Return how a model learns: its recipe, its next run, and its runs with their figures."""
        return self.call("GET", admin_path(model, "/learning"))

    def load_model(self, model: str) -> None:
        """Open the versions that a model's aliases name, in the process that answers."""
        self._send(_repository_call(model, "load"))

    def unload_model(self, model: str) -> None:
        """Close a model in the process that answers; the next request opens it again."""
        self._send(_repository_call(model, "unload"))

    def promote(
        self,
        model: str,
        version: int | None = None,
        alias: str = "latest",
        reason: str | None = None,
    ) -> JsonObject:
        """Move an alias to a version; without one, to its canary."""
        return self.call(
            "POST", admin_path(model, "/promote"), version=version, alias=alias, reason=reason
        )

    def rollback(
        self, model: str, alias: str = "latest", to: int | None = None, reason: str | None = None
    ) -> JsonObject:
        """Move an alias back to its previous version, or to the version `to`.

        If it has a canary, only the canary ends.
        """
        return self.call("POST", admin_path(model, "/rollback"), alias=alias, to=to, reason=reason)

    def history(
        self,
        model: str,
        alias: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> JsonObject:
        """Return the moves of a model's aliases: from where to where, when, and by whom.

        before  only moves with smaller ids than this: the next page
        """
        return self.call(
            "GET", admin_path(model, "/history"), alias=alias, before=before, limit=limit
        )

    def export_archive(
        self, model: str, to: str | PathLike[str], version: int | None = None
    ) -> int:
        """Write a version as an archive to a file; return its bytes."""
        return self._download(f"{admin_path(model, '/archive')}{query(version=version)}", Path(to))

    def import_archive(self, model: str, file: str | PathLike[str]) -> JsonObject:
        """Publish an exported archive as a new version of a model."""
        return read_object(
            self._send(Request("POST", admin_path(model, "/archive"), Path(file), _TAR))
        )


def _repository_call(model: str, verb: str) -> Request:
    """Return a request that loads or unloads a model, which may be sent twice."""
    return Request("POST", f"/v2/repository/models/{segment(model)}/{verb}", repeatable=True)
