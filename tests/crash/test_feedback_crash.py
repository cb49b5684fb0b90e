"""R10: acknowledged feedback under kill -9. R21: writes that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from service.base.errors import DatabaseUnavailable
from service.db.engine import Compiled
from tests.databases import database_url, postgresql  # noqa: F401
from tests.feedback_helpers import Replica, token_event

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("rounds", [50, pytest.param(1000, marks=pytest.mark.soak)], ids=["quick", "soak"])
def test_killed_feeders(rounds: int, database_url: str, seed: int) -> None:  # noqa: F811
    command = [sys.executable, "-W", "ignore", "-m", "tests.feeders", database_url, str(rounds), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["lost"], found["wrong"]) == (0, 0), (seed, found)
    assert found["acknowledged"] > 3 * rounds, found  # or nothing was under way when it was killed


def test_a_write_that_fails_leaves_nothing_counted(
    database_url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Compiled.run
    replica = Replica(database_url)
    replica.writer._forget_at = float("inf")  # no housekeeping in between
    replica.send(token_event("first", [1], [1, 2]))
    before = replica.bits()
    engine = replica.database._engine
    at = 0
    failed = 0
    while True:
        at += 1
        count = 0

        def strike(*_: Any, at: int = at) -> None:
            nonlocal count
            count += 1
            if count == at:
                raise DatabaseUnavailable("database or disk is full")

        def run_or_strike(statement: Compiled, *arguments: Any, strike: Any = strike, **values: Any) -> Any:
            strike()
            return run(statement, *arguments, **values)

        monkeypatch.setattr(Compiled, "run", run_or_strike)
        event.listen(engine, "begin", strike)
        event.listen(engine, "commit", strike)
        try:
            replica.send(token_event("second", [3], [2, 3]))
            break
        except DatabaseUnavailable:
            failed += 1
            assert replica.bits() == before
        finally:
            monkeypatch.undo()
            event.remove(engine, "begin", strike)
            event.remove(engine, "commit", strike)
    assert failed == 6  # begin, head, events, log, head, commit
    assert replica.bits() != before
    assert replica.send(token_event("second", [3], [2, 3])).results == ["duplicate"]
    replica.close()
