"""Columns that are only added: a database of an earlier build gets them, and its replicas go on."""

import contextlib

from sqlalchemy import text

from xylem.base.access.key_text import AccessScope, digest_of
from xylem.base.access.keys import AccessKeys
from xylem.base.access.usage import KeyUsage
from xylem.base.db.engine import Database
from xylem.base.db.tables import ADDED

EARLIER = {
    "id": "aaaaaaaaaaaa",
    "name": "earlier",
    "scopes": "predict",
    "hash": digest_of("x"),
    "created_at": 1.0,
}
"""What an earlier build writes of a key."""


def insert_earlier(database: Database, **changes: str) -> None:
    names = ", ".join(EARLIER)
    values = ", ".join(f":{name}" for name in EARLIER)
    with database.write() as connection:
        statement = text(f"INSERT INTO access_keys ({names}) VALUES ({values})")
        connection.execute(statement, EARLIER | changes)


def test_a_database_of_an_earlier_build_is_used_by_both(database_url: str) -> None:
    with contextlib.closing(Database(database_url)) as database:
        with database.write() as connection:
            for column in ADDED:
                table = column.table.name
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column.name}"))
            connection.execute(text("DROP TABLE key_usage"))
        insert_earlier(database)
    with contextlib.closing(Database(database_url)) as database:
        keys = AccessKeys(database)
        (key,) = keys.list()
        assert (key.name, key.models, key.no_rows, key.data_prefix) == ("earlier", None, (), None)
        keys.create("shop", [AccessScope.PREDICT], models=("a",))
        usage = KeyUsage(database)
        usage.add("k", "m", n_rows=1, n_characters=1)
        usage.close()
        assert [line["rows"] for line in usage.read()] == [1]
        insert_earlier(database, id="bbbbbbbbbbbb")  # beside this one
        assert len(keys.list()) == 3
        with database.read() as connection:  # what the earlier build reads
            names = ", ".join([*EARLIER, "expires_at", "revoked_at", "last_used_at"])
            rows = connection.execute(text(f"SELECT {names} FROM access_keys")).all()
        assert {row.scopes for row in rows} == {"predict", "models/predict"}
    with contextlib.closing(Database(database_url)) as database:  # nothing is added twice
        assert len(AccessKeys(database).list()) == 3
