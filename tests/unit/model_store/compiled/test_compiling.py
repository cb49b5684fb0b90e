"""The cache of compiled kernels: what it is keyed by, and where it can be."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import llvmlite
import numba
import numpy as np
import pytest

from model_store.compiled import cache as kernel_cache
from model_store.compiled import sources as source_files


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules of kernels, of which the first one imports the second, in place of ours."""
    package = tmp_path / "service"
    package.mkdir()
    (package / "first.py").write_text("from service.second import helper\n")
    (package / "second.py").write_text("import numpy\nhelper = 1\n")
    (package / "third.py").write_text("import service.first\n")
    monkeypatch.setattr(source_files, "ROOT", tmp_path)
    return package


def fresh_digest(path: Path) -> str:
    for known in (source_files.source_digest, source_files._source, source_files._file_of):
        known.cache_clear()
    return source_files.source_digest(path)


def test_an_edit_in_any_module_that_is_reached_changes_the_digest(sources: Path) -> None:
    first, third = (fresh_digest(sources / name) for name in ("first.py", "third.py"))
    (sources / "second.py").write_text("import numpy\nhelper = 2\n")
    assert fresh_digest(sources / "first.py") != first
    assert fresh_digest(sources / "third.py") != third


def test_an_edit_elsewhere_does_not(sources: Path) -> None:
    second = fresh_digest(sources / "second.py")
    (sources / "first.py").write_text("from service.second import helper  # edited\n")
    assert fresh_digest(sources / "second.py") == second


def parsed_imports(path: Path) -> set[Path]:
    """The files of ours that a module imports, as Python's parser finds them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    files = (source_files.ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names)
    return {
        file
        for file in files
        if file.is_file() and file.relative_to(source_files.ROOT).parts[0] in source_files.PACKAGES
    }


def test_imports_are_found_as_the_parser_finds_them() -> None:
    packages = [source_files.ROOT / package for package in source_files.PACKAGES]
    files = [file for package in packages for file in package.rglob("*.py")]
    assert len(files) > 200
    for file in files:
        assert set(source_files._source(file).imports) == parsed_imports(file)


def test_imports_of_every_form_count(sources: Path) -> None:
    forms = (
        "from service import second",
        "    from service.second import (  # in a function\n        helper,\n    )",
        "import numpy, service.second as other",
        "from service import (\n    third,\n    second,\n)",
    )
    for form in forms:
        (sources / "first.py").write_text(f"x = 1\n{form}\n")
        fresh_digest(sources / "first.py")
        assert sources / "second.py" in source_files._source(sources / "first.py").imports


def locator_of(file: Path) -> kernel_cache.KernelCacheLocator | None:
    fresh_digest(file)
    return kernel_cache.KernelCacheLocator.from_function(locator_of, str(file))


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


def test_code_with_bounds_checks_is_kept_apart() -> None:
    script = "from model_store.compiled.cache import cache_dir; print(cache_dir().parent.name)"
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


def test_each_mixture_of_versions_has_a_cache_of_its_own() -> None:
    """Kernels are filed by their sources: two environments of one release would evict each other's."""
    versions = (
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        f"{sys.version_info[0]}.{sys.version_info[1]}",
    )
    assert all(version in kernel_cache.cache_dir().name for version in versions)


def test_that_kernels_are_compiled_is_said_once(tmp_path: Path) -> None:
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "cache")}
    for n_compiled, n_said in ((2, 1), (0, 0)):
        process = compiler(tmp_path, stderr=subprocess.PIPE, **cache)
        said, complaints = process.communicate("\n")
        assert (int(said), complaints.count("compiling kernels into")) == (n_compiled, n_said)
        assert (str(tmp_path / "cache") in complaints) == bool(n_said)


_KERNELS = """
from model_store.compiled.decorators import inlined, kernel

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
        self.n_compiled += e.data["dispatcher"].py_func in (plus.py_func, total.py_func)
    def on_end(self, e):
        pass

recorder = Recorder()
event.register("numba:compile", recorder)
print(flush=True)
sys.stdin.readline()
assert total(4) == 10
print(recorder.n_compiled)
"""


def compiler(
    tmp_path: Path, script: str = _COMPILE, *, stderr: int | None = None, **changes: str
) -> subprocess.Popen[str]:
    """A process that compiles two kernels when a line is written to it, and says how many it compiled."""
    (tmp_path / "kernels.py").write_text(_KERNELS)
    root = source_files.ROOT
    environment = {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}", **changes}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
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
        said.append(int(process.communicate()[0]))
        assert process.returncode == 0
    assert sum(said) == 2  # a constant is no other type: the helper is compiled once


