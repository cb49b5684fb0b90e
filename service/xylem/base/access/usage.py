"""What each key sent to each model: counted in memory, and written behind, by hour.

Counters are drained by a thread while the event loop adds to them. So they are replaced first, and
the old ones are written at the next turn: by then the event loop has long left them.
"""

import datetime
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from sqlalchemy import delete, func, select

from xylem.base.access.keys import moment
from xylem.base.db.engine import Database, insert_new
from xylem.base.db.tables import ACCESS_KEYS, KEY_USAGE
from xylem.base.errors import BadParameter, LimitExceeded, XylemError
from xylem.base.repeating import Repeating

WRITE_SECONDS = 10.0  # between two writes
HOUR_SECONDS = 3600
# Days for which usage is stored: a year, and a month to read it.
DAYS_MAX = 400

LINES_MAX = 10_000  # the most lines of an answer

_COUNTS = ("requests", "rows", "characters", "search_seconds")


class UsagePlace(NamedTuple):
    """Whose requests, to which model."""

    key_id: str
    model: str


class KeyUsage:
    """Counts requests of keys, and writes the counts into a database.

    `add` is for the event loop, and never blocks; `close` writes what is left, also at SIGTERM.

    totals  what was written or is about to be, since the start, by UsagePlace
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._counts = _no_counts()
        self._closed_counts = _no_counts()
        self._unwritten: dict[tuple[int, UsagePlace], list[float]] = {}
        self._draining = threading.Lock()
        self.totals = _no_counts()
        self._writing = Repeating("key-usage", self.write, WRITE_SECONDS, at_once=False)
        self.start = self._writing.start

    def add(
        self,
        key_id: str,
        model: str,
        *,
        n_rows: int,
        n_characters: int,
        search_ns: int = 0,
        n_requests: int = 1,
    ) -> None:
        """Count a request, or a part of one, if it needed a key.

        key_id      empty: it needed none
        n_requests  0 for a further part of a request
        """
        if key_id:
            counts = self._counts[key_id, model]
            counts[0] += n_requests
            counts[1] += n_rows
            counts[2] += n_characters
            counts[3] += 1e-9 * search_ns

    def write(self) -> None:
        """Write what was counted until the last call.

        Raises DatabaseUnavailable: then it is written by a later call.
        """
        with self._draining:
            drained = self._closed_counts
            self._closed_counts = self._counts
            self._counts = _no_counts()
            hour = int(self._clock() // HOUR_SECONDS)
            for (key_id, model), counts in drained.items():
                usage_key = UsagePlace(key_id, model)
                _add(self._unwritten.setdefault((hour, usage_key), [0, 0, 0, 0.0]), counts)
                _add(self.totals[usage_key], counts)
            if not self._unwritten:
                return
            with self._database.write() as connection:
                # in one order: replicas that add to the same lines must not wait for each other
                for (row_hour, usage_key), counts in sorted(self._unwritten.items()):
                    place = {"hour": row_hour, **usage_key._asdict()}
                    connection.execute(
                        insert_new(connection, KEY_USAGE).values(place | dict.fromkeys(_COUNTS, 0))
                    )
                    sums = zip(_COUNTS, counts, strict=True)
                    connection.execute(
                        KEY_USAGE.update()
                        .where(*(KEY_USAGE.c[name] == value for name, value in place.items()))
                        .values({name: KEY_USAGE.c[name] + count for name, count in sums})
                    )
                connection.execute(delete(KEY_USAGE).where(KEY_USAGE.c.hour < hour - 24 * DAYS_MAX))
            self._unwritten.clear()

    def close(self) -> None:
        """Stop, and write all that was counted. Blocking, as long as the database takes."""
        self._writing.stop()
        with suppress(XylemError):  # a failure must not stop the end of the process
            self.write()
            self.write()

    def read(
        self,
        begin: str | None = None,
        end: str | None = None,
        groups: str = "key,model",
        *,
        sees: Callable[[str], bool] = lambda _: True,
    ) -> list[dict[str, Any]]:
        """Return what is written of the usage between two times, summed, as HTTP shows it.

        begin   a time as 2026-11-29T00:00:00Z: its hour is the first; None: from the first hour on
        end     a time; None: until now
        groups  some of hour, key and model, with commas: a line for each
        sees    whether a model is counted

        Raises BadParameter, LimitExceeded for more than LINES_MAX lines, and DatabaseUnavailable.
        """
        names = groups.split(",")
        if not set(names) <= _GROUPS.keys():
            raise BadParameter(f"by: expected some of {', '.join(_GROUPS)}, found {groups[:40]!r}")
        columns = {name: column.label(name) for name, column in _GROUPS.items() if name in names}
        grouped = [_GROUPS[name] for name in columns]
        query = select(
            *columns.values(), *[func.sum(KEY_USAGE.c[name]).label(name) for name in _COUNTS]
        )
        if begin is not None:
            query = query.where(KEY_USAGE.c.hour >= _seconds_of("from", begin) // HOUR_SECONDS)
        if end is not None:
            # counts are kept by hour: the hour that contains `end` is included, unless `end` is
            # exactly its beginning
            query = query.where(KEY_USAGE.c.hour < -(-_seconds_of("to", end) // HOUR_SECONDS))
        with self._database.read() as connection:
            models = connection.execute(select(KEY_USAGE.c.model).distinct()).scalars()
            query = (
                query.where(KEY_USAGE.c.model.in_(list(filter(sees, models))))
                .group_by(*grouped)
                .order_by(*grouped)
                .limit(LINES_MAX + 1)
            )
            lines = [dict(row._mapping) for row in connection.execute(query) if row[-1] is not None]
            key_names = {
                row.id: row.name
                for row in connection.execute(select(ACCESS_KEYS.c.id, ACCESS_KEYS.c.name))
            }
        if len(lines) > LINES_MAX:
            raise LimitExceeded(
                f"expected at most {LINES_MAX} lines of usage, found more: choose a shorter time"
            )
        for line in lines:
            line |= {name: int(line[name]) for name in _COUNTS[:3]}
            if "hour" in line:
                line["hour"] = moment(line["hour"] * HOUR_SECONDS)
            if "key" in line:
                line["name"] = key_names.get(line["key"])
        return lines


_GROUPS = {"hour": KEY_USAGE.c.hour, "key": KEY_USAGE.c.key_id, "model": KEY_USAGE.c.model}


def _seconds_of(field: str, text: str) -> int:
    """Return the seconds since 1970 of a time; without a zone it is one of UTC."""
    try:
        time_point = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise BadParameter(
            f"{field}: expected a time such as 2026-11-29 or 2026-11-29T12:00:00Z, found "
            f"{text[:40]!r}"
        ) from None
    if time_point.tzinfo is None:
        time_point = time_point.replace(tzinfo=datetime.UTC)
    return int(time_point.timestamp())


def _no_counts() -> defaultdict[tuple[str, str], list[float]]:
    return defaultdict(lambda: [0, 0, 0, 0.0])


def _add(totals: list[float], counts: Iterable[float]) -> None:
    for i, count in enumerate(counts):
        totals[i] += count
