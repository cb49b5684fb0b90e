"""Rows of feedback: instances of events with their true labels, kept to train on. Off unless it is asked for.

A row is a line of a data file, `{"event_id": ..., "text": ..., "labels": [...]}`. A model has so many rows at
most, and each stays for so many days; the oldest go first, within TRIM_SECONDS.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, select

from service.base.errors import DatabaseUnavailable
from service.base.repeating import Repeating
from service.base.settings import Settings
from service.db.engine import Database, insert_new
from service.db.tables import FEEDBACK_ROWS

PAGE_ROWS = 500
"""Rows that are read together."""

TRIM_SECONDS = 10.0
"""Between two looks for rows that are too many or too old."""

_OLD_MAX = 1000
DAY_SECONDS = 86_400

_R = FEEDBACK_ROWS.c


class Span(NamedTuple):
    """The rows of a model that came from one time to another, in seconds since 1970."""

    model: str
    since: float = 0.0
    until: float = float("inf")

    def condition(self) -> ColumnElement[bool]:
        """Return it as SQL; PostgreSQL knows infinity, too."""
        return (_R.model == self.model) & (_R.at >= self.since) & (_R.at < self.until)


def add_rows(connection: Connection, model: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
    """Keep rows, each the key of its event and its line; of an event that has one the first stays."""
    if rows:
        values = [{"model": model, "event_key": key, "at": time.time(), "line": line} for key, line in rows]
        connection.execute(insert_new(connection, FEEDBACK_ROWS), values)


def newest_number(connection: Connection) -> int:
    """Return the number of the row that came last, 0 where there is none."""
    return connection.execute(select(func.max(_R.number))).scalar_one() or 0


def count_after(connection: Connection, models: Collection[str], number: int) -> int:
    """Return how many rows of models have come after a number, of those that are still there."""
    query = select(func.count()).where(_R.model.in_(models), _R.number > number)
    return connection.execute(query).scalar_one()


class FeedbackRows:
    """The rows of a database. Thread-safe; calls block, and raise DatabaseUnavailable.

    Use `start` and `close` to have what is beyond the bounds removed all the time.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        """Take the settings: whether new rows are kept, and the bounds."""
        self.is_on = settings.feedback_rows
        self._database = database
        self._rows_max = settings.limits.feedback_rows_max
        self._days_max = settings.feedback_row_days_max
        self.kept: dict[str, int] = {}
        """How many rows each model had at the last look."""
        self.dropped: Counter[tuple[str, str]] = Counter()
        """How many this process removed, by model and by which bound: `rows` or `days`."""
        trimming = Repeating("feedback-rows", self._look, TRIM_SECONDS, at_once=True)
        self.start, self.close = trimming.start, trimming.stop

    def span(self, model: str, days: int | None = None, until: float | None = None) -> Span:
        """Return the rows of the last `days` before a time, now if it is left out; as many as are kept."""
        until = time.time() if until is None else until
        return Span(model, until - DAY_SECONDS * min(days or self._days_max, self._days_max), until)

    def count(self, span: Span) -> int:
        """Return how many rows there are."""
        with self._database.read() as connection:
            return connection.execute(select(func.count()).where(span.condition())).scalar_one()

    def lines(self, span: Span) -> Iterator[bytes]:
        """Yield the rows as they came, the oldest first, without ends of lines."""
        number = 0
        while True:
            query = select(_R.number, _R.line).where(span.condition(), _R.number > number)
            with self._database.read() as connection:
                found = connection.execute(query.order_by(_R.number).limit(PAGE_ROWS)).all()
            yield from (bytes(row.line) for row in found)
            if len(found) < PAGE_ROWS:
                return
            number = found[-1].number

    def forget(self, model: str, keys: Sequence[bytes]) -> int:
        """Remove the rows of events, by their keys; return how many there were."""
        return self._remove((_R.model == model) & _R.event_key.in_(keys))

    def forget_day(self, model: str, midnight: float) -> int:
        """Remove the rows of the day that begins then; return how many there were."""
        return self._remove(Span(model, midnight, midnight + DAY_SECONDS).condition())

    def trim(self) -> None:
        """Remove the rows that are too many or too old."""
        with self._database.read() as connection:
            counts = connection.execute(select(_R.model, func.count()).group_by(_R.model)).all()
            self.kept = {row.model: row[1] for row in counts}
            oldest = {model: connection.execute(_oldest(model, _R.at, 1)).scalar() for model in self.kept}
        before = time.time() - DAY_SECONDS * self._days_max
        for model, n in self.kept.items():
            while (oldest[model] or before) < before:
                old = _oldest(model, _R.number, _OLD_MAX, _R.at).subquery()
                n_old = self._remove(_R.number.in_(select(old.c.number).where(old.c.at < before)))
                self.dropped[model, "days"] += n_old
                n -= n_old
                if n_old < _OLD_MAX:
                    break
            if n > self._rows_max:
                newest = select(_R.number).where(_R.model == model).order_by(_R.number.desc())
                last = newest.limit(1).offset(self._rows_max).scalar_subquery()
                self.dropped[model, "rows"] += self._remove((_R.model == model) & (_R.number <= last))

    def _look(self) -> None:
        with contextlib.suppress(DatabaseUnavailable):  # which others tell of
            self.trim()

    def _remove(self, condition: ColumnElement[bool]) -> int:
        with self._database.write() as connection:
            if connection.dialect.name == "sqlite":  # which else leaves what is removed in the file
                connection.exec_driver_sql("PRAGMA secure_delete=ON")
            return connection.execute(delete(FEEDBACK_ROWS).where(condition)).rowcount


def _oldest(model: str, column: Any, n: int, *more: Any) -> Any:
    return select(column, *more).where(_R.model == model).order_by(_R.number).limit(n)
