"""SQLite's file or directory removed, moved or replaced while it is in
use: nothing is answered and lost.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from tests.conftest import READY_SECONDS
from tests.helpers.feedback_helpers import (
    PATH,
    RAW,
    Replica,
    client_of,
    event,
    fault,
    outcomes,
    token_event,
)

from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem.base.db.engine import Database
from xylem.base.errors import DatabaseUnavailable
from xylem.thresholds.store.state import all_heads
from xylem_store.store import Store

Change = Callable[[Path], None]


def remove(file: Path) -> None:
    for each in file.parent.glob(f"{file.name}*"):
        each.unlink()


def remove_alone(file: Path) -> None:
    """As who knows nothing of the files beside it."""
    file.unlink()


def move(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))


def remove_directory(file: Path) -> None:
    shutil.rmtree(file.parent)


def move_directory(file: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))


def make_directory_anew(file: Path) -> None:
    move_directory(file)
    file.parent.mkdir()


CHANGES = [remove, remove_alone, move, remove_directory, move_directory, make_directory_anew]


def place_of(tmp_path: Path) -> Path:
    file = tmp_path / "store" / "xylem.db"
    file.parent.mkdir()
    return file


def copy_of(file: Path) -> Path:
    """A backup, as SQLite makes it, outside of the directory."""
    copy = file.parent.parent / "backup.db"
    with closing(Database(f"sqlite:///{file}")) as database, database.read() as connection:
        raw: Any = connection.connection.driver_connection
        with closing(sqlite3.connect(copy)) as target:
            raw.backup(target)
    return copy


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_done_with_a_file_that_is_gone(tmp_path: Path, change: Change) -> None:
    file = place_of(tmp_path)
    replica = Replica(f"sqlite:///{file}")
    assert replica.send(token_event("a", [1], [2])) == ["applied"]
    backup = copy_of(file)
    change(file)
    for _ in range(3):
        for begin in (replica.database.read, replica.database.write):
            with pytest.raises(DatabaseUnavailable, match="removed or moved") as caught, begin():
                pass
            assert str(tmp_path) not in str(caught.value.public_message)
        with pytest.raises(DatabaseUnavailable):
            replica.send(token_event("b", [1], [2]))
    assert not file.exists(), "an empty database took the place of the one that is gone"
    file.parent.mkdir(exist_ok=True)
    remove(file)
    shutil.copy(backup, file)
    assert replica.send(token_event("a", [1], [2]), token_event("b", [1], [2])) == [
        "duplicate",
        "applied",
    ]
    replica.close()
    with closing(Database(f"sqlite:///{file}")) as database, database.read() as connection:
        assert [head.n_events for head in all_heads(connection)] == [2]


@pytest.mark.parametrize("has_tables", [True, False])
def test_another_file_in_its_place_is_used_with_its_tables(
    tmp_path: Path, has_tables: bool
) -> None:
    """A file that another process began, and one that has no tables yet."""
    file, other = place_of(tmp_path), tmp_path / "other.db"
    with closing(Database(f"sqlite:///{other}")) as database:
        if has_tables:
            AccessKeys(database).create("of the other", [AccessScope.PREDICT])
        else:
            other.touch()
    with closing(Database(f"sqlite:///{file}")) as database:
        keys = AccessKeys(database)
        keys.create("of the first", [AccessScope.PREDICT])
        remove(file)
        other.rename(file)
        names = ["of the other"] if has_tables else []
        assert [key.name for key in keys.list()] == names
        keys.create("another", [AccessScope.PREDICT])
        with closing(Database(f"sqlite:///{file}")) as again:
            assert {key.name for key in AccessKeys(again).list()} == {*names, "another"}


def test_a_commit_into_a_removed_file_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    file = place_of(tmp_path)
    with closing(Database(f"sqlite:///{file}")) as database:
        with (
            pytest.raises(DatabaseUnavailable, match="since the transaction began"),
            database.write() as open_one,
        ):
            open_one.execute(text("DELETE FROM access_keys"))
            remove(file)
        with pytest.raises(DatabaseUnavailable, match="removed or moved"), database.write():
            pass


def test_a_process_that_may_not_create_a_database_does_not(tmp_path: Path) -> None:
    """A job's process, which begins while the file is gone."""
    file = place_of(tmp_path)
    with closing(Database(f"sqlite:///{file}", creates=False)) as database:
        with pytest.raises(DatabaseUnavailable, match="removed or moved"), database.read():
            pass
        assert not file.exists()
        with closing(Database(f"sqlite:///{file}")) as maker, maker.read():
            pass
        with database.write() as connection:
            assert all_heads(connection) == []


REQUESTS: dict[str, tuple[str, str, Any]] = {
    "feedback": ("POST", PATH, {"events": [event("b", [])]}),
    "thresholds": ("GET", "/v1/models/raw/thresholds", None),
    "restored thresholds": ("POST", "/v1/admin/models/raw/thresholds/restore", {"epoch": 1}),
    "keys": ("GET", "/v1/admin/keys", None),
    "a key": ("POST", "/v1/admin/keys", {"name": "new", "scopes": ["predict"]}),
    "jobs": ("GET", "/v1/admin/jobs", None),
    "schedules": ("GET", "/v1/admin/schedules", None),
    "audit": ("GET", "/v1/admin/audit", None),
    "rows": ("GET", "/v1/admin/models/raw/feedback-rows", None),
}


async def _answers(client: httpx.AsyncClient) -> dict[str, tuple[int, str]]:
    answers = {}
    for name, (method, path, body) in REQUESTS.items():
        response = await client.request(method, path, json=body)
        is_fault = response.status_code >= 400
        answers[name] = fault(response) if is_fault else (response.status_code, "")
    return answers


async def _wait_for_failed(client: httpx.AsyncClient, *, is_failed: bool) -> None:
    """Wait until the figure says that the database does not answer, or that it does."""
    async with asyncio.timeout(READY_SECONDS):
        while f"xylem_database_failed {is_failed:.1f}" not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("change", [remove, remove_alone, move])
async def test_every_door_says_that_the_database_is_away(own_store: Store, change: Change) -> None:
    file = own_store.root / "xylem.db"
    async with client_of(own_store, as_admin=True) as client:
        assert await outcomes(client, event("a", [])) == ["applied"]
        good = await _answers(client)
        assert not [name for name, (status, _) in good.items() if status >= 500], good
        backup = copy_of(file)
        change(file)
        answers = await _answers(client)
        assert set(answers.values()) == {(503, "database-unavailable")}, answers
        await _wait_for_failed(client, is_failed=True)
        assert (
            await client.post("/v1/models/raw/predict", json={"instances": [RAW]})
        ).status_code == 200
        with suppress(FileNotFoundError):
            remove(file)
        shutil.copy(backup, file)
        await _wait_for_failed(client, is_failed=False)
        assert await outcomes(client, event("a", []), event("c", [])) == ["duplicate", "applied"]
        assert not [name for name, (status, _) in (await _answers(client)).items() if status >= 500]
