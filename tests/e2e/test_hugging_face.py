"""The tests of frames, with Hugging Face's `datasets`: a real one, from the environment of the clients.

It holds other libraries back, and is not among ours: a process that has it behind all of ours runs them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "unit" / "xylem" / "test_frames.py"
RUN = "import sys, pytest; sys.path.append(sys.argv.pop()); sys.exit(pytest.main(sys.argv[1:]))"


def test_frames_of_datasets(tmp_path: Path) -> None:
    found = list((ROOT / ".venv-clients" / "lib").glob("python3*/site-packages"))
    if not any((packages / "datasets").is_dir() for packages in found):
        pytest.skip("datasets is not installed (make test-system does)")
    options = ["-q", "-k", "datasets", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={tmp_path}/t"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *options, str(TESTS), str(found[0])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "1",
            "PATH": "/usr/bin:/bin",
            "HOME": str(Path.home()),
        },
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout and " passed" in done.stdout, done.stdout[-2000:]
