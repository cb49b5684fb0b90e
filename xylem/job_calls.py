"""The calls of jobs and of the files that they work on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from xylem.calls import dumped, query
from xylem.errors import WaitTimeout
from xylem.results import DataFile, Job, read_as
from xylem.retries import Retries
from xylem.steps import JSON, Call, Request, Sleep, Steps, result_of
from xylem.target import segment

State: TypeAlias = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Data: TypeAlias = Path | bytes

_JOBS = "/v1/admin/jobs"
_POLL_SECONDS = 0.1
_POLL_SECONDS_MAX = 2.0


@dataclass(frozen=True, slots=True)
class _JobList:
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class _FileList:
    files: list[DataFile]


def _job(body: bytes) -> Job:
    return read_as(Job, body)


def submit(kind: str, fields: Mapping[str, Any], idempotency_key: str | None) -> Call[Job]:
    """Submit a job of a kind, as `training`; fields that are None are left out.

    The key makes a submission that is sent again the same job; one is made if none is given.
    """
    key = uuid.uuid4().hex if idempotency_key is None else idempotency_key
    body = dumped({name: value for name, value in fields.items() if value is not None})
    headers = (*JSON, ("idempotency-key", key))
    return Call(Request("POST", f"/v1/admin/{kind}-jobs", body, headers, True), _job)


def job(job_id: str) -> Call[Job]:
    """Look at a job."""
    return Call(Request("GET", f"{_JOBS}/{segment(job_id, 'job')}", repeatable=True), _job)


def jobs(state: State | None, model: str | None, kind: str | None, limit: int | None) -> Call[list[Job]]:
    """List jobs."""
    asked = query(state=state, model=model, kind=kind, limit=limit)
    request = Request("GET", f"{_JOBS}{asked}", repeatable=True)
    return Call(request, lambda found: read_as(_JobList, found).jobs)


def cancel(job_id: str) -> Call[Job]:
    """Cancel a job; twice is as once."""
    return Call(Request("DELETE", f"{_JOBS}/{segment(job_id, 'job')}", repeatable=True), _job)


def retry(job_id: str) -> Call[Job]:
    """Queue a job that has ended again."""
    return Call(Request("POST", f"{_JOBS}/{segment(job_id, 'job')}/retry", b"{}", JSON), _job)


def log(job_id: str) -> Call[str]:
    """Return what a job has logged."""
    request = Request("GET", f"{_JOBS}/{segment(job_id, 'job')}/log", repeatable=True)
    return Call(request, lambda found: found.decode("utf-8", "replace"))


def events_path(job_id: str) -> str:
    """Return the path of a job's server-sent events."""
    return f"{_JOBS}/{segment(job_id, 'job')}/events"


def result_path(job_id: str) -> str:
    """Return the path of a job's result."""
    return f"{_JOBS}/{segment(job_id, 'job')}/result"


def wait(job_id: str, seconds: float | None, retries: Retries, seconds_max: float) -> Steps[Job]:
    """Look at a job until it has ended, for so many seconds at most. Raises WaitTimeout after them."""
    deadline = None if seconds is None else time.monotonic() + seconds
    pause = _POLL_SECONDS
    while True:
        found = yield from result_of(job(job_id), retries, seconds_max)
        if found.is_ended:
            return found
        left = pause if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"expected job {found.id} to end in {seconds:g} s, found it {found.state}")
        yield Sleep(min(pause, left))
        pause = min(pause * 1.5, _POLL_SECONDS_MAX)


def upload(name: str, data: Data) -> Call[DataFile]:
    """Send a file to the data directory."""
    headers = (("content-type", "application/octet-stream"),)
    request = Request("PUT", f"/v1/admin/data/{segment(name)}", data, headers, True)
    return Call(request, lambda found: read_as(DataFile, found) if found else DataFile(name))


def data_files() -> Call[list[DataFile]]:
    """List the files of the data directory."""
    request = Request("GET", "/v1/admin/data", repeatable=True)
    return Call(request, lambda found: read_as(_FileList, found).files)


def delete_data(name: str) -> Call[None]:
    """Delete a file of the data directory."""
    return Call(Request("DELETE", f"/v1/admin/data/{segment(name)}"), lambda found: None)
