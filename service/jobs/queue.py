"""The queue as those see it who ask for jobs: rows of the table `jobs`. Thread-safe; any number of processes.

Every change of a job raises its revision. Statements that must see no other between them run in one writing
transaction: SQLite has one at a time, on PostgreSQL submissions take an advisory lock.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, func, insert, select, text, update

from service.db.engine import Database
from service.db.tables import JOB_TOTALS, JOBS
from service.errors import (
    BadRequest,
    IdempotencyConflict,
    JobConflict,
    JobNotFound,
    LimitExceeded,
    Overloaded,
)
from service.jobs.files import is_id
from service.jobs.job import ENDED, STATES, Job, JobProgress, PromotionVerdict, State
from service.settings import Limits

REQUEST_BYTES_MAX = 64 << 10
"""The most bytes of a job's request, as JSON."""

IDEMPOTENCY_KEY_MAX = 255
"""The most characters of an idempotency key; they are visible ASCII."""

LIST_MAX = 1000
"""The most jobs of a listing."""

_SUBMIT_LOCK = 0x58796C4A6F
"""PostgreSQL's advisory lock under which submissions take turns."""

_ID_BYTES = 12


class Submitted(NamedTuple):
    """A job, and whether it is new: the same idempotency key gives the same job again."""

    job: Job
    is_new: bool


class JobQueue:
    """The jobs of a database."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self.database = database
        self._limits = limits

    def submit(
        self,
        kind: str,
        model: str,
        request: Mapping[str, Any],
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Submitted:
        """Add a job whose request has been checked, or return the one that came with this key before.

        traceparent  the span of the request that makes it

        Raises IdempotencyConflict for a key that came with another request, Overloaded when as many jobs wait
        as may (limit jobs_queued_max), LimitExceeded, BadRequest for a key of other characters, and
        DatabaseUnavailable.
        """
        _check_key(idempotency_key)
        said = json.dumps(request, sort_keys=True, separators=(",", ":"))
        if len(said.encode()) > REQUEST_BYTES_MAX:
            fault = f"expected a request of at most {REQUEST_BYTES_MAX} bytes, found {len(said.encode())}"
            raise LimitExceeded(fault)
        digest = hashlib.sha256(f"{kind}\n{said}".encode()).hexdigest()
        with self.database.write() as connection:
            _take_turns(connection)
            found = _with_key(connection, idempotency_key)
            if found is not None:
                if found.request_sha256 != digest:
                    raise IdempotencyConflict(
                        f"expected the request that came with this idempotency key before, that of job "
                        f"{found.id}, found another"
                    )
                return Submitted(job_of(found), False)
            self._check_room(connection)
            values: dict[str, Any] = {
                "id": secrets.token_hex(_ID_BYTES),
                "kind": kind,
                "model": model,
                "state": "queued",
                "request": said,
                "request_sha256": digest,
                "idempotency_key": idempotency_key,
                "created": now(connection),
                "attempts": 0,
                "cancel_asked": False,
                "revision": 1,
                "traceparent": traceparent,
            }
            connection.execute(insert(JOBS).values(values))
            _begin_totals(connection, kind)
            return Submitted(job_of(find(connection, values["id"])), True)

    def get(self, job_id: str) -> Job:
        """Return a job. Raises JobNotFound and DatabaseUnavailable."""
        with self.database.read() as connection:
            return job_of(find(connection, job_id))

    def list(
        self,
        state: str | None = None,
        model: str | None = None,
        kind: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return the newest jobs first, of a state, model and kind if asked, at most `limit` of them.

        Raises BadRequest for a state that there is not and a limit beyond LIST_MAX, and DatabaseUnavailable.
        """
        if state is not None and state not in STATES:
            raise BadRequest(f"expected one of {', '.join(STATES)}, found {state[:40]!r}").at("state")
        if not 1 <= limit <= LIST_MAX:
            raise BadRequest(f"expected an integer from 1 to {LIST_MAX}, found {limit}").at("limit")
        wanted = {"state": state, "model": model, "kind": kind}
        if any("\0" in value for value in wanted.values() if value is not None):  # which PostgreSQL refuses
            return []
        query = select(JOBS).order_by(JOBS.c.number.desc()).limit(limit)
        for name, value in wanted.items():
            query = query if value is None else query.where(JOBS.c[name] == value)
        with self.database.read() as connection:
            return [job_of(row) for row in connection.execute(query)]

    def cancel(self, job_id: str) -> Job:
        """Cancel a job: at once if it waits, else its worker is asked to, who does within seconds.

        A job that is cancelled already, or asked to be, stays as it is. Raises JobConflict for one that has
        succeeded or failed, JobNotFound and DatabaseUnavailable.
        """
        with self.database.write() as connection:
            row = find(connection, job_id, lock=True)
            if row.state in ("succeeded", "failed"):
                raise JobConflict(f"job {row.id}: expected one that waits or runs, found it {row.state}")
            if row.state == "queued":
                end(connection, row.id, "cancelled")
                forget_old(connection, self._limits.jobs_kept_max)
            elif row.state == "running" and not row.cancel_asked:
                change(connection, row.id, cancel_asked=True)
            return job_of(find(connection, job_id))

    def retry(self, job_id: str) -> Job:
        """Let a job that failed or was cancelled wait again, its attempts counted anew; return it.

        What it had published stays published, and is not published again. Raises JobConflict for one that
        waits, runs or succeeded, Overloaded, JobNotFound and DatabaseUnavailable.
        """
        with self.database.write() as connection:
            _take_turns(connection)
            row = find(connection, job_id, lock=True)
            if row.state not in ("failed", "cancelled"):
                raise JobConflict(
                    f"job {row.id}: expected one that failed or was cancelled, found it {row.state}"
                )
            self._check_room(connection)
            anew = {"started": None, "ended": None, "error": None, "error_code": None, "progress": None}
            change(connection, row.id, state="queued", attempts=0, cancel_asked=False, **anew)
            return job_of(find(connection, job_id))

    def _check_room(self, connection: Connection) -> None:
        most = self._limits.jobs_queued_max
        n_queued = connection.execute(select(func.count()).where(JOBS.c.state == "queued")).scalar_one()
        if n_queued >= most:
            raise Overloaded(
                f"expected at most {most} jobs that wait (limit jobs_queued_max), found {n_queued}"
            )


