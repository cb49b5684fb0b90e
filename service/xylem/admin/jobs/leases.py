"""The queue of jobs as workers use it: claim a job, keep the claim, end the job. Thread-safe.

A claim is a secret in the job's row until the job ends, or another worker takes it over. A worker
that changes a job passes its claim: so a worker that has lost its job changes nothing, however late
it tries.
"""

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, and_, or_, select, update

from xylem.admin.jobs.errors import JobNotFound
from xylem.admin.jobs.job import (
    Job,
    JobProgress,
    PromotionVerdict,
    State,
    change,
    end,
    find,
    forget_old,
    job_of,
)
from xylem.base import JOBS, Database, Limits, XylemError, now

# The answer to a worker that renews its claim.
#
# "cancel": somebody has asked to cancel the job; "lost": the job is not this worker's any more.
Word = Literal["go on", "cancel", "lost"]

ERROR_MAX = 4000  # the most characters of why a job failed
_ORPHANS = 8  # most jobs that one call of `claim` ends because their workers died


class ClaimLost(XylemError, code="claim-lost"):
    """The job belongs to another worker now, or has ended: nothing was changed."""


class Claim(NamedTuple):
    """A job that belongs to this worker, and the secret that proves it."""

    job: Job
    secret: str


class Leases:
    """The operations of workers on the jobs of a database."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self.database = database
        self._limits = limits

    def is_waiting(self) -> bool:
        """Return whether there may be a job to claim: only a read, which blocks nobody."""
        with self.database.read() as connection:
            return (
                connection.execute(
                    select(JOBS.c.number).where(_is_free(now(connection))).limit(1)
                ).one_or_none()
                is not None
            )

    def claim(self, worker: str) -> Claim | None:
        """Claim the oldest job that waits, or whose worker died; None if there is none.

        A job whose workers died too often (limit job_attempts_max) ends as failed. A job that was
        to be cancelled when its worker died is cancelled.
        """
        with self.database.write() as connection:
            for _ in range(_ORPHANS):
                # rows that other workers have locked are skipped
                row = connection.execute(
                    select(JOBS)
                    .where(_is_free(now(connection)))
                    .order_by(JOBS.c.number)
                    .limit(1)
                    .with_for_update(skip_locked=True)
                ).one_or_none()
                if row is None:
                    return None
                if row.cancel_asked:
                    end(connection, row.id, "cancelled")
                elif row.attempts >= self._limits.job_attempts_max:
                    end(
                        connection,
                        row.id,
                        "failed",
                        error="expected the job's worker to stay alive, found that "
                        f"{row.attempts} workers died, the last one {row.worker}",
                        error_code="worker-died",
                    )
                else:
                    return self._take(connection, row, worker)
        return None

    def renew(self, claim: Claim, progress: JobProgress | None) -> Word:
        """Keep a claim for another `job_lease_seconds`, and store how far the job is."""
        with self.database.write() as connection:
            try:
                row = self.check(connection, claim)
            except ClaimLost:
                return "lost"
            progress_json = None if progress is None else json.dumps(asdict(progress))
            connection.execute(
                update(JOBS)
                .where(JOBS.c.id == row.id)
                .values(lease_until=self._lease_end(connection))
            )
            if progress_json not in (None, row.progress):  # it has changed
                change(connection, row.id, progress=progress_json)
            return "cancel" if row.cancel_asked else "go on"

    def succeed(
        self, claim: Claim, result: Mapping[str, Any] | None, progress: JobProgress | None = None
    ) -> None:
        """End the job as succeeded. Raises ClaimLost."""
        facts = {} if result is None else {"result": json.dumps(result)}
        if progress is not None:
            facts["progress"] = json.dumps(asdict(progress))
        self._end(claim, "succeeded", error=None, error_code=None, **facts)

    def fail(self, claim: Claim, error: str, code: str) -> None:
        """End the job as failed. Raises ClaimLost."""
        error = error[:ERROR_MAX].replace("\0", " ")  # which PostgreSQL would refuse
        self._end(claim, "failed", error=error.encode("utf-8", "replace").decode(), error_code=code)

    def cancel(self, claim: Claim) -> None:
        """End the job as cancelled. Raises ClaimLost."""
        self._end(claim, "cancelled")

    def give_back(self, claim: Claim, *, is_counted: bool) -> None:
        """Queue the job again, because its worker stops or could not do it now. Raises ClaimLost.

        is_counted  whether this attempt counts as one of those that a job may have
        """
        with self.database.write() as connection:
            row = self.check(connection, claim)
            released = {"claim": None, "lease_until": None, "progress": None}
            attempts = row.attempts if is_counted else row.attempts - 1
            if row.cancel_asked:
                end(connection, row.id, "cancelled")
            else:
                change(connection, row.id, state="queued", attempts=attempts, **released)

    def record_version(self, claim: Claim, version: int) -> None:
        """Store which version the job published, or works with. Raises ClaimLost."""
        self._record(claim, version=version)

    def record_verdict(self, claim: Claim, verdict: PromotionVerdict) -> None:
        """Store whether an alias is to move, before it moves. Raises ClaimLost."""
        self._record(claim, promotion=json.dumps(asdict(verdict)))

    def _record(self, claim: Claim, **facts: object) -> None:
        with self.database.write() as connection:
            self.check(connection, claim)
            change(connection, claim.job.id, **facts)

    def check(self, connection: Connection, claim: Claim) -> Row[Any]:
        """Return the row of a claimed job, locked until the transaction ends.

        Raises ClaimLost if the job does not belong to this worker.
        """
        with contextlib.suppress(JobNotFound):
            row = find(connection, claim.job.id, lock=True)
            if row.state == "running" and row.claim == claim.secret:
                return row
        raise ClaimLost(
            f"job {claim.job.id}: expected it to be this worker's, found it another's or ended"
        )

    def record_result(
        self, connection: Connection, claim: Claim, result: Mapping[str, Any]
    ) -> None:
        """Store the result of a job in the caller's transaction: with its changes, or not at all.

        Raises ClaimLost.
        """
        self.check(connection, claim)
        change(connection, claim.job.id, result=json.dumps(result))

    def _end(self, claim: Claim, state: State, **facts: object) -> None:
        with self.database.write() as connection:
            self.check(connection, claim)
            end(connection, claim.job.id, state, **facts)
            forget_old(connection, self._limits.jobs_kept_max)

    def known_ids(self) -> list[str]:
        """Return the ids of all jobs."""
        with self.database.read() as connection:
            return list(connection.execute(select(JOBS.c.id)).scalars())

    def _take(self, connection: Connection, row: Row[Any], worker: str) -> Claim:
        secret = secrets.token_hex(16)
        change(
            connection,
            row.id,
            state="running",
            attempts=row.attempts + 1,
            worker=worker[:128],
            claim=secret,
            lease_until=self._lease_end(connection),
            started=now(connection),
            progress=None,
        )
        return Claim(job_of(find(connection, row.id)), secret)

    def _lease_end(self, connection: Connection) -> float:
        return now(connection) + self._limits.job_lease_seconds


def _is_free(time_now: float) -> Any:
    """Return the condition for jobs that may be claimed at a time."""
    return or_(
        JOBS.c.state == "queued", and_(JOBS.c.state == "running", JOBS.c.lease_until < time_now)
    )
