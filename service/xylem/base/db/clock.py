"""The time of a database, and whether it can be trusted to delete old rows."""

import math
import time

from sqlalchemy import Connection, extract, func, select

from xylem.base.db.engine import Compiled

# The time for which the clocks must have agreed before anything is deleted by its age: a wrong
# clock is mostly corrected within minutes, and old rows can wait for an hour.
AGREEMENT_SECONDS = 3600.0
_NOW = Compiled(select(extract("epoch", func.clock_timestamp())))
TOLERANCE_SECONDS = 60.0  # far more than a clock is slewed in an hour


def now(connection: Connection) -> float:
    """Return the seconds since 1970.

    With PostgreSQL they are by its clock, because the clocks of its clients may differ.
    """
    is_postgresql = connection.dialect.name == "postgresql"
    return float(_NOW.run(connection).fetchone()[0]) if is_postgresql else time.time()


class AgeClock:
    """Compares the time of a database with this process's steady clock, which nobody can set.

    If the database's clock is ahead, even for a moment, rows deleted by it are lost for good. An
    AgeClock must be used by one thread at a time.
    """

    def __init__(self) -> None:
        self._offset = math.inf
        self._agreed_since = 0.0

    def trusted_now(self, connection: Connection) -> float | None:
        """Return the time now; None until the clocks have agreed for AGREEMENT_SECONDS."""
        time_of_day = now(connection)
        ticks = time.monotonic()
        offset = time_of_day - ticks
        if abs(offset - self._offset) > TOLERANCE_SECONDS:
            self._offset = offset
            self._agreed_since = ticks
        return time_of_day if ticks - self._agreed_since >= AGREEMENT_SECONDS else None
