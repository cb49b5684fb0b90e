"""Schedules: submit jobs at the times of a cron line, or when rows of feedback have come.

Every worker looks for schedules that are due. A run submits a job with an idempotency key made from
the id of the schedule and the number of the run: so each run gives one job, however many workers
look, and even if one of them is killed.
"""

import copy
import datetime
import functools
import json
import logging
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Self

from sqlalchemy import Connection, Row, delete, insert, select, update

from xylem.admin.jobs.errors import ScheduleNotFound
from xylem.admin.jobs.job import ENDED, feedback_models, take_turns, time_text
from xylem.admin.jobs.jobs import LEARN, PUBLISHING, Jobs, read_recipe
from xylem.base import (
    JOBS,
    RECIPES,
    SCHEDULES,
    BadFields,
    BadRequest,
    Database,
    LimitExceeded,
    Principal,
    Repeating,
    Settings,
    log,
    now,
)
from xylem.thresholds import FeedbackRows
from xylem_store import LATEST, Conflict, check_model

SCHEDULES_MAX = 100  # schedules of a database

# The pause between two looks of a worker.
LOOK_SECONDS = 1.0

CRON_MAX = 128
_CRON_FIELDS = 5


class Schedules:
    """The schedules of a database. Thread-safe, for any number of processes; calls block.

    Schedules are returned as JSON shows them, as by `xylem.Client`. All calls raise
    DatabaseUnavailable. Use `start` and `close` to have schedules run when they are due.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        """Use a database, which the caller closes."""
        self._database = database
        self.jobs = Jobs(database, settings)
        self._rows_max = settings.limits.feedback_rows_max if settings.feedback_rows else 0
        looking = Repeating("schedules", self.run_due, LOOK_SECONDS, at_once=True)
        self.start = looking.start
        self.close = looking.stop

    def seen_by(self, sender: Principal) -> Self:
        """Return the schedules as the owner of a key sees them, as `Jobs.seen_by` does."""
        view = copy.copy(self)
        view.jobs = self.jobs.seen_by(sender)
        return view

    def create_schedule(
        self, kind: str, job: object, cron: str | None = None, rows: int | None = None
    ) -> dict[str, Any]:
        """Create and return a schedule, which submits jobs automatically.

        kind  one of `xylem.admin.jobs.kinds.KINDS`
        job   the JSON value of a request for such a job
        cron  the times, in UTC: minute, hour, day of the month, month, day of the week
        rows  instead of `cron`: whenever this many rows of feedback have come, to the models whose
              feedback the job reads, else to the model of the job

        Raises BadFields and BadRequest for a request that is not valid, a cron line that is not
        valid or never comes, and rows that cannot come; Conflict if another schedule moves the same
        alias; LimitExceeded.
        """
        if (cron is None) == (rows is None):
            raise BadRequest(
                f"expected either cron or rows, found {'neither' if cron is None else 'both'}"
            ).with_path("cron")
        try:
            request, model = self.jobs.check(kind, job)
        except BadFields as error:
            raise BadFields([fault.within("job") for fault in error.faults]) from None
        if rows is not None and not 1 <= rows <= self._rows_max:
            expected = (
                f"1 to {self._rows_max} rows"
                if self._rows_max
                else "XYLEM_FEEDBACK_ROWS=1, without which no rows come"
            )
            raise BadRequest(f"expected {expected}, found {rows}").with_path("rows")
        schedule_id = secrets.token_hex(8)
        alias = _alias_of(kind, request)
        with self._database.write() as connection:
            take_turns(connection)
            existing = connection.execute(select(SCHEDULES)).all()
            for other in existing:
                other_alias = _alias_of(other.kind, json.loads(other.request))
                if alias and (model, alias) == (other.model, other_alias):
                    expected = f"{model}: expected one schedule for the alias {alias}"
                    raise Conflict(f"{expected}, found schedule {other.id}: delete that one first")
            if len(existing) >= SCHEDULES_MAX:
                raise LimitExceeded(
                    f"expected at most {SCHEDULES_MAX} schedules, found as many already"
                )
            created = now(connection)
            values = {
                "id": schedule_id,
                "kind": kind,
                "model": model,
                "request": json.dumps(request),
                "cron": cron,
                "when_rows": rows,
                "next_at": None if cron is None else next_time(cron, created),
                "rows_after": FeedbackRows.newest_number(connection),
                "runs": 0,
                "created": created,
            }
            connection.execute(insert(SCHEDULES).values(values))
            return _facts(connection, _find(connection, schedule_id))

    def schedules(self) -> list[dict[str, Any]]:
        """Return all schedules, the oldest first."""
        with self._database.read() as connection:
            return [
                _facts(connection, row)
                for row in connection.execute(
                    select(SCHEDULES).order_by(SCHEDULES.c.created, SCHEDULES.c.id)
                ).all()
                if self._sees(row)
            ]

    def _sees(self, row: Row[Any]) -> bool:
        return self.jobs.sees(row.model, json.loads(row.request))

    def delete_schedule(self, schedule_id: str) -> dict[str, Any]:
        """Remove a schedule, and return it; its jobs go on. Raises ScheduleNotFound."""
        with self._database.write() as connection:
            row = _find(connection, schedule_id)
            if not self._sees(row):
                raise _missing(schedule_id)
            facts = _facts(connection, row)
            connection.execute(delete(SCHEDULES).where(SCHEDULES.c.id == schedule_id))
            return facts

    def recipe(self, model: str) -> dict[str, Any]:
        """Return the recipe of a model, as JSON shows it. Raises BadRequest if it has none."""
        with self._database.read() as connection:
            row = read_recipe(connection, model)
        return {
            "model": model,
            "recipe": json.loads(row.recipe),
            "changed": time_text(row.changed),
        }

    def set_recipe(
        self, model: str, values: object, *, names_files: bool = False
    ) -> dict[str, Any]:
        """Replace the recipe of a model, and its schedule; return it.

        names_files  whether the files must be those below the data directory that the sender sees

        Raises BadParameter for a recipe that is not valid, and what `create_schedule` raises.
        """
        from xylem.workflows import Recipe  # imported only now: trainers come with it

        check_model(model)
        recipe = Recipe.from_json(values)
        if names_files:
            for name in recipe.files:
                self.jobs.data.path_of(name, "recipe")
        if recipe.cron is not None:
            next_time(recipe.cron, 0.0)  # a line that never comes is refused before anything moves
        with self._database.write() as connection:
            connection.execute(delete(RECIPES).where(RECIPES.c.model == model))
            connection.execute(
                insert(RECIPES).values(
                    model=model, recipe=recipe.model_dump_json(), changed=now(connection)
                )
            )
            connection.execute(
                delete(SCHEDULES).where((SCHEDULES.c.kind == LEARN) & (SCHEDULES.c.model == model))
            )
        if recipe.cron is not None or recipe.rows is not None:
            self.create_schedule(LEARN, {"model": model}, recipe.cron, recipe.rows)
        return self.recipe(model)

    def run_due(self) -> int:
        """Submit a job for each schedule that is due; return how many were due.

        A schedule is not due before its last job has ended; if several of its times have passed, it
        runs once. Raises Overloaded if too many jobs wait: then the schedule is still due at the
        next look.
        """
        with self._database.read() as connection:
            time_now = now(connection)
            newest = FeedbackRows.newest_number(connection)
            rows = connection.execute(select(SCHEDULES)).all()
            due = [row for row in rows if _is_due(connection, row, time_now)]
        self._correct_times([row for row in rows if row.cron is not None], time_now)
        for row in due:
            job = self.jobs.add(
                row.kind, row.model, json.loads(row.request), f"schedule-{row.id}-{row.runs + 1}"
            )
            # if the row has changed, another worker has run the schedule
            is_unchanged = (SCHEDULES.c.id == row.id) & (SCHEDULES.c.runs == row.runs)
            run = (
                update(SCHEDULES)
                .where(is_unchanged)
                .values(
                    runs=row.runs + 1,
                    last_job=job.id,
                    next_at=None if row.cron is None else next_time(row.cron, time_now),
                )
            )
            with self._database.write() as connection:
                connection.execute(run.values(rows_after=newest))
            log(logging.INFO, "schedule_ran", schedule=row.id, model=row.model, job=job.id)
        return len(due)

    def _correct_times(self, rows: Iterable[Row[Any]], time_now: float) -> None:
        """Bring forward schedules whose next run is later than the next time of their cron line.

        They were created, or ran, while the clock was ahead.
        """
        for row in rows:
            earliest = _next_after_minute(row.cron, int(time_now // 60))
            if earliest < row.next_at:
                is_unchanged = (SCHEDULES.c.id == row.id) & (SCHEDULES.c.next_at == row.next_at)
                with self._database.write() as connection:
                    connection.execute(
                        update(SCHEDULES).where(is_unchanged).values(next_at=earliest)
                    )


def next_time(cron: str, start_time: float) -> float:
    """Return the first time of a cron line after `start_time`; both in seconds since 1970.

    Raises BadRequest.
    """
    from croniter import CroniterBadDateError, CroniterError, croniter  # its import takes 0.2 s

    cron_text = f"{cron[:80]!r}"
    if len(cron) > CRON_MAX or len(cron.split()) != _CRON_FIELDS:
        raise BadRequest(
            f"expected a cron line of {_CRON_FIELDS} fields, found {cron_text}"
        ).with_path("cron")
    try:
        next_run: datetime.datetime = croniter(
            cron, datetime.datetime.fromtimestamp(start_time, datetime.UTC)
        ).get_next(datetime.datetime)
    except CroniterBadDateError:
        raise BadRequest(
            f"expected a cron line with a time that comes, found {cron_text}, which never does"
        ).with_path("cron") from None
    except CroniterError as error:
        raise BadRequest(f"expected a cron line, found {cron_text}: {error}").with_path(
            "cron"
        ) from None
    return next_run.timestamp()


@functools.lru_cache(maxsize=SCHEDULES_MAX)
def _next_after_minute(cron: str, minute: int) -> float:
    """Return `next_time` after the start of a minute, counted since 1970.

    It is cached, because every worker asks each second.
    """
    return next_time(cron, 60.0 * minute)


def _alias_of(kind: str, request: Mapping[str, Any]) -> str | None:
    """Return the alias that the jobs of a request move; None if they move none."""
    if kind not in PUBLISHING:
        return None
    alias: str | None = (request.get("promotion") or {}).get("alias", LATEST)
    return alias


def _rows_come(connection: Connection, row: Row[Any]) -> int:
    """Return how many rows have come since the last run to the models of a schedule."""
    return FeedbackRows.count_after(
        connection, feedback_models(json.loads(row.request)) or [row.model], row.rows_after
    )


def _is_due(connection: Connection, row: Row[Any], time_now: float) -> bool:
    is_due: bool = (
        row.next_at <= time_now
        if row.when_rows is None
        else _rows_come(connection, row) >= row.when_rows
    )
    if not is_due or row.last_job is None:
        return is_due
    state = connection.execute(select(JOBS.c.state).where(JOBS.c.id == row.last_job)).scalar()
    return state is None or state in ENDED


def _find(connection: Connection, schedule_id: str) -> Row[Any]:
    """Return the row of a schedule. Raises ScheduleNotFound."""
    rows = [row for row in connection.execute(select(SCHEDULES)) if row.id == schedule_id]
    if not rows:
        raise _missing(schedule_id)
    return rows[0]


def _missing(schedule_id: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"expected the id of a schedule, found {schedule_id[:40]!r}")


def _facts(connection: Connection, row: Row[Any]) -> dict[str, Any]:
    """Return a schedule as JSON shows it."""
    n_rows = None if row.when_rows is None else _rows_come(connection, row)
    request = json.loads(row.request)
    return {
        "id": row.id,
        "kind": row.kind,
        "model": row.model,
        "alias": _alias_of(row.kind, request),
        "cron": row.cron,
        "next": time_text(row.next_at),
        "rows": row.when_rows,
        "rows_come": n_rows,
        "runs": row.runs,
        "last_job": row.last_job,
        "created": time_text(row.created),
        "job": request,
    }
