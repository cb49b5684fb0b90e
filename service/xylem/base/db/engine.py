"""Database: connections to SQLite or PostgreSQL, migrated before the first use.

Errors of the drivers are raised as errors of the service.
"""

import contextlib
import math
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Insert,
    Table,
    create_engine,
    event,
    make_url,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import Select

from xylem.base.db.names import FILE_NAME
from xylem.base.db.tables import SCHEMA_VERSION, migrate
from xylem.base.errors import BadParameter, DatabaseUnavailable
from xylem.base.settings import Settings

# The longest wait for a connection, and on SQLite for another writer's transaction.
CONNECT_SECONDS = 5

STATEMENT_SECONDS = 30  # the longest statement, and wait for a lock, on PostgreSQL
IDLE_SECONDS = 60  # the longest pause between two statements of a transaction, on PostgreSQL
CONNECTIONS_KEPT = 5  # most connections that stay open unused

# The time for which a database counts as failing after a write failed: on a full disk small writes
# succeed for a while, and would hide that larger ones fail.
WRITE_FAULT_SECONDS = 30.0

# Options of a connection that the URL may override. If the network to PostgreSQL is gone, a
# connection fails after 25 seconds; without these options, after hours.
_OPTIONS = {
    "sqlite": {"timeout": CONNECT_SECONDS},
    "postgresql": {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    },
}

# Options that the URL cannot override. The drivers begin no transactions themselves:
# `_begin_sqlite` and `_begin_postgresql` do.
_FIXED_OPTIONS = {"sqlite": {}, "postgresql": {"client_encoding": "utf8", "autocommit": True}}

# Each transaction sets its own limits, in the message that begins it, so that they cost no further
# round trip. A pooler refuses them as options of the connection, and passes the settings of a
# session on to another client.
_LIMITS = (
    f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
)

# SQLSTATE of a server that accepts no writes: it is read-only, or stops. After a failover new
# connections lead to another server, while open ones may stay at the old one, which can still be
# read.
_NOT_THE_SERVER = ("25006", "57P01", "57P02", "57P03")

# Device and inode of a file; for a read-only file also its size and time of change. None if the
# file does not exist.
FileIdentity = tuple[int, ...] | None


def default_url(store: Path) -> str:
    """Return the URL of the SQLite database beside a store."""
    return URL.create("sqlite", database=str(store / FILE_NAME)).render_as_string()


