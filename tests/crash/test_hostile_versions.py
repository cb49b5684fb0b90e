"""R4: wrong versions with right checksums never give a signal, and an answer or refusal within a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("rounds", "boundscheck"),
    [
        pytest.param(2_000, "0", id="quick"),
        pytest.param(100_000, "0", id="soak", marks=pytest.mark.soak),
        pytest.param(20_000, "1", id="soak-bounds", marks=pytest.mark.soak),
    ],
)
def test_never_a_signal(rounds: int, boundscheck: str, seed: int) -> None:
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.hostile_versions", str(rounds), str(seed)],
        cwd=ROOT,
        env={**os.environ, "NUMBA_BOUNDSCHECK": boundscheck},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"seed {seed}: {run.stderr[-3000:]}"
    found = json.loads(run.stdout)
    assert found["refused"] > rounds // 2
    assert found["served"] > rounds // 50
    assert found["slowest_seconds"] < 1
