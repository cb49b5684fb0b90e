"""Processes under kill -9: publishers (R1), feedback (R10, R21),
jobs, a registry; maps of files (R5).
"""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from tests.helpers.faulty_fs import FaultyFileSystem, QuickFileSystem
from tests.helpers.feedback_helpers import Replica, token_event
from tests.helpers.modules import json_from, run_module
from tests.helpers.publishers import SignallingFileSystem, kill_after
from tests.helpers.small_models import small_draft

from xylem.admin.registry.registry import Registry
from xylem.base.db.engine import Compiled
from xylem.base.errors import DatabaseUnavailable
from xylem_store.fs import FileSystem
from xylem_store.moves import Cause
from xylem_store.store import Store

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
ALICE = Cause("alice", "why not")


def sizes(name: str, quick: int, soak: int) -> pytest.MarkDecorator:
    """So many of them in each run, and in a long one."""
    return pytest.mark.parametrize(
        name, [quick, pytest.param(soak, marks=pytest.mark.soak)], ids=["quick", "soak"]
    )


@sizes("rounds", 40, 10_000)
def test_killed_publishers(rounds: int, tmp_path: Path, seed: int) -> None:
    outcome = json_from("tests.helpers.publishers", "kill", tmp_path, rounds, seed)
    assert (outcome["unservable"], outcome["backwards"], outcome["left"]) == (0, 0, 0), outcome
    # or the moments of death were not among the interesting ones
    assert outcome["abandoned"] > rounds // 4, outcome
    assert outcome["published"] > rounds // 8, outcome


def test_publishers_at_once(tmp_path: Path) -> None:
    outcome = json_from("tests.helpers.publishers", "race", tmp_path, 4, 6)
    assert outcome == {"statuses": [0] * 5, "versions": list(range(1, 25)), "latest": 24}


@sizes("rounds", 50, 1000)
def test_killed_feeders(rounds: int, database_url: str, seed: int) -> None:
    outcome = json_from("tests.helpers.feeders", database_url, rounds, seed)
    assert (outcome["lost"], outcome["wrong"]) == (0, 0), outcome
    # or nothing was under way when it was killed
    assert outcome["acknowledged"] > 3 * rounds, outcome


def test_a_write_that_fails_counts_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Compiled.run
    replica = Replica(database_url)
    replica.writer._forget_at = float("inf")  # no housekeeping in between
    replica.send(token_event("first", [1], [1, 2]))
    before, engine = replica.bits(), replica.database._engine
    for at in itertools.count(1):
        calls = itertools.count(1)

        def strike(*_: Any, at: int = at, calls: Iterator[int] = calls) -> None:
            if next(calls) == at:
                raise DatabaseUnavailable("database or disk is full")

        def run_or_strike(
            statement: Compiled, *arguments: Any, strike: Any = strike, **values: Any
        ) -> Any:
            strike()
            return run(statement, *arguments, **values)

        monkeypatch.setattr(Compiled, "run", run_or_strike)
        event.listen(engine, "begin", strike)
        event.listen(engine, "commit", strike)
        try:
            replica.send(token_event("second", [3], [2, 3]))
            break
        except DatabaseUnavailable:
            assert replica.bits() == before
        finally:
            monkeypatch.undo()
            event.remove(engine, "begin", strike)
            event.remove(engine, "commit", strike)
    # after begin, head, events, log, head and commit have failed; PostgreSQL also tells the time
    assert at == (8 if "postgresql" in database_url else 7)
    assert replica.bits() != before
    assert replica.send(token_event("second", [3], [2, 3])) == ["duplicate"]
    replica.close()


@sizes("n_jobs", 4, 100)
def test_killed_runs_lose_no_job_and_publish_none_twice(
    n_jobs: int, tmp_path: Path, seed: int
) -> None:
    outcome = json_from("tests.helpers.job_runners", tmp_path, n_jobs, seed)
    assert outcome["kills"] >= n_jobs
    assert outcome["succeeded"] == outcome["distinct"] == outcome["of_their_jobs"] == n_jobs
    assert outcome["versions"] == outcome["tuned_once"] == n_jobs + 1
    assert outcome["stable"] == outcome["latest"] == n_jobs + 1
    assert outcome["left"] == 0


@sizes("rounds", 25, 5_000)
def test_what_is_open_stays_as_it_was(rounds: int, tmp_path: Path, seed: int) -> None:
    outcome = json_from("tests.helpers.mappers", "churn", tmp_path, rounds, seed)
    assert (outcome["changed"], outcome["forbidden"]) == (0, 0), outcome
    assert outcome["opened"] > rounds
    # or deleted versions were not among those that were read
    assert outcome["outlived"] > rounds // 4, outcome


def test_a_mapped_file_that_is_cut_would_be_seen(tmp_path: Path) -> None:
    assert (
        run_module("tests.helpers.mappers", "truncate", tmp_path, 0, 0).returncode == -signal.SIGBUS
    )


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
    # a move that clears up after a killed one makes more calls: twice as many are enough to end
    for step in range(2, 2 * len(counted.log)):

        def move(calls: int, step: int = step) -> None:
            promote(tmp_path, SignallingFileSystem(calls), 1 + step % 3, Cause(f"step {step}"))

        kill_after(step, move)
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
