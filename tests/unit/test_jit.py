"""The cache of compiled kernels: what it is keyed by, and where it can be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_store import jit


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules of kernels, of which the first one imports the second, in place of ours."""
    package = tmp_path / "service"
    package.mkdir()
    (package / "first.py").write_text("from service.second import helper\n")
    (package / "second.py").write_text("import numpy\nhelper = 1\n")
    (package / "third.py").write_text("import service.first\n")
    monkeypatch.setattr(jit, "_ROOT", tmp_path)
    return package


def fresh_digest(path: Path) -> str:
    jit.source_digest.cache_clear()
    jit._imports.cache_clear()
    return jit.source_digest(path)


def test_an_edit_in_any_module_that_is_reached_changes_the_digest(sources: Path) -> None:
    first, third = (fresh_digest(sources / name) for name in ("first.py", "third.py"))
    (sources / "second.py").write_text("import numpy\nhelper = 2\n")
    assert fresh_digest(sources / "first.py") != first
    assert fresh_digest(sources / "third.py") != third


def test_an_edit_elsewhere_does_not(sources: Path) -> None:
    second = fresh_digest(sources / "second.py")
    (sources / "first.py").write_text("from service.second import helper  # edited\n")
    assert fresh_digest(sources / "second.py") == second


def locator_of(file: Path) -> jit.KernelCacheLocator | None:
    jit.source_digest.cache_clear()
    return jit.KernelCacheLocator.from_function(locator_of, str(file))


def test_two_states_of_a_file_have_directories_of_their_own(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_KERNEL_CACHE", str(tmp_path / "cache"))
    before = locator_of(sources / "second.py")
    assert before
    stamp = before.get_source_stamp()
    (sources / "second.py").write_text("helper = 3\n")
    after = locator_of(sources / "second.py")
    assert after
    assert before.get_cache_path() != after.get_cache_path()
    assert after.get_source_stamp() != stamp


def test_a_cache_that_cannot_be_written_is_used_if_it_holds_something(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_KERNEL_CACHE", str(tmp_path / "cache"))
    locator = locator_of(sources / "second.py")
    assert locator
    directory = Path(locator.get_cache_path())

    def refuse(_: jit.KernelCacheLocator) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(jit.KernelCacheLocator, "ensure_cache_path", refuse)
    assert locator_of(sources / "second.py") is None
    (directory / "kernel.nbi").touch()
    assert locator_of(sources / "second.py") is not None


def test_code_with_bounds_checks_is_kept_apart() -> None:
    script = "from model_store.jit import cache_dir; print(cache_dir().name)"
    names = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "NUMBA_BOUNDSCHECK": checked},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for checked in ("0", "1")
    ]
    assert names == ["plain", "checked"]
