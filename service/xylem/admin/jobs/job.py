"""A job as callers see it, and the statements on rows of the table `jobs`.

Every change of a job raises its revision. Statements that must not mix with others run in one
writing transaction: SQLite has one at a time; on PostgreSQL, submissions take an advisory lock.
"""

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from sqlalchemy import Connection, Row, delete, select, text, update

from xylem.admin.jobs.errors import JobNotFound
from xylem.admin.jobs.files import is_id
from xylem.base import JOB_TOTALS, JOBS, insert_new, now

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]

STATES: tuple[State, ...] = get_args(State)

# The states in which a job stays, unless somebody retries it.
ENDED: frozenset[State] = frozenset(("succeeded", "failed", "cancelled"))


_INTERNAL_FIELDS = frozenset(("revision", "traceparent"))  # fields that callers do not get


@dataclass(frozen=True)
class JobProgress:
    """How far a job is.

    phase            the present phase, in a word or two
    done, total      of this phase, in rows, bytes or steps; total 0: not known
    rows_per_second  how fast `done` has grown since the phase began; None: not known yet
    seconds_left     of this phase; None: not known
    """

    phase: str
    done: int
    total: int
    rows_per_second: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class PromotionVerdict:
    """Whether an alias should move to the version of a job, and why.

    alias     the alias of the promotion rule
    baseline  the version that it named when the two were compared; None: there was none
    reasons   a sentence for each condition, and remarks on the rows; or why there was nothing to
              compare
    """

    promoted: bool
    reasons: tuple[str, ...]
    alias: str
    baseline: int | None


@dataclass(frozen=True)
class Job:
    """A job, its state and its outcome. Times are seconds since 1970.

    model         the model that it trains, tunes or predicts with
    version       the version that it published, or works with; None: not known yet
    request       the request, as JSON values
    result        the result, as JSON values: figures of a training or tuning, counts of a batch
    error         why it failed, in a sentence; `error_code` is stable
    promotion     the verdict of a training's promotion rule, once there is one
    attempts      how often a worker has begun it
    worker        the worker that has it, or had it last
    cancel_asked  it is running, and somebody has asked to cancel it
    revision      rises with every change of the job
    traceparent   the span of the request that submitted it, as W3C writes it; None: no trace is
                  known
    """

    id: str
    kind: str
    state: State
    model: str
    version: int | None
    request: Mapping[str, Any]
    progress: JobProgress | None
    result: Mapping[str, Any] | None
    promotion: PromotionVerdict | None
    error: str | None
    error_code: str | None
    created: float
    started: float | None
    ended: float | None
    attempts: int
    worker: str | None
    cancel_asked: bool
    revision: int
    traceparent: str | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the job does not change any more, unless somebody retries it."""
        return self.state in ENDED

    def as_json(self) -> dict[str, Any]:
        """Return the job as HTTP and `--json` show it."""
        facts = {
            name: value for name, value in asdict(self).items() if name not in _INTERNAL_FIELDS
        }
        return facts | {name: time_text(facts[name]) for name in ("created", "started", "ended")}


def feedback_models(request: Mapping[str, Any]) -> list[str]:
    """Return the models whose feedback is in the data of a checked request."""
    data = request.get("data")
    return (
        [source["feedback"]["model"] for source in data if type(source) is dict]
        if type(data) is list
        else []
    )


def models_of(model: str, request: Mapping[str, Any]) -> list[str]:
    """Return all models of a job: its own, and those that its checked request reads."""
    models = [
        reference.partition("@")[0]
        for reference in [*request.get("members", ()), request.get("from") or model]
    ]
    return [model, *feedback_models(request), *models]


def time_text(seconds: float | None) -> str | None:
    """Return a time as RFC 3339, in UTC, to the millisecond."""
    if seconds is None:
        return None
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


_SUBMIT_LOCK = 0x58796C4A6F  # PostgreSQL's advisory lock under which submissions take turns


def find(connection: Connection, job_id: str, *, lock: bool = False) -> Row[Any]:
    """Return the row of a job. Raises JobNotFound.

    lock  whether to lock the row until the transaction ends
    """
    query = select(JOBS).where(JOBS.c.id == job_id)
    query = query.with_for_update() if lock else query
    row = connection.execute(query).one_or_none() if is_id(job_id) else None
    if row is None:
        raise JobNotFound(f"expected the id of a job, found {job_id[:40]!r}")
    return row


def change(connection: Connection, job_id: str, **values: object) -> None:
    """Set columns of a job, and raise its revision."""
    connection.execute(
        update(JOBS).where(JOBS.c.id == job_id).values(revision=JOBS.c.revision + 1, **values)
    )


def end(connection: Connection, job_id: str, state: State, **values: object) -> None:
    """Set the final state of a job, release its claim, and count it in the totals."""
    released = {"claim": None, "lease_until": None, "cancel_asked": False}
    end_time = now(connection)
    change(connection, job_id, state=state, ended=end_time, **released, **values)
    kind, started = connection.execute(
        select(JOBS.c.kind, JOBS.c.started).where(JOBS.c.id == job_id)
    ).one()
    seconds = 0.0 if started is None else max(end_time - started, 0.0)
    connection.execute(
        update(JOB_TOTALS)
        .where(JOB_TOTALS.c.kind == kind, JOB_TOTALS.c.state == state)
        .values(n=JOB_TOTALS.c.n + 1, seconds=JOB_TOTALS.c.seconds + seconds)
    )


def forget_old(connection: Connection, kept_max: int) -> None:
    """Remove all ended jobs except the newest `kept_max`; workers remove their files."""
    old = select(JOBS.c.number).where(JOBS.c.state.in_(ENDED))
    old = (
        old.order_by(JOBS.c.ended.desc(), JOBS.c.number.desc())
        .offset(kept_max)
        .limit(kept_max + 1000)
    )
    numbers = list(connection.execute(old).scalars())
    if numbers:
        connection.execute(delete(JOBS).where(JOBS.c.number.in_(numbers)))


def job_of(row: Row[Any]) -> Job:
    """Return the job in a row."""
    values = {
        name: value for name, value in row._mapping.items() if name in Job.__dataclass_fields__
    }
    for name in ("request", "progress", "result", "promotion"):
        values[name] = None if values[name] is None else json.loads(values[name])
    if values["progress"] is not None:
        values["progress"] = JobProgress(**values["progress"])
    if values["promotion"] is not None:
        verdict = values["promotion"]
        values["promotion"] = PromotionVerdict(**{**verdict, "reasons": tuple(verdict["reasons"])})
    return Job(**values)


def begin_totals(connection: Connection, kind: str) -> None:
    """Start the totals of a kind at 0.

    For Prometheus, a counter that first appears as 1 has not risen.
    """
    connection.execute(
        insert_new(connection, JOB_TOTALS),
        [{"kind": kind, "state": state, "n": 0, "seconds": 0.0} for state in sorted(ENDED)],
    )


def take_turns(connection: Connection) -> None:
    """Wait until no other submission is in progress.

    So two submissions with the same idempotency key at the same time give one job.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SUBMIT_LOCK})
