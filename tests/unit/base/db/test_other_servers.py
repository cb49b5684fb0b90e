"""PostgreSQL as others run it: behind poolers, with schemas and
encodings, servers that change places.
"""

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, make_url, text
from tests.conftest import together
from tests.helpers.databases import execute, needs_pgbouncer, pooled
from tests.helpers.feedback_helpers import Replica, token_event
from tests.helpers.jobs_helpers import TRAINING, Desk, settings_for
from tests.helpers.servers import wait_for
from tests.helpers.small_models import small_draft

from xylem.admin.jobs.schedules import Schedules
from xylem.base.access.audit import AuditLog
from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem.base.access.ring import ANYBODY
from xylem.base.db.engine import IDLE_SECONDS, STATEMENT_SECONDS, Database
from xylem.base.errors import BadParameter, DatabaseUnavailable, DatabaseUnsupported
from xylem.thresholds.live.events import Result
from xylem_store.store import Store

on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture(params=["session", "transaction", "transaction, options ignored"])
def pooler(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    """The URL of a new database behind a pgbouncer of few connections, that others share."""
    mode, _, ignored = request.param.partition(", ")
    settings = {"ignore_startup_parameters": "options"} if ignored else {}
    if mode == "transaction":  # fewer than clients: they take turns on each
        settings["default_pool_size"] = "2"
    with pooled(database_url, mode, **settings) as url:
        yield url


@needs_pgbouncer
@on_postgresql
def test_replicas_share_a_pooler(pooler: str, database_url: str) -> None:
    """Several clients at once, more than the pooler has connections: each event counts once."""
    replicas = [Replica(pooler) for _ in range(4)]
    rng = random.Random(1)
    names = [f"e{i}" for i in range(200)]

    def send(replica: Replica) -> Callable[[], list[Result]]:
        mixed = rng.sample(names, len(names))
        return lambda: [replica.send(token_event(name, [1], [2]))[0] for name in mixed]

    outcomes = [outcome for answers in together(*map(send, replicas)) for outcome in answers]
    assert sorted(outcomes) == ["applied"] * 200 + ["duplicate"] * 600
    for replica in replicas:
        replica.catch_up()
        assert replica.bits() == replicas[0].bits()
        replica.close()
    with closing(Database(database_url)) as database, database.read() as connection:
        left = (
            "SELECT setting FROM pg_settings WHERE name = 'statement_timeout' AND source "
            "= 'session'"
        )
        assert connection.execute(text(left)).all() in ([], [(str(1000 * STATEMENT_SECONDS),)])


@needs_pgbouncer
@on_postgresql
def test_every_use_goes_through_a_pooler(pooler: str, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, database_url=pooler)
    Store(settings.store).publish("m", small_draft(1, features={"kind": "named"}))
    desk = Desk(settings, pooler)
    schedules = Schedules(desk.database, settings)
    keys, audit = AccessKeys(desk.database), AuditLog(desk.database)
    for i in range(12):  # psycopg prepares what it has run five times, where it may
        made = keys.create(f"key {i}", [AccessScope.PREDICT])
        assert keys.revoke(made.key.id).revoked_at is not None
        audit.append(ANYBODY, "tried", str(i))
        assert audit.page()[0].target == str(i)
        assert (
            desk.jobs.submit("training", {**TRAINING, "seed": i}, secrets.token_hex(8)).state
            == "queued"
        )
        schedule = schedules.create_schedule("training", TRAINING, cron="0 3 * * *")
        assert schedules.run_due() == 0
        assert schedules.delete_schedule(schedule["id"])["id"] == schedule["id"]
    assert len(desk.jobs.list()) == 12
    desk.database.close()


@on_postgresql
def test_each_transaction_has_limits_that_no_session_inherits(database_url: str) -> None:
    limits = {
        "statement_timeout": f"{STATEMENT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS // 60}min",
    }
    with closing(Database(database_url)) as database:
        for begin, isolation in (
            (database.read, "repeatable read"),
            (database.write, "read committed"),
        ):
            for _ in range(2):  # on a new connection, and on one that was used before
                with begin() as connection:
                    for name, limit in {**limits, "transaction_isolation": isolation}.items():
                        assert connection.execute(text(f"SHOW {name}")).scalar_one() == limit
        raw: Any = database._engine.raw_connection()
        with closing(raw), raw.cursor() as cursor:
            assert cursor.execute("SHOW statement_timeout").fetchone() == ("0",)


@on_postgresql
def test_what_the_url_says_of_the_connection_holds(database_url: str) -> None:
    """Two installations in one database, each in a schema of its own, share nothing."""
    for schema in ("mine", "yours"):
        execute(database_url, f"CREATE SCHEMA {schema}")
    ids = []
    for schema in ("mine", "yours"):
        options = {
            "options": f"-csearch_path={schema}",
            "application_name": schema,
            "keepalives_idle": "77",
        }
        url = (
            make_url(database_url).update_query_dict(options).render_as_string(hide_password=False)
        )
        with closing(Database(url)) as database:
            ids.append(AccessKeys(database).create("a", [AccessScope.PREDICT]).key.id)
            assert [key.id for key in AccessKeys(database).list()] == ids[-1:]
            with database.read() as connection:
                assert connection.execute(text("SHOW application_name")).scalar_one() == schema
                tables = "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'access_keys'"
                assert schema in connection.execute(text(tables)).scalars().all()
                driver: Any = connection.connection.driver_connection
                assert driver.info.get_parameters()["keepalives_idle"] == "77"
    with closing(Database(database_url)) as database, database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM public.access_keys")).scalar_one() == 0


def _demote(connection: Connection, _: str) -> None:
    connection.exec_driver_sql("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")


def _stop(_: Connection, url: str) -> None:
    mine = "datname = current_database() AND pid <> pg_backend_pid()"
    execute(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")


@on_postgresql
@pytest.mark.parametrize("fail_over", [_demote, _stop], ids=["read-only", "stopped"])
def test_a_failover_costs_one_answer(
    database_url: str, fail_over: Callable[[Connection, str], None]
) -> None:
    """A session that became read-only, as at a server that another one replaced, is
    not used again.
    """
    replica = Replica(database_url)
    assert replica.send(token_event("a", [1], [2])) == ["applied"]
    wait_for(lambda: replica.database._engine.pool.checkedout() == 0)  # the writer gives its back
    waiting = [replica.database.read() for _ in range(3)]  # so that the pool has several
    connections = [each.__enter__() for each in waiting]
    for connection in connections:
        fail_over(connection, database_url)
    for each in waiting:
        try:
            each.__exit__(None, None, None)
        except DatabaseUnavailable:  # it was stopped before its end
            assert fail_over is _stop
    outcomes: list[str] = []
    for i in range(6):
        try:
            outcomes += replica.send(token_event(f"b{i}", [1], [2]))
        except DatabaseUnavailable:
            outcomes.append("refused")
    assert outcomes[1:] == ["applied"] * 5
    assert outcomes[0] == ("refused" if fail_over is _demote else "applied")
    replica.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_database_that_cannot_have_every_text_is_refused(postgresql: str, encoding: str) -> None:
    name = f"of_{encoding.lower()}"
    execute(
        postgresql, f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
    )
    url = make_url(postgresql).set(database=name).render_as_string(hide_password=False)
    with closing(Database(url)) as database:
        for begin in (database.read, database.write):
            expected = (
                f"expected a database of encoding UTF8, found {encoding}: create it "
                "with ENCODING 'UTF8'"
            )
            with pytest.raises(DatabaseUnsupported, match=expected), begin():
                pass


@on_postgresql
def test_the_encoding_of_the_environment_changes_nothing(
    database_url: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with closing(Database(database_url)) as database:
        AuditLog(database).append(ANYBODY, "tried", "żółw 漢字")
        assert AuditLog(database).page()[0].target == "żółw 漢字"


PASSWORDS = [
    "p@Hidden",
    "p@s:Hidden",
    "p@Hid/Hidden",
    "p@Hid?Hidden",
    "p@Hid?Hidden=1",
    "Hid/p@Hidden",
]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize(
    "form", ["me:{}@host/x", "me:{}@host:5432/x", "host:5432/x?user=me&password={}"]
)
def test_no_part_of_a_password_is_shown_as_something_else(form: str, password: str) -> None:
    """What is not written as a URL asks for is refused, or is nowhere but in the password."""
    try:
        database = Database(f"postgresql+psycopg://{form.format(password)}")
    except BadParameter as error:
        assert "Hid" not in str(error)
        assert "postgresql+psycopg://USER:PASSWORD@HOST" in str(error) or "%40" in str(error)
    else:
        assert "Hid" not in database.public_url


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("postgres://me:Hidden@host/x", "postgresql+psycopg://"),
        ("postgresql+psycopg://me:Hidden@a:5432,b:5432/x", "?host=HOST1:5432&host=HOST2:5432"),
        ("postgresql+psycopg://me:Hidden@a,b:5432/x", "?host=HOST1:5432&host=HOST2:5432"),
        (
            "postgresql+psycopg://me:Hidden@host:port/x",
            "postgresql+psycopg://USER:PASSWORD@HOST:PORT/NAME",
        ),
        ("me:Hidden@host/x", "postgresql+psycopg://USER:PASSWORD@HOST:PORT/NAME"),
        ("sqlite:///file::memory:?cache=shared&uri=true", "sqlite:////DIR/FILE"),
    ],
)
def test_a_bad_url_is_refused_with_the_form_that_works(url: str, form: str) -> None:
    with pytest.raises(BadParameter) as caught:
        Database(url)
    assert form in str(caught.value)
    assert "Hidden" not in str(caught.value)


@needs_pgbouncer
@on_postgresql
def test_of_several_hosts_the_one_that_answers_is_used(database_url: str) -> None:
    """The form that the refusal names; the first server is not there."""
    with pooled(database_url, "session") as url:
        parsed = make_url(url)
        hosts = f"host=127.0.0.1:1&host=127.0.0.1:{parsed.port}"
        both = f"postgresql+psycopg://{parsed.username}@/{parsed.database}?{hosts}"
        with closing(Database(both)) as database, database.read() as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1
