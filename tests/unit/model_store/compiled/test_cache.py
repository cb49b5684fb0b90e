"""The cache of compiled kernels: its keys, where it can be, and what came with the installation."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import llvmlite
import numba
import numpy as np
import pytest

from model_store.compiled import cache as source_files
from model_store.compiled.cache import cache_dir
from model_store.compiled.kernel_files import KernelCacheLocator
from model_store.compiled.processors import GENERIC
from tests.kernel_processes import COMPILE, KERNELS, compiler


def locator_of(file: Path) -> KernelCacheLocator | None:
    source_files._source.cache_clear()
    source_files.source_digest.cache_clear()
    return KernelCacheLocator.from_function(locator_of, str(file))


def test_two_states_of_a_file_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_KERNEL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "second.py"
    file.write_text("helper = 2\n")
    before = locator_of(file)
    assert before
    stamp = before.get_source_stamp()
    file.write_text("helper = 3\n")
    after = locator_of(file)
    assert after
    assert before.get_cache_path() != after.get_cache_path()
    assert after.get_source_stamp() != stamp


def test_code_with_bounds_checks_is_kept_apart() -> None:
    script = "from model_store.compiled.cache import cache_dir; print(cache_dir().parent.name)"
    for checked, name in (("0", "plain"), ("1", "checked")):
        environment = {**os.environ, "NUMBA_BOUNDSCHECK": checked}
        assert (
            subprocess.check_output([sys.executable, "-c", script], env=environment) == f"{name}\n".encode()
        )


def test_each_mixture_of_versions_has_a_cache_of_its_own() -> None:
    """Kernels are filed by their sources: two environments of one release would evict each other's."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for version in (numba.__version__, llvmlite.__version__, np.__version__, python):
        assert version in cache_dir().name


def test_that_kernels_are_compiled_is_said_once(tmp_path: Path) -> None:
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "cache")}
    for n_said in (1, 0):
        n_compiled, complaints = compiled(tmp_path, **cache)
        assert (n_compiled, complaints.count("compiling kernels into")) == (2 * n_said, n_said)
        assert (str(tmp_path / "cache") in complaints) == bool(n_said)


