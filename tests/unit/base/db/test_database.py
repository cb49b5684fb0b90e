"""The database: several processes begin at once, newer schemas, URLs that cannot be used."""

import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from functools import partial

import pytest
from sqlalchemy import Connection, inspect, make_url, text
from tests.conftest import together
from tests.helpers.databases import forward, socket_path
from tests.helpers.feedback_helpers import Replica, token_event

from xylem.base.db import clock, postgresql as bounded, tables
from xylem.base.db.engine import Database
from xylem.base.errors import BadParameter, DatabaseUnavailable, DatabaseUnsupported
from xylem.thresholds.live.feedback import FORGET_EVENTS
from xylem.thresholds.store.counted_events import add_events, forget_events
from xylem.thresholds.store.state import all_heads, lock_head, shared_secret


def test_several_begin_at_once(database_url: str) -> None:
    def begin() -> bytes:
        with closing(Database(database_url)) as database, database.write() as connection:
            return shared_secret(connection, "token-key", 32)

    assert len(set(together(*[begin] * 6))) == 1
    with closing(Database(database_url)) as database, database.read() as connection:
        assert all_heads(connection) == []
        assert connection.execute(text("SELECT count(*) FROM schema_version")).scalar_one() == 1


def test_a_database_gets_the_steps_that_it_lacks(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = os.urandom(16)
    with closing(Database(database_url)) as database, database.write() as connection:
        add_events(connection, [key], 7)

    def add_index(connection: Connection) -> None:
        connection.execute(text("CREATE INDEX ix_feedback_events_day ON feedback_events (day)"))

    monkeypatch.setattr(tables, "STEPS", (*tables.STEPS, add_index))
    for _ in range(2):  # the step is run once
        with closing(Database(database_url)) as newer, newer.write() as connection:
            assert len(inspect(connection).get_indexes("feedback_events")) == 1
            assert add_events(connection, [key], 8) == set()


def test_events_are_remembered_once(database: Database) -> None:
    rng = random.Random(3)
    pool = [rng.randbytes(16) for _ in range(200)]
    known: set[bytes] = set()
    for _ in range(30):
        some = rng.sample(pool, rng.randint(0, 12))
        with database.write() as connection:
            assert add_events(connection, some, 7) == set(some) - known
        known |= set(some)
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        assert add_events(connection, pool, 7) == set(pool) - known
        _ = 1 // 0
    with database.write() as connection:
        assert add_events(connection, pool, 7) == set(pool) - known
        assert add_events(connection, pool, 7) == set()


def test_old_events_are_forgotten_in_turn(database: Database) -> None:
    days = {os.urandom(16): day for day in (1, 2, 3, 4) for _ in range(50)}
    with database.write() as connection:
        for day in (1, 2, 3, 4):
            add_events(connection, [key for key, of in days.items() if of == day], day)
    after, counts = b"", []
    while not counts or after:
        with database.write() as connection:
            n, after = forget_events(connection, 3, after, 30)
        counts.append(n)
    assert (len(counts), sum(counts)) == (7, 100)
    assert max(counts) <= 30
    with database.write() as connection:
        assert add_events(connection, list(days), 9) == {
            key for key, day in days.items() if day < 3
        }
        assert forget_events(connection, 3, b"", 1000) == (0, b"")


def test_a_newer_schema_is_refused(database: Database, database_url: str) -> None:
    with database.write() as connection:
        connection.execute(text("UPDATE schema_version SET number = 99"))
    newer = Database(database_url)
    with closing(newer), pytest.raises(DatabaseUnsupported, match="99"), newer.read():
        pass


def test_a_reader_sees_one_state(database: Database, database_url: str) -> None:
    with closing(Database(database_url)) as other, database.read() as connection:
        assert all_heads(connection) == []
        with other.write() as writing:
            lock_head(writing, "m", 1)
        assert all_heads(connection) == []
    with database.read() as connection:
        assert [head.model for head in all_heads(connection)] == ["m"]


def test_what_the_driver_raises_is_said_to_be_the_database(database: Database) -> None:
    """Statements that go past SQLAlchemy's execution fail as all do, and what was
    done is undone.
    """
    with database.write() as connection:
        connection.execute(text("ALTER TABLE threshold_versions RENAME TO elsewhere"))
    with (
        pytest.raises(DatabaseUnavailable, match="threshold_versions"),
        database.write() as connection,
    ):
        add_events(connection, [b"k" * 16], 1)
        lock_head(connection, "m", 1)
    with database.write() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO threshold_versions"))
        assert lock_head(connection, "m", 1).epoch == 0
        assert add_events(connection, [b"k" * 16], 1) == {b"k" * 16}


def one_of(database: Database) -> int:
    """Return 1, if the database answers."""
    with database.read() as connection:
        return connection.execute(text("SELECT 1")).scalar_one()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("most", [2, 7])
def test_a_process_has_so_many_connections_and_no_more(database_url: str, most: int) -> None:
    watching = Database(database_url)
    before, release = threading.Barrier(most + 1, timeout=60), threading.Event()

    def connections() -> int:
        with watching.read() as connection:
            mine = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            return connection.execute(mine).scalar_one()

    def hold(database: Database) -> None:
        with database.read() as connection:
            connection.execute(text("SELECT 1"))
            before.wait()
            release.wait()

    assert connections() == 1  # which migrates, too
    with (
        closing(watching),
        closing(Database(database_url, most)) as database,
        ThreadPoolExecutor(9) as pool,
    ):
        holders = [pool.submit(hold, database) for _ in range(most)]
        before.wait()
        assert connections() == most + 1
        waiting = pool.submit(one_of, database)
        assert not wait([waiting], timeout=1).done
        assert connections() == most + 1
        release.set()
        assert waiting.result() == 1
        assert [holder.result() for holder in holders] == [None] * most


def test_a_connection_that_the_server_ends_is_replaced(postgresql: str) -> None:
    with closing(Database(postgresql)) as database, closing(Database(postgresql)) as other:
        with pytest.raises(DatabaseUnavailable), database.write() as connection:
            number = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            with other.write() as ending:
                ending.execute(text("SELECT pg_terminate_backend(:number)"), {"number": number})
            for _ in range(2000):  # until it has
                all_heads(connection)
                time.sleep(0.05)
        with database.read() as connection:
            assert all_heads(connection) == []


def test_versions_that_take_the_same_events_do_not_wait(database_url: str) -> None:
    """An event counts once for a model: what two of its versions are sent at once,
    one of them has.
    """
    keys = [os.urandom(16) for _ in range(4000)]
    gate = threading.Barrier(2, timeout=60)

    def add(step: int) -> int:
        """Return how many were new."""
        n = 0
        with closing(Database(database_url)) as database:
            for first in range(0, len(keys), 1000):
                gate.wait()
                with database.write() as connection:
                    n += len(add_events(connection, keys[first : first + 1000][::step], 1))
        return n

    assert sum(together(partial(add, 1), partial(add, -1))) == len(keys)


OTHERS = ["nonsense", "mysql://x/y", "postgresql+nodriver://x/y", "sqlite+x://"]
IN_MEMORY = ["sqlite://", "sqlite:///:memory:"]
BROKEN = [f"postgresql+psycopg://me:hidden@{host}/x" for host in ("[::1", "host:port")]


@pytest.mark.parametrize("url", OTHERS + IN_MEMORY + BROKEN)
def test_urls_that_cannot_be_used(url: str) -> None:
    with pytest.raises(BadParameter, match="database") as caught:
        Database(url)
    assert "hidden" not in str(caught.value)


def test_a_server_that_is_not_there() -> None:
    database = Database("postgresql+psycopg://nobody:very-secret@127.0.0.1:1/none")
    with closing(database), pytest.raises(DatabaseUnavailable) as caught, database.read():
        pass
    assert "127.0.0.1" in str(caught.value)
    assert "very-secret" not in str(caught.value)
    assert caught.value.public_message == "expected a database that answers, found that it does not"


def test_the_writer_forgets_faster_than_events_come(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "AGREEMENT_SECONDS", 0.0)
    replica = Replica(database_url)
    n_old = 3 * FORGET_EVENTS
    with replica.database.write() as connection:
        add_events(connection, [os.urandom(16) for _ in range(n_old)], 1)
    for block in range(12):
        events = [token_event(f"{block}-{i}", [1], []) for i in range(FORGET_EVENTS // 2)]
        assert set(replica.send(*events)) == {"applied"}
    replica.close()  # when its house is kept
    with replica.database.read() as connection:
        days = connection.execute(text("SELECT day FROM feedback_events")).scalars().all()
    assert len(days) == 12 * FORGET_EVENTS // 2
    assert 1 not in days
    replica.database.close()


def test_a_server_that_stands_still_is_given_up(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes = threading.Event()
    goes.set()
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as at_the_end:
        threading.Thread(
            target=forward, args=(listener, socket_path(postgresql), goes), daemon=True
        ).start()
        url = make_url(postgresql).set(host="127.0.0.1", port=listener.getsockname()[1], query={})
        database = Database(url.render_as_string(hide_password=False))
        at_the_end.callback(database.close)
        at_the_end.callback(goes.set)
        monkeypatch.setattr(bounded, "ANSWER_SECONDS", 0.5)
        assert one_of(database) == 1
        with (
            pytest.raises(DatabaseUnavailable, match="no answer within"),
            database.write() as connection,
        ):
            goes.clear()
            connection.execute(text("SELECT 1"))
        with pytest.raises(DatabaseUnavailable, match="timeout"), database.read():
            pass
        goes.set()
        assert one_of(database) == 1
