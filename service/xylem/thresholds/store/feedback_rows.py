"""Rows of feedback: instances of events with their true labels, stored to train on. Off by default.

A row is a line of a data file, `{"event_id": ..., "text": ..., "labels": [...]}`. A model has a
maximal number of rows, and each row is kept for a maximal number of days; the oldest are removed
first, within TRIM_SECONDS.
"""

import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    delete,
    func,
    literal,
    select,
)

from xylem.base import (
    FEEDBACK_ROWS,
    RECIPES,
    AgeClock,
    Database,
    Repeating,
    Settings,
    insert_new,
    now,
)

_PAGE_ROWS = 500  # rows that are read from the database together

TRIM_SECONDS = 10.0  # how often rows that are too many or too old are removed
_OLD_MAX = 1000  # most rows that one statement removes because they are too old
DAY_SECONDS = 86_400

_R = FEEDBACK_ROWS.c


class Span(NamedTuple):
    """The rows of a model that arrived in a period [since, until), in seconds since 1970."""

    model: str
    since: float = 0.0
    until: float = float("inf")

    def condition(self) -> ColumnElement[bool]:
        """Return the condition for SQL. PostgreSQL knows infinity, too."""
        return (_R.model == self.model) & (_R.at >= self.since) & (_R.at < self.until)


def add_rows(connection: Connection, model: str, rows: Mapping[bytes, tuple[bytes, str]]) -> None:
    """Store rows, unless the recipe of the model refuses them. An event's first row stays.

    rows  by the key of its event each row's line and the name of the sender's key, empty if it is
          not known
    """
    if rows and _keeps_texts(connection, model):
        arrived_at = now(connection)
        connection.execute(
            insert_new(connection, FEEDBACK_ROWS),
            [
                {
                    "model": model,
                    "event_key": event_key,
                    "at": arrived_at,
                    "line": line,
                    "key": sender or None,
                }
                for event_key, (line, sender) in rows.items()
            ],
        )


def _keeps_texts(connection: Connection, model: str) -> bool:
    """Return whether texts of a model's feedback may be stored: its recipe may refuse them."""
    recipe = connection.execute(select(RECIPES.c.recipe).where(RECIPES.c.model == model)).scalar()
    return recipe is None or json.loads(recipe).get("keep_texts", True)


