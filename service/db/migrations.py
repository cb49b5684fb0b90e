"""Bringing a database to the schema of this release: numbered steps, each run once, in order.

A table `schema_version` has the number of the last step. No library for it (alembic): a service that owns all
of its tables and only goes forward needs a list, a lock and a number: one tool less to install and to learn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from service.db import tables
from service.errors import DatabaseUnsupported

_LOCK = 0x58796C656D
"""PostgreSQL's advisory lock under which one process migrates while the others wait: "Xylem"."""

SCHEMA_VERSION = Table(
    "schema_version", MetaData(), Column("number", Integer, primary_key=True, autoincrement=False)
)


def _make(*made: Table) -> Callable[[Connection], None]:
    """Return the step that makes tables."""
    return partial(tables.METADATA.create_all, tables=made)


def _no_index_of_days(connection: Connection) -> None:
    """Drop the index by day that events had: it doubled what an event writes."""
    connection.execute(text("DROP INDEX IF EXISTS ix_feedback_events_day"))


def _traces_of_jobs(connection: Connection) -> None:
    """Let a job know the trace of the request that made it. No row is written anew."""
    if "traceparent" not in {column["name"] for column in inspect(connection).get_columns("jobs")}:
        connection.execute(text("ALTER TABLE jobs ADD COLUMN traceparent VARCHAR(64)"))


STEPS: tuple[Callable[[Connection], None], ...] = (
    _make(tables.VERSIONS, tables.LOG, tables.CHECKPOINTS, tables.EVENTS, tables.SECRETS),
    _make(tables.SHADOWS),
    _no_index_of_days,
    _make(tables.ACCESS_KEYS, tables.AUDIT_LOG),
    _make(tables.JOBS),
    _traces_of_jobs,
    _make(tables.JOB_TOTALS),
)
"""Step i makes schema i + 1 of schema i. A step that was released leads to the same schema ever after."""


def migrate(connection: Connection) -> None:
    """Run the steps that a database lacks, in the caller's transaction, which on SQLite holds the write lock.

    Of several processes one migrates while the others wait. Raises DatabaseUnsupported for a newer schema.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if not inspect(connection).has_table(SCHEMA_VERSION.name):
        SCHEMA_VERSION.create(connection)
        connection.execute(insert(SCHEMA_VERSION).values(number=0))
    number = connection.execute(select(func.max(SCHEMA_VERSION.c.number))).scalar_one() or 0
    if number > len(STEPS):
        raise DatabaseUnsupported(
            f"expected a database of schema {len(STEPS)} or older, found {number}: a newer release made it"
        )
    for step in STEPS[number:]:
        step(connection)
    if number < len(STEPS):
        connection.execute(update(SCHEMA_VERSION).values(number=len(STEPS)))
