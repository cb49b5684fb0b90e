"""The tables, and the numbered steps that make them; each runs once in a database, in order.

The table `schema_version` has the number of the last step. This package owns all tables, and steps
only go forward, so no library such as alembic is needed.

threshold_versions     a row for each version of a model that has thresholds. `epoch` numbers the
                       changes of its thresholds as they were committed; a change locks the row.
                       Predictions made under an epoch below `base_epoch` say nothing about the
                       present thresholds. `digest` is that of the version's manifest: a version of
                       another store may have the same name, and other labels. NULL in rows of older
                       releases: the first version that is opened sets it
threshold_log          a row for each epoch: what a block of feedback added (`codec`), or
                       that the state was replaced by the checkpoint of that epoch. `sums` is what
                       it added to the sums of instance-F; NULL: nothing
threshold_checkpoints  the whole state at some epochs. `objective` is what its thresholds are for;
                       NULL: an older release wrote it, which knows macro-F only
threshold_shadows      at most one row for each version: the candidate that is scored beside the
                       thresholds in force since epoch `since`. State and scores are those of
                       `epoch`; later changes are in the log
feedback_events        a row for each event that was counted, by a hash of its model and event_id
feedback_rows          instances of such events with their true labels, if they are stored: a line
                       of JSON each, numbered as they came (`xylem.thresholds.store.feedback_rows`).
                       `key` is the name of the sender's key. NULL: the sender had none, or an older
                       release wrote the row
secrets                keys that replicas share
access_keys            a row for each key of the service (`xylem.base.access`): never the key, but
                       its hash
audit_log              a row for each action of an admin (`xylem.base.access.audit`)
jobs                   a row for each job, those that have ended too (`xylem.admin.jobs`). Times are
                       seconds since 1970; `claim` is a secret of the worker that has the job until
                       `lease_until`; `traceparent` is the span of the request that made it
schedules              a row for each schedule of jobs (`xylem.admin.jobs.schedules`)
recipes                a row for each model that learns by a recipe: a JSON object
                       (`xylem.workflows.recipe`)
concepts               a row for each concept that an admin has added to the vocabulary of a model
                       with a recipe: a JSON object (`xylem.admin.jobs.model_learning`)
key_usage              for each hour since 1970, key and model what the key sent to the model
job_totals             for each kind of jobs and each state in which they end: the number of jobs
                       and their total run time. These sums outlive the jobs
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import SchemaItem

from xylem.base.db.names import EVENT_KEY_BYTES
from xylem.base.errors import DatabaseUnsupported

METADATA = MetaData()


def _table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    """Return a table of the database.

    parts    its columns, constraints and indexes
    options  SQLAlchemy's options for one kind of database, such as `sqlite_autoincrement`
    """
    return Table(name, METADATA, *parts, **options)


VERSIONS = _table(
    "threshold_versions",
    Column("id", Integer, primary_key=True),
    Column("model", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("base_epoch", BigInteger, nullable=False),
    Column("n_events", BigInteger, nullable=False),
    Column("digest", String(64)),
    UniqueConstraint("model", "version"),
)

LOG = _table(
    "threshold_log",
    Column("version_id", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("sums", LargeBinary),
    PrimaryKeyConstraint("version_id", "epoch"),
)

CHECKPOINTS = _table(
    "threshold_checkpoints",
    Column("version_id", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("objective", String(16)),
    PrimaryKeyConstraint("version_id", "epoch"),
)

SHADOWS = _table(
    "threshold_shadows",
    Column("version_id", Integer, primary_key=True, autoincrement=False),
    Column("since", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("n_events", BigInteger, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("scores", LargeBinary, nullable=False),
)

EVENTS = _table(
    "feedback_events",
    Column("event_key", LargeBinary(EVENT_KEY_BYTES), primary_key=True),
    Column("day", Integer, nullable=False),
    sqlite_with_rowid=False,
)

FEEDBACK_ROWS = _table(
    "feedback_rows",
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("model", String(64), nullable=False),
    Column("event_key", LargeBinary(EVENT_KEY_BYTES), nullable=False, unique=True),
    Column("at", Float, nullable=False),
    Column("line", LargeBinary, nullable=False),
    Column("key", String(64)),
    Index("ix_feedback_rows_model", "model", "number"),
    sqlite_autoincrement=True,
)

SECRETS = _table(
    "secrets",
    Column("name", String(32), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

ACCESS_KEYS = _table(
    "access_keys",
    Column("id", String(16), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("scopes", String(128), nullable=False),
    Column("hash", LargeBinary(32), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("last_used_at", Float),
    Column("no_rows", Text),
    Column("models", Text),
    Column("data_prefix", Text),
    Column("requests_per_second", Float),
    Column("rows_per_second", Float),
    Column("in_flight", Integer),
)

KEY_USAGE = _table(
    "key_usage",
    Column("hour", Integer, nullable=False),
    Column("key_id", String(16), nullable=False),
    Column("model", String(64), nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("characters", BigInteger, nullable=False),
    Column("search_seconds", Float, nullable=False),
    PrimaryKeyConstraint("hour", "key_id", "model"),
)

AUDIT_LOG = _table(
    "audit_log",
    Column("id", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("key_id", String(16), nullable=False),
    Column("who", String(128), nullable=False),
    Column("action", String(64), nullable=False),
    Column("target", String(256), nullable=False),
    Column("outcome", String(64), nullable=False),
    Column("request_id", String(128), nullable=False),
    sqlite_autoincrement=True,
)

JOBS = _table(
    "jobs",
    Column("number", Integer, primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("kind", String(32), nullable=False),
    Column("model", String(64), nullable=False),
    Column("version", Integer),
    Column("state", String(16), nullable=False),
    Column("request", Text, nullable=False),
    Column("request_sha256", String(64), nullable=False),
    Column("idempotency_key", String(255), unique=True),
    Column("progress", Text),
    Column("result", Text),
    Column("promotion", Text),
    Column("error", Text),
    Column("error_code", String(64)),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("attempts", Integer, nullable=False),
    Column("worker", String(128)),
    Column("claim", String(32)),
    Column("lease_until", Float),
    Column("cancel_asked", Boolean, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("traceparent", String(64)),
    Index("ix_jobs_state", "state", "number"),
)

SCHEDULES = _table(
    "schedules",
    Column("id", String(32), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("model", String(64), nullable=False),
    Column("request", Text, nullable=False),
    Column("cron", String(128)),
    Column("when_rows", Integer),
    Column("next_at", Float),
    Column("rows_after", BigInteger, nullable=False),
    Column("runs", Integer, nullable=False),
    Column("last_job", String(32)),
    Column("created", Float, nullable=False),
)

RECIPES = _table(
    "recipes",
    Column("model", String(64), primary_key=True),
    Column("recipe", Text, nullable=False),
    Column("changed", Float, nullable=False),
)

CONCEPTS = _table(
    "concepts",
    Column("model", String(64), nullable=False),
    Column("key", Text, nullable=False),
    Column("concept", Text, nullable=False),
    Column("at", Float, nullable=False),
    PrimaryKeyConstraint("model", "key"),
)

JOB_TOTALS = _table(
    "job_totals",
    Column("kind", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    PrimaryKeyConstraint("kind", "state"),
)


# PostgreSQL's advisory lock that one process holds while it migrates and others wait: "Xylem".
_LOCK = 0x58796C656D

SCHEMA_VERSION = Table(
    "schema_version", MetaData(), Column("number", Integer, primary_key=True, autoincrement=False)
)


# Columns that a database of this schema may lack.
#
# They may be NULL, and older releases ignore them. A step instead would stop older releases,
# which keep running beside this one.
ADDED = (
    VERSIONS.c.digest,
    LOG.c.sums,
    CHECKPOINTS.c.objective,
    FEEDBACK_ROWS.c.key,
    ACCESS_KEYS.c.no_rows,
    ACCESS_KEYS.c.models,
    ACCESS_KEYS.c.data_prefix,
    ACCESS_KEYS.c.requests_per_second,
    ACCESS_KEYS.c.rows_per_second,
    ACCESS_KEYS.c.in_flight,
)

# The steps: step i turns schema i into schema i + 1.
#
# A released step must lead to the same schema for ever.
STEPS: tuple[Callable[[Connection], None], ...] = (METADATA.create_all,)


def migrate(connection: Connection) -> None:
    """Run the steps that a database lacks, in the caller's transaction.

    With SQLite that transaction holds the write lock. Of several processes one migrates while the
    others wait. Raises DatabaseUnsupported for a newer schema, and for a database whose encoding
    cannot hold every text.
    """
    if connection.dialect.name == "postgresql":
        encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
        if encoding != "UTF8":
            raise DatabaseUnsupported(
                f"expected a database of encoding UTF8, found {encoding}: create it with "
                "ENCODING 'UTF8'"
            )
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    SCHEMA_VERSION.create(connection, checkfirst=True)
    number = connection.execute(select(func.max(SCHEMA_VERSION.c.number))).scalar_one() or 0
    if number > len(STEPS):
        raise DatabaseUnsupported(
            f"expected a database of schema {len(STEPS)} or older, found {number}: a newer "
            "release made it"
        )
    for step in STEPS[number:]:
        step(connection)
    if number < len(STEPS):
        connection.execute(delete(SCHEMA_VERSION))
        connection.execute(insert(SCHEMA_VERSION).values(number=len(STEPS)))
    for table in (KEY_USAGE, RECIPES, CONCEPTS):  # which a database of this schema may lack
        table.create(connection, checkfirst=True)
    for column in ADDED:
        name = column.table.name
        if column.name not in {
            present_column["name"] for present_column in inspect(connection).get_columns(name)
        }:
            kind = column.type.compile(connection.dialect)
            connection.execute(text(f"ALTER TABLE {name} ADD COLUMN {column.name} {kind}"))
