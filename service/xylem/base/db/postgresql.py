"""Connections to PostgreSQL that give up on a server which is connected and does not answer.

The server's own limits do not help if the server itself hangs (stopped, out of memory, its disk
gone). Neither do the timeouts of TCP, because the server's kernel still acknowledges packets.
"""

import time
from collections.abc import Generator
from typing import Any

import psycopg

# The longest wait for an answer.
#
# It is longer than the server's limit of a statement, so that the server can report that one.
ANSWER_SECONDS = 35.0


class BoundedConnection(psycopg.Connection[Any]):
    """A connection of psycopg whose waits are all bounded in time."""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """Run psycopg's generator to its end.

        Raises OperationalError when the time is over; the connection is then closed.
        """
        return super().wait(self._bounded(gen), *arguments, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Pass on what `gen` yields and receives, until the time is over.

        psycopg sends 0 now and then while nothing comes.
        """
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            condition = next(gen)
            while True:
                ready = yield condition
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {ANSWER_SECONDS:g} seconds")
                condition = gen.send(ready)
        except StopIteration as done:
            return done.value


def connect(_: object, __: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return a connection: SQLAlchemy calls this as its event `do_connect`.

    Behind a pooler such as pgbouncer, each transaction may run in another session of the server, in
    which a prepared statement is missing, or exists already: so no statement is prepared. A pooler
    is recognised by the session number that it reports, which differs from the session's own.
    Without a pooler, prepared statements halve the time that feedback takes.
    """
    connection = BoundedConnection.connect(*arguments, **options)
    if connection.execute("SELECT pg_backend_pid()").fetchone() != (connection.info.backend_pid,):
        connection.prepare_threshold = None
    return connection
