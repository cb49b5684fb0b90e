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


_KERNELS = """
from model_store.jit import inlined, kernel

@inlined
def plus(a, b):
    return a + b

@kernel
def total(n):
    found = 0
    for i in range(n):
        found = plus(plus(found, i), 1)
    return plus(0, found)
"""

_COMPILE = """
import sys
from numba.core import event
from kernels import plus, total

class Recorder(event.Listener):
    def __init__(self):
        self.n_compiled = 0
    def on_start(self, e):
        self.n_compiled += e.data["dispatcher"] in (plus, total)
    def on_end(self, e):
        pass

recorder = Recorder()
event.register("numba:compile", recorder)
print(flush=True)
sys.stdin.readline()
assert total(4) == 10
print(recorder.n_compiled, len(plus.overloads))
"""


def compiler(tmp_path: Path, **changes: str) -> subprocess.Popen[str]:
    """A process that compiles two kernels when a line is written to it, and says how many it compiled."""
    (tmp_path / "kernels.py").write_text(_KERNELS)
    root = Path(jit.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}", **changes}
    return subprocess.Popen(
        [sys.executable, "-c", _COMPILE],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_share_a_cache_compile_a_kernel_once(tmp_path: Path) -> None:
    processes = [compiler(tmp_path, XYLEM_KERNEL_CACHE=str(tmp_path / "cache")) for _ in range(2)]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    said = []
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        said.append(process.communicate()[0].split())
        assert process.returncode == 0
    assert sum(int(n_compiled) for n_compiled, _ in said) == 2
    # that of the process which compiled them; the others need the kernel only. A constant is no other type
    assert max(int(n_overloads) for _, n_overloads in said) == 1


def test_a_user_without_a_home_has_a_cache_of_his_own(tmp_path: Path) -> None:
    changes = {"HOME": "/dev/null", "TMPDIR": str(tmp_path), "XYLEM_KERNEL_CACHE": ""}
    said = [compiler(tmp_path, **changes).communicate("\n")[0].split() for _ in range(2)]
    assert [int(n_compiled) for n_compiled, _ in said] == [2, 0]
    directory = tmp_path / f"xylem-kernels-{os.getuid()}"
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o777)  # others could have put code into it
    (n_compiled, _) = compiler(tmp_path, **changes).communicate("\n")[0].split()
    assert int(n_compiled) == 2
