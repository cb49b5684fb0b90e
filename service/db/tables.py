"""The tables, as the newest step of `service.db.migrations` leaves them.

threshold_versions     a row for each version of a model that has thresholds. `epoch` numbers the changes of
                       its thresholds as they were committed; who changes them locks the row. Predictions
                       made under an epoch below `base_epoch` say nothing about the thresholds of now
threshold_log          a row for each epoch: what a block of feedback added (`codec`), or
                       that the state was replaced by the checkpoint of that epoch
threshold_checkpoints  the whole state at some epochs
threshold_shadows      at most one row for each version: the candidate that is scored beside the thresholds in
                       force since epoch `since`. State and scores are those of `epoch`; the log has the rest
feedback_events        a row for each event that was counted, by a hash of its model and event_id
secrets                keys that replicas share
access_keys            a row for each key of the service (`service.access.keys`): never the key, but its hash
audit_log              a row for each action of an admin (`service.access.audit`)
jobs                   a row for each job, those that have ended too: see service/jobs. Times are seconds
                       since 1970; `claim` is a secret of the worker that has the job until `lease_until`;
                       `traceparent` is the span of the request that made it
job_totals             for each kind of jobs and each state in which they end, how many have and how long they
                       ran: sums that outlive the jobs
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
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
)

EVENT_KEY_BYTES = 16

METADATA = MetaData()

VERSIONS = Table(
    "threshold_versions",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("model", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("base_epoch", BigInteger, nullable=False),
    Column("n_events", BigInteger, nullable=False),
    UniqueConstraint("model", "version"),
)

LOG = Table(
    "threshold_log",
    METADATA,
    Column("version_id", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("version_id", "epoch"),
)

CHECKPOINTS = Table(
    "threshold_checkpoints",
    METADATA,
    Column("version_id", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("state", LargeBinary, nullable=False),
    PrimaryKeyConstraint("version_id", "epoch"),
)

SHADOWS = Table(
    "threshold_shadows",
    METADATA,
    Column("version_id", Integer, primary_key=True, autoincrement=False),
    Column("since", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("n_events", BigInteger, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("scores", LargeBinary, nullable=False),
)

EVENTS = Table(
    "feedback_events",
    METADATA,
    Column("event_key", LargeBinary(EVENT_KEY_BYTES), primary_key=True),
    Column("day", Integer, nullable=False),
    sqlite_with_rowid=False,
)

SECRETS = Table(
    "secrets",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

ACCESS_KEYS = Table(
    "access_keys",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("scopes", String(128), nullable=False),
    Column("hash", LargeBinary(32), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("last_used_at", Float),
)

AUDIT_LOG = Table(
    "audit_log",
    METADATA,
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

JOBS = Table(
    "jobs",
    METADATA,
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

JOB_TOTALS = Table(
    "job_totals",
    METADATA,
    Column("kind", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    PrimaryKeyConstraint("kind", "state"),
)