class Database:
    """A database. Thread-safe.

    The changes of a `write` block are committed when the block ends, and then survive kill -9 and a
    loss of power: SQLite writes ahead and syncs the log at each commit (synchronous=FULL),
    PostgreSQL does so by default.
    """

    def __init__(self, url: str, connections_max: int = 15, *, creates: bool = True) -> None:
        """Take a URL as SQLAlchemy has it; nothing is opened yet. Raises BadParameter.

        connections_max  the most at a time: a further one waits CONNECT_SECONDS for its turn
        creates          whether the first use may create the file of SQLite. A later use never
                         does: a file that is gone was removed or moved, and an empty one would hide
                         that
        """
        self._engine = _engine(url, connections_max)
        # without secrets, for logs and commands
        self.public_url = self._engine.url.set(query={}).render_as_string(hide_password=True)
        self._writing = self._engine.execution_options(xylem_write=True)
        # PostgreSQL's pool tries each connection first
        is_sqlite = self._engine.dialect.name == "sqlite"
        self._path = Path(self._engine.url.database or "").absolute() if is_sqlite else None
        # the connection of the last writer, while it is unused, by the file it was opened for
        self._idle: dict[FileIdentity, Connection] = {}
        self._creates = creates
        self._migrating = threading.Lock()
        self._migrated = False
        # the file that was migrated to this release; None with PostgreSQL
        self.file: FileIdentity = None
        # until this time, by the monotonic clock, the database counts as failing
        self.failing_until = -math.inf

    @classmethod
    def from_settings(cls, settings: Settings, *, creates: bool = True) -> Self:
        """Return the database of the settings, or the one beside the store. Raises BadParameter."""
        return cls(
            settings.database_url or default_url(settings.store),
            settings.database_connections,
            creates=creates,
        )

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection whose reads see one state of the database.

        Raises DatabaseUnavailable and DatabaseUnsupported.
        """
        self._migrate()
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection in a transaction, committed at the end, rolled back on an exception.

        With SQLite there is one such transaction at a time. Raises DatabaseUnavailable and
        DatabaseUnsupported. After an error nothing was changed; but if the connection broke during
        the commit, the whole transaction may have been committed.
        """
        file = self._migrate()
        try:
            with self._errors(), self._begin(file) as connection:
                yield connection
            if self._identity() != file:
                raise self._unavailable(
                    "another file, or none, in its place since the transaction began"
                )
        except DatabaseUnavailable:
            self.failing_until = time.monotonic() + WRITE_FAULT_SECONDS
            raise

    def try_writing(self) -> None:
        """Write to the database, to find out whether that works again; see `failing_until`."""
        with contextlib.suppress(DatabaseUnavailable), self.write() as connection:
            connection.execute(update(SCHEMA_VERSION).values(number=SCHEMA_VERSION.c.number))

    @contextlib.contextmanager
    def _begin(self, file: FileIdentity) -> Iterator[Connection]:
        """Yield a connection in a writing transaction.

        A connection that was kept open costs a third of a new one.
        """
        connection = self._idle.pop(file, None) or self._writing.connect()
        try:
            with connection.begin():
                yield connection
        except BaseException:
            connection.close()
            raise
        if self._path is None or self._idle.setdefault(file, connection) is not connection:
            connection.close()

    def _migrate(self) -> FileIdentity:
        """Migrate the database to the tables of this release; return the identity of its file.

        SQLite goes on with an open file even if another one, or none, stands in its place: what is
        written to it then is lost. So each transaction begins with a look at the path, which costs
        2 us. The connections to the old file are closed, and the new one is migrated.
        """
        with self._migrating:
            file = self._identity()
            if self._path is not None and file is None and not self._creates:
                raise self._unavailable("no file in its place, which was removed or moved")
            if not self._migrated or file != self.file:
                self.close()
                read_only = file is not None and self._path is not None and is_read_only(self._path)
                with (
                    self._errors(),
                    (self._engine if read_only else self._writing).begin() as connection,
                ):
                    migrate(connection)
                self._creates = False
                self.file = file or self._identity()
                self._migrated = True
            return self.file

    def _identity(self) -> FileIdentity:
        if self._path is not None:
            with contextlib.suppress(OSError):
                status = self._path.stat()
                contents = (status.st_size, status.st_mtime_ns) if is_read_only(self._path) else ()
                return status.st_dev, status.st_ino, *contents
        return None

    def close(self) -> None:
        """Close all connections; a later use opens new ones."""
        with contextlib.suppress(KeyError):  # when none is left; other threads take some too
            while True:
                self._idle.popitem()[1].close()
        self._engine.dispose()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the database's errors as DatabaseUnavailable.

        Messages are one line, without statements and passwords.
        """
        try:
            yield
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error) as error:
            cause = getattr(error, "orig", None) or error
            if getattr(cause, "sqlstate", None) in _NOT_THE_SERVER:
                self._engine.dispose()
            raise self._unavailable(" ".join(str(cause).split())[:300]) from error

    def _unavailable(self, reason: str) -> DatabaseUnavailable:
        """Return an error whose reason only the log shows."""
        return DatabaseUnavailable.confidential(
            f"expected a database that answers, {self.public_url}, found: {reason}"
        )


def _engine(url: str, connections_max: int) -> Engine:
    try:
        parsed = _parsed(url)
        backend = parsed.get_backend_name()
        is_postgresql = backend == "postgresql"
        options = {
            name: value for name, value in _OPTIONS[backend].items() if name not in parsed.query
        }
        engine = create_engine(
            parsed,
            connect_args={**options, **_FIXED_OPTIONS[backend]},
            pool_pre_ping=is_postgresql,
            pool_timeout=CONNECT_SECONDS,
            pool_size=min(CONNECTIONS_KEPT, connections_max),
            max_overflow=max(connections_max - CONNECTIONS_KEPT, 0),
        )
        if is_postgresql:
            # imports the driver, which SQLite does not need
            from xylem.base.db.postgresql import connect

            event.listen(engine, "do_connect", connect)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError, TypeError) as error:
        # ValueError and TypeError: an invalid port, host or option; the message may repeat a part
        # of the URL
        reason = (
            error
            if isinstance(error, SQLAlchemyError | ModuleNotFoundError)
            else type(error).__name__
        )
        raise BadParameter(f"{_EXPECTED}, found one that cannot be used: {reason}") from None
    if is_postgresql:
        event.listen(engine, "begin", _begin_postgresql)
    else:
        event.listen(engine, "do_connect", _connect_sqlite)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


_EXPECTED = (
    "database: expected sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST:PORT/NAME "
    "(pip install xylem-serve[postgresql])"
)


def _parsed(url: str) -> URL:
    """Return the parts of a URL. Raises BadParameter, whose message never has parts of a password.

    SQLAlchemy takes the first @ for the end of the password. If the password contains an @, its end
    would be shown as the host or the name of the database.
    """
    scheme, _, location = url.partition("://")
    backend = scheme.partition("+")[0]
    if backend not in ("sqlite", "postgresql"):
        raise BadParameter(f"{_EXPECTED}, found another scheme (postgres:// is one)")
    authority = re.split("[/?]", location, maxsplit=1)[0]
    hosts = authority.rpartition("@")[2]
    if backend == "postgresql" and "," in hosts and ":" in hosts:
        raise BadParameter(
            "database: expected several hosts as "
            "postgresql+psycopg://USER:PASSWORD@/NAME?host=HOST1:5432&"
            "host=HOST2:5432&target_session_attrs=read-write, found them between commas with "
            "their ports"
        )
    parsed = make_url(url)
    if backend == "postgresql" and (
        "@" in location[len(authority) :] or "@" in (parsed.host or "")
    ):
        raise BadParameter(
            "database: expected one @, in front of the host, found another one: in a name or "
            "password @ is "
            "written %40, / is %2F, ? is %3F and : is %3A"
        )
    if backend == "sqlite" and (parsed.database in (None, "", ":memory:") or "uri" in parsed.query):
        raise BadParameter(
            "database: expected a file, sqlite:////DIR/FILE, found none: nothing would be kept"
        )
    return parsed


def is_read_only(file: Path) -> bool:
    """Return whether a SQLite file can only be read.

    SQLite also writes files beside it, so its directory counts too.
    """
    return not (os.access(file.parent, os.W_OK) and os.access(file, os.W_OK))


def _connect_sqlite(_: object, __: object, arguments: tuple[str], options: dict[str, Any]) -> Any:
    """Return a read-only connection to a file that can only be read; None for any other file.

    If it is None, SQLAlchemy connects by itself. Even a reader needs SQLite's file -shm, which it
    cannot make in a read-only directory; `immutable` does without it. If another process has left
    the write-ahead log -wal, that is read too; without one, the file alone has everything.
    """
    file = Path(arguments[0])
    if not file.exists() or not is_read_only(file):
        return None
    log = Path(f"{file}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return sqlite3.connect(
        f"{file.as_uri()}?mode=ro&immutable={int(not has_log)}", uri=True, **options
    )


def _set_up_sqlite(connection: Any, _: object) -> None:
    """Turn off the driver's own transactions, and sync each commit to the disk."""
    connection.isolation_level = None
    _write_ahead(connection)
    for pragma in ("synchronous=FULL", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}").close()


