"""The database: several processes begin at once, newer schemas, URLs that cannot be used."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import text

from service.db.engine import Database
from service.errors import BadParameter, DatabaseUnavailable, DatabaseUnsupported
from service.thresholds.state import all_heads, shared_secret
from tests.databases import database_url, postgresql  # noqa: F401


def test_several_begin_at_once(database_url: str) -> None:  # noqa: F811
    databases = [Database(database_url) for _ in range(6)]
    secrets: list[bytes] = []
    faults: list[Exception] = []
    gate = threading.Barrier(len(databases))

    def begin(database: Database) -> None:
        gate.wait()
        try:
            with database.write() as connection:
                secrets.append(shared_secret(connection, "token-key", 32))
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=begin, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(secrets) == 6
    assert len(set(secrets)) == 1
    with databases[0].read() as connection:
        assert all_heads(connection) == []
        assert connection.execute(text("SELECT count(*) FROM schema_version")).scalar_one() == 1
    for database in databases:
        database.close()


def test_a_newer_schema_is_refused(database_url: str) -> None:  # noqa: F811
    database = Database(database_url)
    with database.write() as connection:
        connection.execute(text("UPDATE schema_version SET number = 99"))
    database.close()
    newer = Database(database_url)
    with pytest.raises(DatabaseUnsupported, match="99"), newer.read():
        pass
    newer.close()


def test_what_raises_is_rolled_back(database_url: str) -> None:  # noqa: F811
    database = Database(database_url)
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        shared_secret(connection, "other", 8)
        _ = 1 // 0
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM secrets")).scalar_one() == 0
    database.close()


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "postgresql+nodriver://x/y", "sqlite+x://"])
def test_urls_that_cannot_be_used(url: str) -> None:
    with pytest.raises(BadParameter, match="database"):
        Database(url)


def test_a_server_that_is_not_there() -> None:
    database = Database("postgresql+psycopg://nobody:very-secret@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable) as caught, database.read():
        pass
    assert "very-secret" not in str(caught.value)
    database.close()
