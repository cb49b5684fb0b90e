"""A registry that is killed at any call of the file system: an alias and its moves say the same."""

import itertools
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model_store.fs import FileSystem
from model_store.moves import Cause
from model_store.store import Store
from service.registry.registry import Registry
from tests.faulty_fs import FaultyFileSystem, QuickFileSystem
from tests.publishers import ToldFileSystem, killed_after
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
ALICE = Cause("alice", "why not")


class DyingFileSystem(FaultyFileSystem):
    """Kills its process before the n-th call of one kind."""

    def __init__(self, kind: str, left: int) -> None:
        super().__init__()
        self._kind = kind
        self._left = left

    def _call(self, name: str, *arguments: Any) -> Any:
        self._left -= name == self._kind
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._call(name, *arguments)


def in_child(call: Callable[[], object]) -> int:
    """Call in a forked process that is to be killed, or to end; return the signal, 0 for an end."""
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def made(root: Path) -> Store:
    store = Store(root, fs=QuickFileSystem())
    for _ in range(3):
        store.publish("m", DRAFT)
    return store


def rows(root: Path, alias: str) -> list[tuple[str, int | None, int | None, str]]:
    moves = reversed(Registry(Store(root), None).history("m", alias))
    return [(move.action, move.from_version, move.to_version, move.who) for move in moves]


def promote(root: Path, fs: FileSystem | None = None, version: int = 2, who: Cause = ALICE) -> None:
    Registry(Store(root, fs=fs or QuickFileSystem()), None).promote("m", version, "stable", who)


@pytest.mark.parametrize("kind", ["append", "rename"])
def test_killed_before_a_move_came_about(tmp_path: Path, kind: str) -> None:
    """Before its line is written, and between that and the renaming of the document."""
    made(tmp_path)
    assert in_child(lambda: promote(tmp_path, DyingFileSystem(kind, 1))) == signal.SIGKILL
    store = Store(tmp_path)
    assert store.info("m").aliases == {"latest": 3}
    assert rows(tmp_path, "stable") == []
    store.promote("m", 3, "stable")  # by somebody else: what was begun is not taken for it
    assert rows(tmp_path, "stable") == [("promoted", None, 3, "")]
    promote(tmp_path)
    assert rows(tmp_path, "stable") == [("promoted", None, 3, ""), ("promoted", 3, 2, "alice")]


def test_killed_at_every_call_of_the_file_system(tmp_path: Path) -> None:
    """The last row of the history says what the store does, whoever dies when."""
    made(tmp_path)
    promote(tmp_path, counted := FaultyFileSystem())
    for step in range(2, len(counted.log) + 8):

        def move(calls: int, step: int = step) -> None:
            promote(tmp_path, ToldFileSystem(calls), 1 + step % 3, Cause(f"step {step}"))

        killed_after(step, move)
        action, _, to, who = rows(tmp_path, "stable")[-1]
        assert (action, to) == ("promoted", Store(tmp_path).alias("m", "stable").version)
        assert who == "alice" or who.startswith("step ")
    found = rows(tmp_path, "stable")
    assert len(found) > 1, "no move came about: what is this test of?"
    assert all(before[2] == after[1] for before, after in itertools.pairwise(found))


def test_a_model_killed_while_it_is_deleted(tmp_path: Path) -> None:
    """At each renaming: the history tells that an alias was removed once it was."""
    for number in range(1, 6):
        root = tmp_path / str(number)
        store = made(root)
        store.promote("m", 1, "stable")
        dying = Store(root, fs=DyingFileSystem("rename", number))
        died = in_child(partial(dying.delete_model, "m", ALICE))
        aliases = store.info("m").aliases
        for alias in ("latest", "stable"):
            action = rows(root, alias)[-1][0]
            is_there = (root / "models/m/aliases" / f"{alias}.json").exists()
            assert (action == "removed") == (not is_there)
        if died == 0:
            assert aliases == {} and store.versions("m") == ()
            break
        store.delete_model("m", ALICE)
        assert rows(root, "latest")[-1][0] == "removed"
        assert store.publish("m", DRAFT).version == 4
    else:
        raise AssertionError("the model was never deleted")