def _write_ahead(connection: Any) -> None:
    """Switch a SQLite file to write-ahead logging, which lasts.

    If several processes switch a new file at once, SQLite refuses all but one, without the wait
    that it has for transactions: so this waits and tries again.
    """
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; one that writes takes SQLite's write lock at once."""
    connection.connection.cursor().execute(
        "BEGIN IMMEDIATE"
        if connection.get_execution_options().get("xylem_write", False)
        else "BEGIN"
    )


def _begin_postgresql(connection: Connection) -> None:
    """Begin a transaction and set its limits, in one message.

    A reading transaction sees one state of the database.
    """
    isolation = (
        ""
        if connection.get_execution_options().get("xylem_write", False)
        else "ISOLATION LEVEL REPEATABLE READ"
    )
    connection.connection.cursor().execute(f"BEGIN {isolation}; {_LIMITS}")


def insert_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that skips rows whose key exists already."""
    insert = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
    return insert(table).on_conflict_do_nothing()


class Compiled:
    """A statement of SQLAlchemy Core, compiled once and run on the driver's cursor. Thread-safe.

    It is for statements that run for every block of feedback: SQLAlchemy takes 40 us to execute a
    statement that SQLite executes in 4, and holds the interpreter's lock meanwhile.

    columns   the columns that an insert or an update sets from the parameters of `run`, besides
              those that the statement sets itself; empty: an insert sets all columns
    """

    def __init__(self, statement: Select[Any] | UpdateBase, columns: tuple[str, ...] = ()) -> None:
        self._statement = statement
        self._columns = list(columns) or None
        self._texts: dict[str, str] = {}

    def run(self, connection: Connection, **parameters: object) -> Any:
        """Run the statement in the connection's transaction; return the driver's cursor.

        The rows of the cursor are tuples. Values are passed as they are: integers, floats, text or
        bytes. Raises the driver's errors, which `Database.read` and `Database.write` convert.
        """
        dialect = connection.dialect
        text = self._texts.get(dialect.name)
        if text is None:
            is_sqlite = dialect.name == "sqlite"
            text = str(
                self._statement.compile(
                    dialect=sqlite.dialect(paramstyle="named") if is_sqlite else dialect,
                    column_keys=self._columns,
                )
            )
            self._texts[dialect.name] = text
        return connection.connection.cursor().execute(text, parameters)
