"""What those who ask for jobs and those who do them share: statements about rows of the table `jobs`.

Every change of a job raises its revision. Statements that must see no other between them run in one writing
transaction: SQLite has one at a time, on PostgreSQL submissions take an advisory lock.
"""

from __future__ import annotations

import json
import time
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, text, update

from service.base.errors import JobNotFound
from service.db.tables import JOB_TOTALS, JOBS
from service.jobs.files import is_id
from service.jobs.job import ENDED, Job, JobProgress, PromotionVerdict, State

_SUBMIT_LOCK = 0x58796C4A6F
"""PostgreSQL's advisory lock under which submissions take turns."""


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
    values = {name: value for name, value in row._mapping.items() if name in Job.__dataclass_fields__}
    for name in ("request", "progress", "result", "promotion"):
        values[name] = None if values[name] is None else json.loads(values[name])
    if values["progress"] is not None:
        values["progress"] = JobProgress(**values["progress"])
    if values["promotion"] is not None:
        verdict = values["promotion"]
        values["promotion"] = PromotionVerdict(**{**verdict, "reasons": tuple(verdict["reasons"])})
    return Job(**values)


def begin_totals(connection: Connection, kind: str) -> None:
    """Let the totals of a kind begin at 0: to Prometheus a figure that appears as 1 has not risen."""
    known = connection.execute(select(JOB_TOTALS.c.kind).where(JOB_TOTALS.c.kind == kind).limit(1))
    if known.one_or_none() is None:
        rows = [{"kind": kind, "state": state, "n": 0, "seconds": 0.0} for state in sorted(ENDED)]
        connection.execute(insert(JOB_TOTALS), rows)


def take_turns(connection: Connection) -> None:
    """Wait until no other submission is under way: so the same key twice at once is one job."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SUBMIT_LOCK})
