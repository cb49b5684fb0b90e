"""A registry that is killed at any call of the file system, or before a commit: both sides agree again."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from model_store.splits import Split
from model_store.store import Store
from service.db.engine import Database
from service.registry.causes import Cause
from service.registry.registry import Registry
from service.registry.splits import with_canary
from tests.faulty_fs import QuickFileSystem
from tests.publishers import ToldFileSystem
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)


class DyingFileSystem(QuickFileSystem):
    """Kills its process before the n-th renaming."""

    left = 0

    def rename(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        super().rename(source, target)


def in_child(call: object) -> int:
    """Call in a forked process that is to be killed, or to end; return the signal, 0 for an end."""
    child = os.fork()
    if child == 0:
        try:
            call()  # type: ignore[operator]
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def made(root: Path) -> Store:
    store = Store(root / "store", fs=QuickFileSystem())
    for _ in range(3):
        store.publish("m", DRAFT)
    return store


def rows(root: Path) -> list[tuple[str, int | None, int | None, str]]:
    database = Database(f"sqlite:///{root}/xylem.db")
    registry = Registry(Store(root / "store", fs=QuickFileSystem()), database)
    found = [
        (row.action, row.from_version, row.to_version, row.who)
        for row in reversed(registry.history("m", "stable"))
    ]
    database.close()
    return found


def die_before_commit(database: Database, number: int) -> None:
    """Have the process killed before the n-th commit from now on."""
    from sqlalchemy import event

    left = [number]

    def die(_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(database._engine, "commit", die)


def promote(root: Path, fs: QuickFileSystem | None, before_commit: int = 0) -> None:
    """Promote 2 to `stable`, and die before a renaming, or before a commit of the database."""
    database = Database(f"sqlite:///{root}/xylem.db")
    if before_commit:
        die_before_commit(database, before_commit)
    store = Store(root / "store", fs=fs or QuickFileSystem())
    Registry(store, database).promote("m", 2, "stable", Cause("alice", "why not"))


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_killed_before_a_commit(tmp_path: Path, commit: int) -> None:
    """Before the schema's, the intention's, and that of the move, which the store then has made."""
    made(tmp_path)
    assert in_child(lambda: promote(tmp_path, None, commit)) == signal.SIGKILL
    named = Registry(Store(tmp_path / "store"), None).named("m", "stable")
    assert named == (2 if commit == 3 else None)
    told = [("promoted", None, 2, "alice")]
    assert rows(tmp_path) == (told if commit == 3 else [])
    promote(tmp_path, None)
    assert rows(tmp_path) == told


def test_killed_before_the_alias_is_renamed(tmp_path: Path) -> None:
    made(tmp_path)
    fs = DyingFileSystem()
    fs.left = 1
    assert in_child(lambda: promote(tmp_path, fs)) == signal.SIGKILL
    store = Store(tmp_path / "store")
    assert Registry(store, None).named("m", "stable") is None
    assert rows(tmp_path) == []
    store.promote("m", 3, "stable")  # by something else: what was intended is not taken for it
    assert rows(tmp_path) == [("found", None, 3, "")]
    promote(tmp_path, None)
    assert rows(tmp_path) == [("found", None, 3, ""), ("promoted", 3, 2, "alice")]


def test_killed_at_every_call_of_the_file_system(tmp_path: Path) -> None:
    """The last row of the history says what the store does, whoever dies when."""
    made(tmp_path)
    promote(tmp_path, None)
    for step in range(2, 40):
        version = 1 + step % 3
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            database = Database(f"sqlite:///{tmp_path}/xylem.db")
            store = Store(tmp_path / "store", fs=ToldFileSystem(write_end))
            Registry(store, database).promote("m", version, "stable", Cause(f"step {step}"))
            os._exit(0)
        os.close(write_end)
        heard = 0
        while heard < step and os.read(read_end, 1):
            heard += 1
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read_end)
        named = Registry(Store(tmp_path / "store"), None).named("m", "stable")
        action, _, to, who = rows(tmp_path)[-1]
        assert (action, to) == ("promoted", named)
        assert who == "alice" or who.startswith("step ")
    found = rows(tmp_path)
    assert all(before[2] == after[1] for before, after in itertools.pairwise(found))
    connection = sqlite3.connect(tmp_path / "xylem.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def split(root: Path, fs: QuickFileSystem | None, before_commit: int = 0) -> None:
    """Make 2 the canary of `latest`, which names 3, and die before a renaming, or before a commit."""
    database = Database(f"sqlite:///{root}/xylem.db")
    if before_commit:
        die_before_commit(database, before_commit)
    registry = Registry(Store(root / "store", fs=fs or QuickFileSystem()), database)
    registry.change_split("m", "latest", with_canary(2, 0.1), Cause("alice", "why not"))


def told_of_latest(root: Path) -> list[tuple[str, str, object]]:
    database = Database(f"sqlite:///{root}/xylem.db")
    registry = Registry(Store(root / "store", fs=QuickFileSystem()), database)
    found = [(row.action, row.who, row.verdict) for row in reversed(registry.history("m", "latest"))]
    database.close()
    return found


CANARY = ("split", "alice", {"canary": {"version": 2, "weight": 0.1}, "shadow": None})


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_split_killed_before_a_commit(tmp_path: Path, commit: int) -> None:
    made(tmp_path)
    assert in_child(lambda: split(tmp_path, None, commit)) == signal.SIGKILL
    is_made = commit == 3
    assert (Store(tmp_path / "store").split("m") is not None) == is_made
    assert (told_of_latest(tmp_path)[-1] == CANARY) == is_made
    split(tmp_path, None)
    assert [row for row in told_of_latest(tmp_path) if row[0] == "split"] == [CANARY]


def test_a_split_killed_before_its_file_is_renamed(tmp_path: Path) -> None:
    made(tmp_path)
    fs = DyingFileSystem()
    fs.left = 1
    assert in_child(lambda: split(tmp_path, fs)) == signal.SIGKILL
    assert Store(tmp_path / "store").split("m") is None
    assert "split" not in [row[0] for row in told_of_latest(tmp_path)]
    Store(tmp_path / "store").put_split("m", "latest", Split(3, 1, 7))  # past the registry
    found = told_of_latest(tmp_path)[-1]
    assert found == ("found", "", {"canary": {"version": 1, "weight": 0.0007}, "shadow": None})
