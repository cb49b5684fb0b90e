"""The first admin key: made where there never was one, so that a new service is neither open nor shut."""

from __future__ import annotations

import sys

from service.access.keys import add_key, has_admin_key
from service.access.scopes import AccessScope
from service.db.engine import Database
from service.db.tables import ACCESS_KEYS

FIRST_KEY_NAME = "first admin key"


def ensure_admin_key(database: Database) -> str | None:
    """Make an admin key where the database never had one, and return its text; else None.

    Of several processes that begin at once one makes it. One that was revoked is not made up for: `xylem keys
    create --scope admin` makes another, at the machine. Raises DatabaseUnavailable.
    """
    with database.read() as connection:
        if has_admin_key(connection):
            return None
    with database.write() as connection:
        if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
            connection.exec_driver_sql(f"LOCK TABLE {ACCESS_KEYS.name} IN SHARE ROW EXCLUSIVE MODE")
        if has_admin_key(connection):
            return None
        return add_key(connection, FIRST_KEY_NAME, frozenset({AccessScope.ADMIN}), None).text


def show_admin_key(text: str) -> None:
    """Write a new admin key to standard error, as a line for a person; it goes to no log of ours."""
    sys.stderr.write(f"xylem: no admin key was there, so one was made. It is shown this once: {text}\n")
    sys.stderr.flush()
