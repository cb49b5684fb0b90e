"""R1: publishers under kill -9, and several at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.publishers", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("rounds", [40, pytest.param(10_000, marks=pytest.mark.soak)], ids=["quick", "soak"])
def test_killed_publishers(rounds: int, tmp_path: Path, seed: int) -> None:
    found = run("kill", tmp_path, rounds, seed)
    assert (found["unservable"], found["backwards"], found["left"]) == (0, 0, 0), (seed, found)
    # or the moments of death were not among the interesting ones
    assert found["abandoned"] > rounds // 4, (seed, found)
    assert found["published"] > rounds // 8, (seed, found)


def test_publishers_at_once(tmp_path: Path) -> None:
    found = run("race", tmp_path, 4, 6)
    assert found["statuses"] == [0] * 5
    assert found["versions"] == list(range(1, 25))
    assert found["latest"] == 24
