"""kill -9 of the runs of jobs at random moments: no job is lost, and none publishes twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(directory: Path, n_jobs: int, seed: int) -> None:
    command = [sys.executable, "-m", "tests.job_runners", str(directory), str(n_jobs), str(seed)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(found)
    assert found["kills"] >= n_jobs
    assert found["succeeded"] == found["distinct"] == found["of_their_jobs"] == n_jobs
    assert found["versions"] == found["tuned_once"] == n_jobs + 1
    assert found["stable"] == found["latest"] == n_jobs + 1
    assert found["left"] == 0


def test_runs_killed_at_random_moments_lose_no_job_and_publish_none_twice(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 4, seed)


@pytest.mark.soak
def test_runs_killed_at_many_moments_lose_no_job_and_publish_none_twice(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 100, seed)
