"""Build wheels: `python deploy/wheels/build.py [PYTHON ...]`, by
default for each of 3.11 to 3.13 at hand.

The wheel for each of these Pythons holds the compiled kernels for the levels of processors that
this machine can run, made with the versions of requirements.txt. A pure wheel is for everything
else. dist/ has them then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hook import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
PYTHONS = ("python3.11", "python3.12", "python3.13")


def run(*command: str | Path, **environment: str) -> None:
    """Run a command elsewhere than in the checkout; end with its status where it fails."""
    found = subprocess.run(
        command, cwd=tempfile.gettempdir(), env={**os.environ, **environment}, check=False
    )
    if found.returncode:
        sys.exit(found.returncode)


def runs(python: str) -> bool:
    """Return whether a command is a Python: a version manager's may
    stand in for one that is not chosen.
    """
    return not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode


def pip(python: Path, *arguments: str | Path, **environment: str) -> None:
    """Run a Python's pip."""
    quietly = ("--disable-pip-version-check", "--no-input", "-q")
    run(python, "-m", "pip", *quietly, *arguments, **environment)


def copy_sources(directory: Path) -> Path:
    """Copy what wheels are made of: an edit in the meantime would part kernels from
    their sources.
    """
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    for name in ("service", "model_store", "deploy/wheels"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def wheel(python: Path, sources: Path, **environment: str) -> None:
    """Put a wheel into dist/."""
    pip(python, "wheel", "--no-deps", "--no-build-isolation", "-w", DIST, sources, **environment)


def environment_of(python: str, sources: Path, directory: Path) -> Path:
    """Make a virtual environment with what is pinned and the package; return its Python."""
    run(python, "-m", "venv", directory)
    made = directory / "bin" / "python"
    pip(made, "install", "--only-binary", ":all:", "-r", ROOT / "requirements.txt")
    pip(made, "install", "--no-deps", "--no-build-isolation", sources)
    return made


def compile_kernels(python: Path, cache: Path) -> Path:
    """Compile all kernels for each level of processors that this
    machine can run; return their directory.
    """
    run(python, "-m", "xylem.warm", XYLEM_KERNEL_CACHE=str(cache), XYLEM_KERNEL_CPU="portable")
    for lock in cache.rglob("*.lock"):
        lock.unlink()
    return cache / "plain"


def main(wanted: list[str]) -> None:
    """Build the wheels."""
    pythons = [found for name in wanted or PYTHONS if (found := shutil.which(name)) and runs(found)]
    if not pythons:
        sys.exit(f"expected a Python, {', '.join(wanted or PYTHONS)}, found none")
    for place, name in enumerate(pythons):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as made:
            directory = Path(made)
            (directory / "sources").mkdir()
            sources = copy_sources(directory / "sources")
            python = environment_of(name, sources, directory / "python")
            kernels = compile_kernels(python, directory / "kernels")
            wheel(python, sources, **{VARIABLE: str(kernels)})
            if place == 0:
                wheel(python, sources)
        print(f"{name}: {time.monotonic() - began:.0f} s")
    for file in sorted(DIST.glob("*.whl")):
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