class FeedbackRows:
    """The rows of feedback in a database. Thread-safe; calls block, and raise DatabaseUnavailable.

    Between `start` and `close`, rows beyond the bounds are removed regularly.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self.is_on = settings.feedback_rows
        self._database = database
        self._rows_max = settings.limits.feedback_rows_max
        self._days_max = settings.feedback_row_days_max
        self._clock = AgeClock()
        # How many rows each model had when `trim` last counted them.
        self.row_counts: dict[str, int] = {}
        # How many rows this process removed, by model and by the bound: `rows` or `days`.
        self.dropped: Counter[tuple[str, str]] = Counter()
        trimming = Repeating("feedback-rows", self.trim, TRIM_SECONDS, at_once=True)
        self.start = trimming.start
        self.close = trimming.stop

    @staticmethod
    def newest_number(connection: Connection) -> int:
        """Return the number of the newest row, 0 if there is none."""
        return connection.execute(select(func.max(_R.number))).scalar_one() or 0

    @staticmethod
    def count_after(connection: Connection, models: Collection[str], number: int) -> int:
        """Return how many rows of the models have a higher number and are still stored."""
        return connection.execute(
            select(func.count()).where(_R.model.in_(models), _R.number > number)
        ).scalar_one()

    def span(self, model: str, days: int | None = None, until: float | None = None) -> Span:
        """Return the period of the last `days` before `until` (default: now).

        It is at most as long as rows are kept.
        """
        until = time.time() if until is None else until
        return Span(model, until - DAY_SECONDS * min(days or self._days_max, self._days_max), until)

    def count(self, span: Span) -> int:
        """Return how many rows arrived in a period."""
        with self._database.read() as connection:
            return connection.execute(select(func.count()).where(span.condition())).scalar_one()

    def refusal(self, model: str) -> str | None:
        """Return why no texts of a model's feedback are stored; None if they are stored."""
        if not self.is_on:
            return "the service stores no texts of feedback: XYLEM_FEEDBACK_ROWS is not set"
        with self._database.read() as connection:
            is_kept = _keeps_texts(connection, model)
        return None if is_kept else f"the recipe of {model} refuses texts: its keep_texts is false"

    def newest(
        self, model: str, n: int, before_number: int | None, label: str | None, key: str | None
    ) -> list[dict[str, Any]]:
        """Return the newest n rows as JSON, the newest first.

        before_number  only rows with smaller numbers; None: all
        label, key     only rows with this label, and of the key of this name
        """
        choice = _R.model == model
        if before_number is not None:
            choice &= _R.number < before_number
        if key is not None:  # PostgreSQL refuses texts with NUL, which no name of a key has
            choice &= _R.key == (key if key.isprintable() else "")
        query = (
            select(FEEDBACK_ROWS)
            .where(choice)
            .order_by(_R.number.desc())
            .execution_options(yield_per=_PAGE_ROWS)
        )
        with self._database.read() as connection:
            if label is not None:
                # the database looks for it: reading 100,000 lines here, for a rare label, took
                # 0.8 s of the server's interpreter
                part = literal(json.dumps(label, ensure_ascii=False).encode(errors="replace"))
                query = query.where(
                    func.instr(_R.line, part) > 0
                    if connection.dialect.name == "sqlite"
                    else func.position(part.op("IN")(_R.line)) > 0
                )
            with connection.execute(query) as lines:
                rows = (
                    {"text": None, **event, "number": row.number, "at": row.at, "key": row.key}
                    for row in lines
                    for event in [json.loads(row.line)]
                    if label is None or label in event["labels"]  # the text may have it, too
                )
                return list(itertools.islice(rows, n))

    def pages(self, span: Span) -> Iterator[bytes]:
        """Yield the lines of the rows in pages, each with its line ends, the oldest first."""
        lines = self.lines(span)
        while page := b"".join(line + b"\n" for line in itertools.islice(lines, _PAGE_ROWS)):
            yield page

    def lines(self, span: Span) -> Iterator[bytes]:
        """Yield the lines of the rows, the oldest first, without line ends."""
        number = 0
        while True:
            query = select(_R.number, _R.line).where(span.condition(), _R.number > number)
            with self._database.read() as connection:
                rows = connection.execute(query.order_by(_R.number).limit(_PAGE_ROWS)).all()
            yield from (bytes(row.line) for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            number = rows[-1].number

    def forget(
        self,
        model: str,
        event_keys: Sequence[bytes],
        midnight: float | None = None,
        sender: str | None = None,
    ) -> int:
        """Remove rows of a model, and return how many were removed.

        Those of events by their keys, those of the day that begins at `midnight`, and those that
        came with the key of the name `sender`.
        """
        # not `_R.key == None`: it would be all rows that came without a key
        choice = _R.event_key.in_(event_keys) | (_R.key == (sender or ""))
        if midnight is not None:
            choice |= (_R.at >= midnight) & (_R.at < midnight + DAY_SECONDS)
        return self._remove((_R.model == model) & choice)

    def trim(self) -> None:
        """Remove rows that are too many, and those that are too old if the time is certain."""
        with self._database.read() as connection:
            query = select(_R.model, func.count()).group_by(_R.model)
            self.row_counts = {row.model: row[1] for row in connection.execute(query)}
            oldest = {
                model: connection.execute(_oldest(model, _R.at, 1)).scalar()
                for model in self.row_counts
            }
            seconds = self._clock.trusted_now(connection)
        cutoff = -math.inf if seconds is None else seconds - DAY_SECONDS * self._days_max
        for model, n in self.row_counts.items():
            while (oldest[model] or cutoff) < cutoff:
                old = _oldest(model, _R.number, _OLD_MAX, _R.at).subquery()
                n_old = self._remove(_R.number.in_(select(old.c.number).where(old.c.at < cutoff)))
                self.dropped[model, "days"] += n_old
                n -= n_old
                if n_old < _OLD_MAX:
                    break
            if n > self._rows_max:
                last = (
                    select(_R.number)
                    .where(_R.model == model)
                    .order_by(_R.number.desc())
                    .limit(1)
                    .offset(self._rows_max)
                    .scalar_subquery()
                )
                self.dropped[model, "rows"] += self._remove(
                    (_R.model == model) & (_R.number <= last)
                )

    def _remove(self, condition: ColumnElement[bool]) -> int:
        with self._database.write() as connection:
            if connection.dialect.name == "sqlite":  # by default removed rows stay in the file
                connection.exec_driver_sql("PRAGMA secure_delete=ON")
            return connection.execute(delete(FEEDBACK_ROWS).where(condition)).rowcount


def _oldest(model: str, column: Any, n: int, *other_columns: Any) -> Any:
    return select(column, *other_columns).where(_R.model == model).order_by(_R.number).limit(n)