def find(connection: Connection, job_id: str, *, lock: bool = False) -> Row[Any]:
    """Return the row of a job, locked if asked, until the transaction ends. Raises JobNotFound."""
    query = select(JOBS).where(JOBS.c.id == job_id)
    query = query.with_for_update() if lock else query
    row = connection.execute(query).one_or_none() if is_id(job_id) else None
    if row is None:
        raise JobNotFound(f"expected the id of a job, found {job_id[:40]!r}")
    return row


def change(connection: Connection, job_id: str, **values: object) -> None:
    """Set columns of a job, and raise its revision."""
    connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(revision=JOBS.c.revision + 1, **values))


def end(connection: Connection, job_id: str, state: State, **values: object) -> None:
    """Let a job have ended, and be nobody's; count it."""
    free = {"claim": None, "lease_until": None, "cancel_asked": False}
    at = now(connection)
    change(connection, job_id, state=state, ended=at, **free, **values)
    kind, started = connection.execute(select(JOBS.c.kind, JOBS.c.started).where(JOBS.c.id == job_id)).one()
    seconds = 0.0 if started is None else max(at - started, 0.0)
    totals = update(JOB_TOTALS).where(JOB_TOTALS.c.kind == kind, JOB_TOTALS.c.state == state)
    connection.execute(totals.values(n=JOB_TOTALS.c.n + 1, seconds=JOB_TOTALS.c.seconds + seconds))


def forget_old(connection: Connection, kept_max: int) -> None:
    """Remove the jobs that have ended but for the newest `kept_max`; workers remove their files."""
    old = select(JOBS.c.number).where(JOBS.c.state.in_(ENDED))
    old = old.order_by(JOBS.c.ended.desc(), JOBS.c.number.desc()).offset(kept_max).limit(kept_max + 1000)
    numbers = list(connection.execute(old).scalars())
    if numbers:
        connection.execute(delete(JOBS).where(JOBS.c.number.in_(numbers)))


def now(connection: Connection) -> float:
    """Return the time by which leases are counted: PostgreSQL's, whose clients' clocks may differ."""
    if connection.dialect.name == "postgresql":
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return time.time()


def job_of(row: Row[Any]) -> Job:
    """Return the job of a row."""
    promotion = None if row.promotion is None else json.loads(row.promotion)
    if promotion is not None:
        promotion = PromotionVerdict(**{**promotion, "reasons": tuple(promotion["reasons"])})
    return Job(
        id=row.id,
        kind=row.kind,
        state=row.state,
        model=row.model,
        version=row.version,
        request=json.loads(row.request),
        progress=None if row.progress is None else JobProgress(**json.loads(row.progress)),
        result=None if row.result is None else json.loads(row.result),
        promotion=promotion,
        error=row.error,
        error_code=row.error_code,
        created=row.created,
        started=row.started,
        ended=row.ended,
        attempts=row.attempts,
        worker=row.worker,
        cancel_asked=row.cancel_asked,
        revision=row.revision,
        traceparent=row.traceparent,
    )


def _check_key(key: str | None) -> None:
    if key is None:
        return
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX or not all("!" <= letter <= "~" for letter in key):
        expected = f"1 to {IDEMPOTENCY_KEY_MAX} visible characters of ASCII"
        raise BadRequest(f"idempotency key: expected {expected}, found {len(key)} characters, some of others")


def _begin_totals(connection: Connection, kind: str) -> None:
    """Let the totals of a kind begin at 0: to Prometheus a figure that appears as 1 has not risen."""
    known = connection.execute(select(JOB_TOTALS.c.kind).where(JOB_TOTALS.c.kind == kind).limit(1))
    if known.one_or_none() is None:
        rows = [{"kind": kind, "state": state, "n": 0, "seconds": 0.0} for state in sorted(ENDED)]
        connection.execute(insert(JOB_TOTALS), rows)


def _take_turns(connection: Connection) -> None:
    """Wait until no other submission is under way: so the same key twice at once is one job."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SUBMIT_LOCK})


def _with_key(connection: Connection, key: str | None) -> Row[Any] | None:
    if key is None:
        return None
    return connection.execute(select(JOBS).where(JOBS.c.idempotency_key == key)).one_or_none()
