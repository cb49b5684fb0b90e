"""The command says what shadows its packages, and runs where nothing does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run_command(folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run `xylem --version` in a folder, as the installed script does."""
    script = "import sys; sys.path.pop(0); from xylem.command import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    command = [sys.executable, "-c", script, "--version"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_file_of_that_name_in_the_directory_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("raise SystemExit(7)")
    done = run_command(tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.strip()


@pytest.mark.parametrize("name", ["service.py", "model_store.py", "service/__init__.py"])
def test_what_shadows_a_package_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit(7)")
    done = run_command(tmp_path, tmp_path)
    package = name.split("/")[0].removesuffix(".py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"xylem: expected the package {package} in {ROOT / package}, found {file.resolve()}"
    )


@pytest.mark.parametrize(
    "use",
    ["import xylem; xylem.train", "from xylem import load", "import pickle; pickle.load(open('m', 'rb'))"],
)
@pytest.mark.parametrize("name", ["service.py", "service/__init__.py"])
def test_what_shadows_a_package_beside_a_notebook_is_named(tmp_path: Path, name: str, use: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    (tmp_path / "m").write_bytes(b"cxylem.local\nModel\n.")  # how a pickle names the class
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", use]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"ImportError: xylem: expected the package service in {ROOT / 'service'}, found {tmp_path}"
    )
    assert "which shadows it: rename it" in last
