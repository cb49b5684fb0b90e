"""Statements of SQLAlchemy Core that are compiled once, and run on the driver's own cursor.

For what runs for every block of feedback: SQLAlchemy takes 40 us to execute a statement that SQLite is done
with in 4, and keeps the interpreter from other threads meanwhile.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import Select


class Compiled:
    """A statement, and its text for each kind of database. Thread-safe.

    columns   those that an insert or an update sets, besides its values; none: all of an insert
    """

    def __init__(self, statement: Select[Any] | UpdateBase, columns: tuple[str, ...] = ()) -> None:
        self._statement = statement
        self._columns = list(columns) or None
        self._texts: dict[str, str] = {}

    def run(self, connection: Connection, **parameters: object) -> Any:
        """Run it in the connection's transaction; return the driver's cursor, whose rows are tuples.

        Values are handed over as they are: integers, floats, text and bytes are. Raises the driver's errors,
        which `Database.read` and `Database.write` know.
        """
        dialect = connection.dialect
        text = self._texts.get(dialect.name) or self._compile(dialect)
        return connection.connection.cursor().execute(text, parameters)

    def _compile(self, dialect: Dialect) -> str:
        named = sqlite.dialect(paramstyle="named") if dialect.name == "sqlite" else dialect
        text = str(self._statement.compile(dialect=named, column_keys=self._columns))
        return self._texts.setdefault(dialect.name, text)
