"""Connections to PostgreSQL that give up a server which is connected and does not answer.

The server's own limits do not help where the server itself stands still (stopped, out of memory,
its disk gone), nor do those of TCP: the kernel goes on acknowledging for it.
"""

import time
from collections.abc import Generator
from typing import Any

import psycopg

ANSWER_SECONDS = 35.0
"""The longest wait for an answer: longer than the server's limit of
a statement, of which it can tell.
"""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection of psycopg whose every wait ends."""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """Wait for what psycopg's generator does.

        Raises OperationalError, the connection then closed.
        """
        return super().wait(self._bounded(gen), *arguments, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Do as `gen` does, which psycopg sends 0 now and then while nothing comes, for a while."""
        until = time.monotonic() + ANSWER_SECONDS
        try:
            awaited = next(gen)
            while True:
                ready = yield awaited
                if not ready and time.monotonic() > until:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {ANSWER_SECONDS:g} seconds")
                awaited = gen.send(ready)
        except StopIteration as done:
            return done.value


def connect(_: object, __: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Connect: what SQLAlchemy calls as its event `do_connect`.

    A pooler such as pgbouncer tells another number of the session than the session itself. Each
    transaction may have another session there, where a statement that was prepared is missing, or
    there twice: so none is. Elsewhere feedback takes half the time if statements are prepared.
    """
    connection = BoundedConnection.connect(*arguments, **options)
    session = connection.execute("SELECT pg_backend_pid()").fetchone()
    if session != (connection.info.backend_pid,):
        connection.prepare_threshold = None
    return connection
