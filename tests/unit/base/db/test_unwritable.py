"""A database that cannot be written: one in a store that is only read, and one whose
disk is full.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text
from tests.conftest import settings_of
from tests.helpers.feedback_helpers import PATH, RAW, Replica, event, token_event
from tests.helpers.servers import ServerProcess, wait_for

from xylem.api.app import create_app
from xylem.base.db.engine import Database, default_url
from xylem.base.errors import DatabaseUnavailable
from xylem.thresholds.live.follower import Follower
from xylem.thresholds.store.state import all_heads
from xylem_store.compiled.progress import Progress
from xylem_store.store import Store

PREDICT = "/v1/models/raw/predict"


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Let nothing be written in a directory: of root, who may write everywhere, it is
    mounted so.
    """
    if os.geteuid():
        directory.chmod(0o555)
        yield
        directory.chmod(0o755)
        return
    bind = ["mount", "--bind", directory, directory]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", directory], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def n_events(database: Database) -> int:
    """How many events the database has counted."""
    with database.read() as connection:
        return sum(head.n_events for head in all_heads(connection))


def has_failed(server: ServerProcess) -> bool:
    return "xylem_database_failed 1.0" in server.ask("GET", "/metrics")[1].decode()


def test_a_database_that_can_only_be_read_is_read(tmp_path: Path) -> None:
    """Left by a writer that ended, or was killed: then a part of it is in the files beside it."""
    whole = tmp_path / "whole"
    whole.mkdir()
    replica = Replica(default_url(whole))
    replica.send(*(token_event(f"e{i}", [1], [2]) for i in range(5)))
    left = Path(shutil.copytree(whole, tmp_path / "left"))
    replica.close()
    assert not [*whole.glob("*-wal")] and [*left.glob("*-wal")]
    for directory in (whole, left):
        with read_only(directory), closing(Database(default_url(directory))) as database:
            for _ in range(3):
                assert n_events(database) == 5
                with (
                    pytest.raises(DatabaseUnavailable, match="readonly"),
                    database.write() as connection,
                ):
                    connection.execute(text("DELETE FROM access_keys"))
            failing_until = database.failing_until
            assert failing_until > time.monotonic()
            database.try_writing()
            assert database.failing_until > failing_until


def test_what_another_server_writes_is_seen_by_a_reader(tmp_path: Path) -> None:
    """The same directory, mounted once to be written and once to be read."""
    source, mounted = tmp_path / "source", tmp_path / "mounted"
    source.mkdir()
    mounted.mkdir()
    replica = Replica(default_url(source))
    replica.send(token_event("a", [1], [2]))
    replica.close()
    command = ["mount", "--bind", "-o", "ro", source, mounted]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with closing(Database(default_url(mounted))) as database:
            assert n_events(database) == 1
            for i in range(3):
                replica = Replica(default_url(source))
                replica.send(token_event(f"b{i}", [1], [2]))
                replica.close()
                assert n_events(database) == 2 + i
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


def test_a_read_only_store_is_served_with_its_thresholds(own_store: Store) -> None:
    body = {"instances": [RAW], "threshold": "tuned"}
    with ServerProcess(own_store.root) as server:
        events = [event(f"e{i}", ["label::3"]) for i in range(20)]
        assert server.ask("POST", PATH, {"events": events})[0] == 200
        tuned = server.ask("POST", PREDICT, body)[1]
        thresholds = server.ask("GET", "/v1/models/raw/thresholds")[1]
        assert server.terminate() == 0
    with read_only(own_store.root), ServerProcess(own_store.root) as server:
        assert server.events("database_failed") == []
        status, answer = server.ask("POST", PREDICT, body)
        assert (status, answer["threshold_epoch"]) == (200, tuned["threshold_epoch"])
        labels = [each["predictions"][0]["labels"] for each in (answer, tuned)]
        assert labels[0] == labels[1]
        assert server.ask("GET", "/v1/models/raw/thresholds") == (200, thresholds)
        assert not has_failed(server)
        status, refused = server.ask("POST", PATH, {"events": events})
        assert (status, refused["code"]) == (503, "database-unavailable")
        assert has_failed(server)
        assert server.terminate() == 0


def test_a_read_only_store_without_a_database_is_served(
    own_store: Store,
) -> None:
    with read_only(own_store.root), ServerProcess(own_store.root) as server:
        assert server.ask("POST", PREDICT, {"instances": [RAW]})[0] == 200
        wait_for(lambda: has_failed(server))
        assert server.terminate() == 0


async def test_a_server_that_is_not_ready_says_what_it_waits_for(
    own_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "xylem.api.routes.requests.PROGRESS", Progress()
    )  # others may have compiled here
    app = create_app(settings_of(own_store.root))  # nothing has begun
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["waits_for"]) == (503, "the database")
        app.state.services.learning.follower.look()
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["waits_for"]) == (
            503,
            "the models, which are being opened",
        )
    app.state.services.close()
    app.state.services.learning.database.close()
    with closing(Database(f"sqlite:///{tmp_path}/none/xylem.db")) as away:
        follower = Follower(away, 60.0, lambda: None)
        assert follower.waits_for == "the database"
        follower.look()
        assert (follower.waits_for, follower.fault is None) == (None, False)
