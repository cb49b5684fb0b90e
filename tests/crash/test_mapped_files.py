"""R5: files that are mapped are never cut or changed: who has a version open reads it to the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mappers", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("rounds", [25, pytest.param(5_000, marks=pytest.mark.soak)], ids=["quick", "soak"])
def test_what_is_open_stays_as_it_was(rounds: int, tmp_path: Path, seed: int) -> None:
    done = run("churn", tmp_path, rounds, seed)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    found = json.loads(done.stdout)
    assert (found["changed"], found["forbidden"]) == (0, 0), (seed, found, done.stderr[-3000:])
    assert found["opened"] > rounds
    assert found["outlived"] > rounds // 4, (
        seed,
        found,
    )  # or deleted versions were not among those that were read


def test_a_mapped_file_that_is_cut_would_be_seen(tmp_path: Path) -> None:
    assert run("truncate", tmp_path, 0, 0).returncode == -signal.SIGBUS
