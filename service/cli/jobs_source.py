"""Where `xylem jobs` finds jobs: in the database of a store, or at a server. Both tell the same of a job."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from service.errors import JobNotFound

if TYPE_CHECKING:
    from service.jobs.jobs import Jobs
    from xylem import Client
    from xylem.calls import State

JobFacts: TypeAlias = dict[str, Any]
"""A job as HTTP tells of it, see `service.serving.schemas.jobs.JobAnswer`."""


class JobSource(Protocol):
    """Jobs somewhere; `place` says where, for people. Ids that are not there raise a BadInput."""

    place: str

    def list(self, state: str | None, model: str | None, kind: str | None, limit: int) -> list[JobFacts]:
        """Return jobs, the newest first."""

    def get(self, job_id: str) -> JobFacts:
        """Return a job."""

    def log_text(self, job_id: str) -> str:
        """Return what a job has logged so far."""

    def cancel(self, job_id: str) -> JobFacts:
        """Cancel a job; return it."""

    def retry(self, job_id: str) -> JobFacts:
        """Queue a job again that has ended without success; return it."""


class StoreJobs:
    """The jobs in the database of a store; None where there is no database yet, and so no job."""

    def __init__(self, place: str, jobs: Jobs | None) -> None:
        self.place = place
        self._jobs = jobs

    def list(self, state: str | None, model: str | None, kind: str | None, limit: int) -> list[JobFacts]:
        """Return jobs, the newest first. Raises BadRequest, DatabaseUnavailable."""
        found = [] if self._jobs is None else self._jobs.list(state, model, kind, limit)
        return [job.as_json() for job in found]

    def get(self, job_id: str) -> JobFacts:
        """Return a job. Raises JobNotFound, DatabaseUnavailable."""
        return self._there(job_id).get(job_id).as_json()

    def log_text(self, job_id: str) -> str:
        """Return what a job has logged so far. Raises JobNotFound, DatabaseUnavailable."""
        return self._there(job_id).log_text(job_id)

    def cancel(self, job_id: str) -> JobFacts:
        """Cancel a job; return it. Raises JobConflict, JobNotFound, DatabaseUnavailable."""
        return self._there(job_id).cancel(job_id).as_json()

    def retry(self, job_id: str) -> JobFacts:
        """Queue a job again; return it. Raises JobConflict, JobNotFound, Overloaded, DatabaseUnavailable."""
        return self._there(job_id).retry(job_id).as_json()

    def _there(self, job_id: str) -> Jobs:
        if self._jobs is None:
            found = f"found {job_id[:40]!r}, and no jobs at all"
            raise JobNotFound(f"{self.place}: expected the id of a job, {found}")
        return self._jobs


class ServerJobs:
    """The jobs of a server; what it refuses is a ProblemError of the client."""

    def __init__(self, place: str, client: Client) -> None:
        self.place = place
        self._client = client

    def list(self, state: str | None, model: str | None, kind: str | None, limit: int) -> list[JobFacts]:
        """Return jobs, the newest first."""
        return list(map(asdict, self._client.jobs(cast("State", state), model, kind, limit)))

    def get(self, job_id: str) -> JobFacts:
        """Return a job."""
        return asdict(self._client.job(job_id))

    def log_text(self, job_id: str) -> str:
        """Return what a job has logged so far."""
        return self._client.log(job_id)

    def cancel(self, job_id: str) -> JobFacts:
        """Cancel a job; return it."""
        return asdict(self._client.cancel(job_id))

    def retry(self, job_id: str) -> JobFacts:
        """Queue a job again; return it."""
        return asdict(self._client.retry(job_id))