def test_code_of_a_module_that_has_moved_is_compiled_again(tmp_path: Path) -> None:
    """What is inlined is filed by its own source, and so found where it stands in another module."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{source_files.ROOT}:{tmp_path}",
        "XYLEM_KERNEL_CACHE": str(tmp_path / "cache"),
    }
    for package, before in (("one", None), ("two", "one")):
        if before is not None:
            (tmp_path / before).rename(tmp_path / package)
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "kernels.py").write_text(KERNELS)
        script = f"from {package}.kernels import total; assert total(4) == 10"
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_user_without_a_home_has_a_cache_of_his_own(tmp_path: Path) -> None:
    changes = {"HOME": "/dev/null", "TMPDIR": str(tmp_path), "XYLEM_KERNEL_CACHE": ""}
    assert [int(compiler(tmp_path, **changes).communicate("\n")[0]) for _ in range(2)] == [2, 0]
    directory = tmp_path / f"xylem-kernels-{os.getuid()}"
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o777)  # others could have put code into it
    assert int(compiler(tmp_path, **changes).communicate("\n")[0]) == 2


def compiled(tmp_path: Path, script: str = COMPILE, **changes: str) -> tuple[int, str]:
    """How many of the two kernels a process compiles, and what it says; their result is checked."""
    process = compiler(tmp_path, script, stderr=subprocess.PIPE, **changes)
    said, complaints = process.communicate("\n")
    assert process.returncode == 0, complaints
    return int(said), complaints


def refused(tmp_path: Path, script: str, **changes: str) -> tuple[int, str]:
    """How many kernels a process compiles that cannot write all it wants, and what it says about that."""
    n_compiled, complaints = compiled(tmp_path, script + COMPILE, **changes)
    lines = complaints.splitlines(keepends=True)
    return n_compiled, "".join(line for line in lines if not line.startswith("compiling kernels"))


def test_a_full_disk_costs_time_and_not_the_call(tmp_path: Path) -> None:
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "cache")}
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
    n_compiled, complaints = refused(tmp_path, limit, **cache)
    assert n_compiled == 2
    assert complaints.count("compiled kernels cannot be kept in") == 1
    assert "File too large" in complaints
    assert refused(tmp_path, "", **cache) == (2, "")


_LOSE_RIGHTS = """
import ctypes  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: without them permissions hold for root too
system, header, held = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
system.capget(header, held)
held[0] &= ~6
assert system.capset(header, held) == 0
"""


def test_a_cache_that_can_only_be_read(tmp_path: Path) -> None:
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "cache")}
    assert refused(tmp_path, "", **cache) == (2, "")
    (index,) = (tmp_path / "cache").rglob("kernels.total*.nbi")
    index.unlink()
    index.parent.chmod(0o555)
    n_compiled, complaints = refused(tmp_path, _LOSE_RIGHTS, **cache)
    assert n_compiled == 1  # the helper is read
    assert "Permission denied" in complaints
    for found in index.parent.glob("*.nbi"):
        found.chmod(0)
    assert refused(tmp_path, _LOSE_RIGHTS, **cache)[0] == 2


def test_a_machine_with_no_directory_for_a_cache(tmp_path: Path) -> None:
    nowhere = {"XYLEM_KERNEL_CACHE": "", "HOME": "/dev/null", "TMPDIR": str(tmp_path / "none")}
    no_other = "import tempfile; tempfile._candidate_tempdir_list = lambda: [os.environ['TMPDIR']]\n"
    n_compiled, complaints = refused(tmp_path, f"import os\n{no_other}", **nowhere)
    assert n_compiled == 2
    assert "cannot be kept in /dev/null" in complaints


def aged(directory: Path, days: float) -> Path:
    """A directory that was used so many days ago, with a file in it."""
    directory.mkdir(parents=True)
    (directory / "kernels.total-5.py311.1.nbc").write_bytes(b"code")
    used = time.time() - days * 86400
    os.utime(directory, (used, used))
    return directory


def test_a_process_that_compiles_removes_what_nobody_has_used_for_long(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "plain" / cache_dir().name
    beam = source_files.ROOT / "service" / "kernels" / "search" / "beam.py"
    old = [
        aged(cache / "beam-0123456789abcdef", 31),
        aged(cache.parent / "beam-0123456789abcdef", 31),  # of a release that kept no environments apart
        aged(cache.parent / "python3.11-numba0.67.0-llvmlite0.47.0-numpy2.4.0", 31),
    ]
    stay = [
        aged(cache / "beam-fedcba9876543210", 29),
        aged(cache / "somebody-else", 300),
        aged(cache / f"beam-{source_files.source_digest(beam)[:16]}", 300),  # this release's, not used as yet
        aged(cache.parent / "python3.11-numba0.67.1-llvmlite0.47.0-numpy2.4.0", 29),
        aged(tmp_path / "cache" / "tuned-0123456789abcdef", 300),
    ]
    compiler(tmp_path, XYLEM_KERNEL_CACHE=str(tmp_path / "cache")).communicate("\n")
    assert not any(directory.exists() for directory in old)
    assert all((directory / "kernels.total-5.py311.1.nbc").exists() for directory in stay)


def test_a_process_that_only_loads_marks_what_it_uses_and_removes_nothing(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    compiler(tmp_path, XYLEM_KERNEL_CACHE=cache).communicate("\n")
    (environment,) = (tmp_path / "cache" / "plain").iterdir()
    (used,) = environment.iterdir()
    for directory in (used, environment):
        os.utime(directory, (0, 0))
    old = aged(environment / "beam-0123456789abcdef", 31)
    os.utime(environment, (0, 0))
    assert int(compiler(tmp_path, XYLEM_KERNEL_CACHE=cache).communicate("\n")[0]) == 0
    assert min(used.stat().st_mtime, environment.stat().st_mtime) > time.time() - 3600
    assert old.exists()


def with_shipped(directory: Path) -> str:
    """What compiles two kernels, with those of a directory as if they had come with the installation."""
    return f"""
from pathlib import Path
from model_store.compiled import cache
cache.SHIPPED = Path({str(directory)!r})
cache._SHIPPED_HERE = cache.SHIPPED / cache._ENVIRONMENT
{COMPILE}"""


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
    assert compiled(tmp_path, with_shipped(shipped), **nowhere) == (0, "")


def test_kernels_for_other_versions_are_compiled_and_a_line_says_why(tmp_path: Path, shipped: Path) -> None:
    (found,) = shipped.iterdir()
    found.rename(found.with_name("python3.10-numba0.1-generic"))
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "cache")}
    n_compiled, complaints = compiled(tmp_path, with_shipped(shipped), **cache)
    assert n_compiled == 2
    assert complaints.count("those that came with this installation are for python3.10-numba0.1-generic") == 1


def test_what_the_installation_lacks_is_compiled_once(tmp_path: Path, shipped: Path) -> None:
    (index,) = shipped.rglob("kernels.total*.nbi")
    index.unlink()
    script = with_shipped(shipped)
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
    script, level, directory = COMPILE, GENERIC, "built"
    if is_shipped:
        script, level, directory = with_shipped(shipped), "", "cache"
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