def test_a_user_without_a_home_has_a_cache_of_his_own(tmp_path: Path) -> None:
    changes = {"HOME": "/dev/null", "TMPDIR": str(tmp_path), "XYLEM_KERNEL_CACHE": ""}
    assert [int(compiler(tmp_path, **changes).communicate("\n")[0]) for _ in range(2)] == [2, 0]
    directory = tmp_path / f"xylem-kernels-{os.getuid()}"
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o777)  # others could have put code into it
    assert int(compiler(tmp_path, **changes).communicate("\n")[0]) == 2


def refused(tmp_path: Path, script: str, **changes: str) -> tuple[int, str]:
    """How many kernels a process compiles that cannot write all it wants, and what it says about that."""
    process = compiler(tmp_path, script + _COMPILE, stderr=subprocess.PIPE, **changes)
    said, complaints = process.communicate("\n")
    assert process.returncode == 0, complaints
    lines = complaints.splitlines(keepends=True)
    return int(said), "".join(line for line in lines if not line.startswith("compiling kernels"))


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


_RAISING = """
from model_store.compiled.decorators import inlined, kernel

@inlined
def item(array, place):
    if place < 0:
        raise ValueError("expected a place")
    if place >= len(array):
        raise IndexError("expected a place up to", len(array), "found", place)
    return array[place]

@kernel
def both(array, first, second):
    return item(array, first) + item(array, second)
"""

_RAISE = """
import numpy as np
from raising import both, item
for function, arguments in ((both, (1,)), (item, ())):
    assert function(np.arange(5), *arguments, 2) == 2 + sum(arguments)
    for place in (-1, 7):
        try:
            function(np.arange(5), *arguments, place)
        except Exception as error:
            print(repr(error))
"""


def test_errors_of_inlined_helpers_compiled_and_from_the_cache(tmp_path: Path) -> None:
    (tmp_path / "raising.py").write_text(_RAISING)
    expected = ["ValueError('expected a place')", "IndexError('expected a place up to', 5, 'found', 7)"]
    for _ in range(2):
        process = compiler(tmp_path, _RAISE, XYLEM_KERNEL_CACHE=str(tmp_path / "cache"))
        assert process.communicate()[0].splitlines() == expected * 2
        assert process.returncode == 0


def test_an_inlined_helper_has_machine_code_only_when_the_interpreter_calls_it(tmp_path: Path) -> None:
    called = "print(len(plus.overloads)); assert plus(1, 2) == 3; print(len(plus.overloads))"
    script = f"from kernels import plus, total; assert total(4) == 10; {called}"
    for _ in range(2):
        process = compiler(tmp_path, script, XYLEM_KERNEL_CACHE=str(tmp_path / "cache"))
        assert process.communicate()[0].split() == ["0", "1"]


def aged(directory: Path, days: float) -> Path:
    """A directory that was used so many days ago, with a file in it."""
    directory.mkdir(parents=True)
    (directory / "kernels.total-5.py311.1.nbc").write_bytes(b"code")
    used = time.time() - days * 86400
    os.utime(directory, (used, used))
    return directory


def test_a_process_that_compiles_removes_what_nobody_has_used_for_long(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "plain" / kernel_cache.cache_dir().name
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


_CALLING = """
from model_store.compiled.decorators import kernel

@kernel
def inner(n):
    return n + 1

@kernel
def outer(n):
    return 2 * inner(n)
"""

_COUNT_PARSES = """
import llvmlite.binding
parse, parsed = llvmlite.binding.parse_bitcode, []
llvmlite.binding.parse_bitcode = lambda *given, **named: parsed.append(1) or parse(*given, **named)
from calling import inner, outer
for function in {functions}:
    print(function(3), end=" ")
print(len(parsed))
"""


def test_the_llvm_code_of_a_kept_kernel_is_parsed_only_for_one_that_links_it(tmp_path: Path) -> None:
    (tmp_path / "calling.py").write_text(_CALLING)

    def said(functions: str) -> str:
        script = _COUNT_PARSES.format(functions=functions)
        return compiler(tmp_path, script, XYLEM_KERNEL_CACHE=str(tmp_path / "cache")).communicate()[0]

    assert said("(inner,)") == "4 0\n"
    assert said("(inner,)") == "4 0\n"
    assert said("(outer, inner)") == "8 4 1\n"
    assert said("(inner, outer)") == "4 8 0\n"


def test_a_process_neither_imports_linear_algebra_nor_frees_its_kernels_one_by_one(tmp_path: Path) -> None:
    script = (
        "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > 0));"
        "from kernels import total; assert total(4) == 10; print('scipy.linalg' in sys.modules);"
        "import scipy.linalg"
    )
    process = compiler(tmp_path, script, XYLEM_KERNEL_CACHE=str(tmp_path / "cache"))
    assert process.communicate()[0].split() == ["False", "True"]
    assert process.returncode == 0
