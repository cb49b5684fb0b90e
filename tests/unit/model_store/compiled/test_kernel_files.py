"""Kernels that came with the installation, and files of kernels that are damaged."""

import shutil
import subprocess
from pathlib import Path

import pytest

from model_store.compiled.cache import cache_dir
from model_store.compiled.processors import GENERIC
from tests.kernel_processes import COMPILE, compiler

SHIPPED = """
from pathlib import Path
from model_store.compiled import cache
cache.SHIPPED = Path({directory!r})
cache._SHIPPED_HERE = cache.SHIPPED / cache._ENVIRONMENT
"""


def compiled(tmp_path: Path, script: str = COMPILE, **changes: str) -> tuple[int, str]:
    """How many of the two kernels a process compiles, and what it says; their result is checked."""
    process = compiler(tmp_path, script, stderr=subprocess.PIPE, **changes)
    said, complaints = process.communicate("\n")
    assert process.returncode == 0, complaints
    return int(said), complaints


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A directory with the kernels of the level generic, as a wheel has them."""
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "built"), "XYLEM_KERNEL_CPU": GENERIC}
    assert compiled(tmp_path, **cache)[0] == 2
    return tmp_path / "built" / "plain"


def test_kernels_of_the_installation_are_loaded_where_nothing_can_be_written(
    tmp_path: Path, shipped: Path
) -> None:
    nowhere = {"XYLEM_KERNEL_CACHE": "/dev/null/none", "XYLEM_KERNEL_CPU": ""}
    script = SHIPPED.format(directory=str(shipped)) + COMPILE
    assert compiled(tmp_path, script, **nowhere) == (0, "")


def test_kernels_for_other_versions_are_compiled_and_a_line_says_why(tmp_path: Path, shipped: Path) -> None:
    (found,) = shipped.iterdir()
    found.rename(found.with_name("python3.10-numba0.1-generic"))
    script = SHIPPED.format(directory=str(shipped)) + COMPILE
    n_compiled, complaints = compiled(tmp_path, script, XYLEM_KERNEL_CACHE=str(tmp_path / "cache"))
    assert n_compiled == 2
    assert complaints.count("those that came with this installation are for python3.10-numba0.1-generic") == 1


def test_what_the_installation_lacks_is_compiled_once(tmp_path: Path, shipped: Path) -> None:
    (index,) = shipped.rglob("kernels.total*.nbi")
    index.unlink()
    script = SHIPPED.format(directory=str(shipped)) + COMPILE
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "cache"), "XYLEM_KERNEL_CPU": ""}
    assert [compiled(tmp_path, script, **cache)[0] for _ in range(2)] == [1, 0]
    assert {path.name for path in (tmp_path / "cache" / "plain").iterdir()} == {f"{cache_dir().name}-generic"}


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("is_shipped", [False, True])
def test_a_damaged_file_is_compiled_again(
    tmp_path: Path, shipped: Path, suffix: str, is_shipped: bool
) -> None:
    whole = tmp_path / "whole"
    shipped.rename(whole)
    script = SHIPPED.format(directory=str(shipped)) + COMPILE if is_shipped else COMPILE
    level = "" if is_shipped else GENERIC
    directory = "cache" if is_shipped else "built"
    for place in (0.0, 0.6, 0.999, None):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        shutil.rmtree(shipped, ignore_errors=True)
        shutil.copytree(whole, shipped)
        (path,) = shipped.rglob(f"kernels.total*.{suffix}")
        content = bytearray(path.read_bytes())
        if place is None:
            del content[len(content) // 2 :]
        else:
            content[int(place * len(content))] ^= 1
        path.write_bytes(content)
        cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / directory), "XYLEM_KERNEL_CPU": level}
        assert compiled(tmp_path, script, **cache)[0] == 1
    assert compiled(tmp_path, script, **cache)[0] == 0
