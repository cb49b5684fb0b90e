"""Database: connections to SQLite or PostgreSQL, migrated before the first use; failures as our errors."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, Insert, Table, create_engine, event, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import Select

from service.base.errors import BadParameter, DatabaseUnavailable
from service.base.settings import Settings
from service.db import FILE_NAME
from service.db.tables import migrate

CONNECT_SECONDS = 5
"""The longest wait for a connection, and on SQLite for another writer's transaction."""

STATEMENT_SECONDS = 30  # the longest statement, and wait for a lock, on PostgreSQL
CONNECTIONS_KEPT = 5  # connections that stay open when nobody uses them, at most
_KEEP_ALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""A PostgreSQL to which the network has gone is given up after 25 seconds; without this, after hours."""


def default_url(store: Path) -> str:
    """Return the URL of the SQLite database of a store."""
    return URL.create("sqlite", database=str(store / FILE_NAME)).render_as_string()


class Database:
    """One database. Thread-safe.

    What a `write` block did is committed when the block ends, and then survives kill -9 and a loss of power:
    SQLite writes ahead and syncs the log at each commit (synchronous=FULL), PostgreSQL does by default.
    """

    def __init__(self, url: str, connections_max: int = 15) -> None:
        """Take a URL as SQLAlchemy has it; nothing is opened yet. Raises BadParameter.

        connections_max  at a time: who asks for one more waits CONNECT_SECONDS for it
        """
        self._engine = _engine(url, connections_max)
        self.shown = self._engine.url.set(query={}).render_as_string(hide_password=True)
        """Which database it is, without what may be secret: for logs and commands."""
        self._writing = self._engine.execution_options(xylem_write=True)
        is_postgresql = self._engine.dialect.name == "postgresql"  # SQLite's reads see one state as it is
        one_state = {"isolation_level": "REPEATABLE READ"} if is_postgresql else {}
        self._reading = self._engine.execution_options(**one_state)
        self._keeps = not is_postgresql  # whose pool tries each connection before it is used again
        self._kept: dict[str, Connection] = {}  # "writing": that of the last writer, while nobody uses it
        self._migrating = threading.Lock()
        self._migrated = False

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the database of the settings: theirs, else the one beside the store. Raises BadParameter."""
        return cls(settings.database_url or default_url(settings.store), settings.database_connections)

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection whose reads see one state of the database.

        Raises DatabaseUnavailable and DatabaseUnsupported.
        """
        self._migrate()
        with self._errors(), self._reading.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection in a transaction, committed at the end, rolled back when the block raises.

        On SQLite there is one such transaction at a time. Raises DatabaseUnavailable and DatabaseUnsupported:
        then nothing was done, or, when the connection broke in the commit itself, everything.
        """
        self._migrate()
        with self._errors(), self._begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _begin(self) -> Iterator[Connection]:
        """Yield a connection in a writing transaction: one that was kept costs a third of a new one."""
        connection = self._kept.pop("writing", None) or self._writing.connect()
        try:
            with connection.begin():
                yield connection
        except BaseException:
            connection.close()
            raise
        if not self._keeps or self._kept.setdefault("writing", connection) is not connection:
            connection.close()

    def _migrate(self) -> None:
        if self._migrated:
            return
        with self._migrating:
            if not self._migrated:
                with self._errors(), self._begin() as connection:
                    migrate(connection)
                self._migrated = True

    def close(self) -> None:
        """Close all connections; a later use opens new ones."""
        kept = self._kept.pop("writing", None)
        if kept is not None:
            kept.close()
        self._engine.dispose()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the database's failures as DatabaseUnavailable: one line, no statements, no passwords."""
        try:
            yield
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error) as error:
            cause = getattr(error, "orig", None) or error
            line = " ".join(str(cause).split())[:300]
            found = f"expected a database that answers, {self.shown}, found: {line}"
            raise DatabaseUnavailable.confidential(found) from error


def _engine(url: str, connections_max: int) -> Engine:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            raise BadParameter(f"database: expected sqlite or postgresql+psycopg, found {backend!r}")
        if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise BadParameter(
                "database: expected a file, sqlite:////DIR/FILE, found none: nothing would be kept"
            )
        arguments: dict[str, Any] = {"timeout": CONNECT_SECONDS}
        if backend == "postgresql":
            options = f"-c statement_timeout={STATEMENT_SECONDS}s -c idle_in_transaction_session_timeout=60s"
            arguments = {"connect_timeout": CONNECT_SECONDS, "options": options, **_KEEP_ALIVE}
        engine = create_engine(
            parsed,
            connect_args=arguments,
            pool_pre_ping=backend == "postgresql",
            pool_timeout=CONNECT_SECONDS,
            pool_size=min(CONNECTIONS_KEPT, connections_max),
            max_overflow=max(connections_max - CONNECTIONS_KEPT, 0),
        )
        if backend == "postgresql":
            from service.db.postgresql import connect  # and the driver, which need not be there for SQLite

            event.listen(engine, "do_connect", connect)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError, TypeError) as error:
        # ValueError and TypeError: a port, host or option that is none; they may repeat a part of the URL
        found = error if isinstance(error, SQLAlchemyError | ModuleNotFoundError) else type(error).__name__
        raise BadParameter(
            "database: expected sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME "
            f"(pip install xylem-serve[postgresql]), found one that cannot be used: {found}"
        ) from None
    if backend == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    """Leave transactions to us, and have each commit synced to the disk."""
    connection.isolation_level = None
    _write_ahead(connection)
    for pragma in ("synchronous=FULL", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}").close()


def _write_ahead(connection: Any) -> None:
    """Have a SQLite file write ahead, as it does from then on.

    Of several that change a new file at once SQLite refuses all but one, without the wait that it has for
    transactions: so this waits.
    """
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; a writing one takes the lock at once, so that no other comes in between."""
    writes = connection.get_execution_options().get("xylem_write", False)
    connection.connection.cursor().execute("BEGIN IMMEDIATE" if writes else "BEGIN")


def insert_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that leaves rows alone whose key is there already."""
    insert = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
    return insert(table).on_conflict_do_nothing()


class Compiled:
    """A statement of SQLAlchemy Core that is compiled once, and run on the driver's own cursor. Thread-safe.

    For what runs for every block of feedback: SQLAlchemy takes 40 us to execute a statement that SQLite is
    done with in 4, and keeps the interpreter from other threads meanwhile.

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
        text = self._texts.get(dialect.name)
        if text is None:
            named = sqlite.dialect(paramstyle="named") if dialect.name == "sqlite" else dialect
            text = str(self._statement.compile(dialect=named, column_keys=self._columns))
            self._texts[dialect.name] = text
        return connection.connection.cursor().execute(text, parameters)
