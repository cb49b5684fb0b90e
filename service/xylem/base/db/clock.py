"""The time by which a database counts, and whether it may be trusted to delete what is too old."""

import math
import time

from sqlalchemy import Connection, extract, func, select

from xylem.base.db.engine import Compiled

# So long the clock must have gone right before anything is deleted by its age: a clock that is set
# wrong is mostly set right within minutes, while what is too old may wait for an hour.
AGREEMENT_SECONDS = 3600.0
_NOW = Compiled(select(extract("epoch", func.clock_timestamp())))
TOLERANCE_SECONDS = 60.0  # by which a clock is slewed in an hour, and much more


def now(connection: Connection) -> float:
    """Return the seconds since 1970: by PostgreSQL's clock,
    because those of its clients may differ.
    """
    if connection.dialect.name == "postgresql":
        return float(_NOW.run(connection).fetchone()[0])
    return time.time()


class AgeClock:
    """Compares the time of a database with this process's steady clock, which nobody can set.

    What is deleted by a clock that is ahead for a moment is gone for good. For one thread.
    """

    def __init__(self) -> None:
        self._offset = math.inf
        self._agreed_since = 0.0

    def trusted_now(self, connection: Connection) -> float | None:
        """Return the time now; None until the clocks have agreed for
        AGREEMENT_SECONDS since a first call.
        """
        time_of_day = now(connection)
        ticks = time.monotonic()
        offset = time_of_day - ticks
        if abs(offset - self._offset) > TOLERANCE_SECONDS:
            self._offset = offset
            self._agreed_since = ticks
        return time_of_day if ticks - self._agreed_since >= AGREEMENT_SECONDS else None
