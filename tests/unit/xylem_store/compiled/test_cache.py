"""The cache of compiled kernels: where it can be, what came with the
installation, digests of its keys.
"""

import ast
import os
import re
import shutil
import sys
import time
from pathlib import Path

import llvmlite
import numba
import pytest
from tests.helpers.kernel_processes import COMPILE, KERNELS, compiled, outputs_of

from xylem_store.compiled import sources as source_files
from xylem_store.compiled.cache import cache_dir
from xylem_store.compiled.kernel_files import KernelCacheLocator
from xylem_store.compiled.processors import GENERIC


def test_two_states_of_a_file_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_KERNEL_CACHE", str(tmp_path / "cache"))
    file, found = tmp_path / "second.py", set()
    for state in ("helper = 2\n", "helper = 3\n"):
        file.write_text(state)
        fresh_digest(file)
        locator = KernelCacheLocator.from_function(compiled, str(file))
        assert locator
        found |= {locator.get_cache_path(), locator.get_source_stamp()}
    assert len(found) == 4


def test_code_with_bounds_checks_is_kept_apart(tmp_path: Path) -> None:
    script = "from xylem_store.compiled.cache import cache_dir; print(cache_dir().parent.name)"
    for checked, name in (("0", "plain"), ("1", "checked")):
        assert outputs_of(tmp_path, script, NUMBA_BOUNDSCHECK=checked)[0] == f"{name}\n"


def test_each_mixture_of_versions_has_a_cache_of_its_own() -> None:
    """Kernels are filed by their sources: two environments of one release would evict
    each other's.
    """
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for version in (numba.__version__, llvmlite.__version__, python):
        assert version in cache_dir().name


@pytest.mark.parametrize(("numpy", "part"), [("2.4.5", "2.4"), ("2.4.6", "2.4"), ("2.5.0", "2.5")])
def test_patches_of_numpy_share_a_cache(tmp_path: Path, numpy: str, part: str) -> None:
    """numba chooses by numpy's minor version at most; a patch compiles nothing again."""
    script = (
        f"import numba, numpy; numpy.__version__ = {numpy!r}\n"
        "from xylem_store.compiled.cache import cache_dir; print(cache_dir().name)"
    )
    assert outputs_of(tmp_path, script)[0].endswith(f"-numpy{part}\n")


def test_numba_looks_at_no_patch_of_numpy() -> None:
    """If a release of numba looks at the patch, kernels must be filed by it again."""
    sources = list(Path(numba.__file__).parent.rglob("*.py"))
    readings = {
        line.strip()
        for path in sources
        if not {"tests", "cuda", "misc"} & set(path.parts)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(np|numpy)\.(__version__|version\b)|extract_version\(np\)", line)
    }
    assert readings == {
        "numpy_version = tuple(map(int, np.__version__.split('.')[:2]))",
        "numpy_version = extract_version(np)",  # two numbers too: which numpy numba runs with
    }


def test_that_kernels_are_compiled_is_said_once(tmp_path: Path) -> None:
    for n_said in (1, 0):
        n_compiled, complaints = compiled(tmp_path)
        assert (n_compiled, complaints.count("compiling kernels into")) == (2 * n_said, n_said)
        assert (str(tmp_path / "cache") in complaints) == bool(n_said)


def test_code_of_a_module_that_has_moved_is_compiled_again(tmp_path: Path) -> None:
    """What is inlined is filed by its own source, and so found where it stands in
    another module.
    """
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    (one / "kernels.py").write_text(KERNELS)
    outputs_of(tmp_path, "from one.kernels import total; assert total(4) == 10")
    one.rename(two)
    outputs_of(tmp_path, "from two.kernels import total; assert total(4) == 10")


def test_a_user_without_a_home_has_a_cache_of_his_own(tmp_path: Path) -> None:
    changes = {"HOME": "/dev/null", "TMPDIR": str(tmp_path), "XYLEM_KERNEL_CACHE": ""}
    assert [compiled(tmp_path, **changes)[0] for _ in range(2)] == [2, 0]
    directory = tmp_path / f"xylem-kernels-{os.getuid()}"
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o777)  # others could have put code into it
    assert compiled(tmp_path, **changes)[0] == 2


def refused(tmp_path: Path, script: str, **changes: str) -> tuple[int, str]:
    """How many kernels a process compiles that cannot write all it
    wants, and what it says about that.
    """
    n_compiled, complaints = compiled(tmp_path, script + COMPILE, **changes)
    lines = complaints.splitlines(keepends=True)
    return n_compiled, "".join(line for line in lines if not line.startswith("compiling kernels"))


def test_a_full_disk_costs_time_and_not_the_call(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
    n_compiled, complaints = refused(tmp_path, limit)
    assert (n_compiled, complaints.count("compiled kernels cannot be kept in")) == (2, 1)
    assert "File too large" in complaints
    assert refused(tmp_path, "") == (2, "")


_LOSE_RIGHTS = """
import ctypes  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: without them permissions hold for root too
system, header, held = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
system.capget(header, held)
held[0] &= ~6
assert system.capset(header, held) == 0
"""  # noqa: E501


def test_a_cache_that_can_only_be_read(tmp_path: Path) -> None:
    assert refused(tmp_path, "") == (2, "")
    (index,) = (tmp_path / "cache").rglob("kernels.total*.nbi")
    index.unlink()
    index.parent.chmod(0o555)
    n_compiled, complaints = refused(tmp_path, _LOSE_RIGHTS)
    assert (n_compiled, "Permission denied" in complaints) == (1, True)  # the helper is read
    for found in index.parent.glob("*.nbi"):
        found.chmod(0)
    assert refused(tmp_path, _LOSE_RIGHTS)[0] == 2


def test_a_machine_with_no_directory_for_a_cache(tmp_path: Path) -> None:
    nowhere = {"XYLEM_KERNEL_CACHE": "", "HOME": "/dev/null", "TMPDIR": str(tmp_path / "none")}
    no_other = (
        "import os, tempfile; tempfile._candidate_tempdir_list = lambda: [os.environ['TMPDIR']]\n"
    )
    n_compiled, complaints = refused(tmp_path, no_other, **nowhere)
    assert (n_compiled, "cannot be kept in /dev/null" in complaints) == (2, True)


def aged(directory: Path, days: float) -> Path:
    """A directory that was used so many days ago, with a file in it."""
    directory.mkdir(parents=True)
    (directory / "kernels.total-5.py311.1.nbc").write_bytes(b"code")
    used = time.time() - days * 86400
    os.utime(directory, (used, used))
    return directory


def test_a_process_that_compiles_removes_what_is_long_unused(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "plain" / cache_dir().name
    beam = source_files.package_folders()["xylem"] / "engine" / "kernels" / "search" / "beam.py"
    old = [
        aged(cache / "beam-0123456789abcdef", 31),
        aged(
            cache.parent / "beam-0123456789abcdef", 31
        ),  # of a release that kept no environments apart
        aged(cache.parent / "python3.11-numba0.67.0-llvmlite0.47.0-numpy2.4.0", 31),
    ]
    stay = [
        aged(cache / "beam-fedcba9876543210", 29),
        aged(cache / "somebody-else", 300),
        aged(
            cache / f"beam-{source_files.source_digest(beam)[:16]}", 300
        ),  # this release's, not used as yet
        aged(cache.parent / "python3.11-numba0.67.1-llvmlite0.47.0-numpy2.4.0", 29),
        aged(tmp_path / "cache" / "tuned-0123456789abcdef", 300),
    ]
    assert compiled(tmp_path)[0] == 2
    assert not any(directory.exists() for directory in old)
    assert all((directory / "kernels.total-5.py311.1.nbc").exists() for directory in stay)


def test_a_process_that_only_loads_marks_files_and_removes_none(tmp_path: Path) -> None:
    assert compiled(tmp_path)[0] == 2
    (environment,) = (tmp_path / "cache" / "plain").iterdir()
    (used,) = environment.iterdir()
    old = aged(environment / "beam-0123456789abcdef", 31)
    for directory in (used, environment):
        os.utime(directory, (0, 0))
    assert compiled(tmp_path)[0] == 0
    assert min(used.stat().st_mtime, environment.stat().st_mtime) > time.time() - 3600
    assert old.exists()


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A directory with the kernels of the level generic, as a wheel has them."""
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / "built"), "XYLEM_KERNEL_CPU": GENERIC}
    assert compiled(tmp_path, **cache)[0] == 2
    return tmp_path / "built" / "plain"


@pytest.fixture
def with_shipped(shipped: Path) -> str:
    """What compiles two kernels, with those of the directory as if
    they had come with the installation.
    """
    return f"""
from pathlib import Path
from xylem_store.compiled import cache
cache.SHIPPED = Path({str(shipped)!r})
cache._SHIPPED_HERE = cache.SHIPPED / cache._ENVIRONMENT
{COMPILE}"""


def test_kernels_of_the_installation_are_loaded(
    tmp_path: Path, shipped: Path, with_shipped: str
) -> None:
    nowhere = {"XYLEM_KERNEL_CACHE": "/dev/null/none", "XYLEM_KERNEL_CPU": ""}
    assert compiled(tmp_path, with_shipped, **nowhere) == (0, "")  # where nothing can be written
    (index,) = shipped.rglob("kernels.total*.nbi")
    index.unlink()
    assert [compiled(tmp_path, with_shipped, XYLEM_KERNEL_CPU="")[0] for _ in range(2)] == [1, 0]
    (found,) = (tmp_path / "cache" / "plain").iterdir()
    assert found.name == f"{cache_dir().name}-generic"
    shutil.rmtree(tmp_path / "cache")
    (found,) = shipped.iterdir()
    found.rename(found.with_name("python3.10-numba0.1-generic"))
    n_compiled, complaints = compiled(tmp_path, with_shipped)
    why = "those that came with this installation are for python3.10-numba0.1-generic"
    assert (n_compiled, complaints.count(why)) == (2, 1)


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("is_shipped", [False, True])
def test_a_damaged_file_is_compiled_again(
    tmp_path: Path, shipped: Path, with_shipped: str, suffix: str, is_shipped: bool
) -> None:
    whole = tmp_path / "whole"
    shipped.rename(whole)
    script, level, directory = (
        (with_shipped, "", "cache") if is_shipped else (COMPILE, GENERIC, "built")
    )
    cache = {"XYLEM_KERNEL_CACHE": str(tmp_path / directory), "XYLEM_KERNEL_CPU": level}
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
        assert compiled(tmp_path, script, **cache)[0] == 1
    assert compiled(tmp_path, script, **cache)[0] == 0


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules of kernels, of which the first one imports the second, in place of ours."""
    package = tmp_path / "xylem"
    package.mkdir()
    (package / "first.py").write_text("from xylem.second import helper\n")
    (package / "second.py").write_text("import numpy\nhelper = 1\n")
    (package / "third.py").write_text("import xylem.first\n")
    monkeypatch.setattr(source_files, "package_folders", lambda: {"xylem": package})
    return package


def fresh_digest(path: Path) -> str:
    caches = (source_files._source, source_files._file_of, source_files._names_of_face)
    for known in (source_files.source_digest, *caches):
        known.cache_clear()
    return source_files.source_digest(path)


def test_an_edit_in_any_reached_module_changes_the_digest(
    sources: Path,
) -> None:
    first, second, third = (sources / f"{name}.py" for name in ("first", "second", "third"))
    before = {file: fresh_digest(file) for file in (first, second, third)}
    first.write_text("from xylem.second import helper  # edited\n")
    assert [fresh_digest(file) != before[file] for file in (first, second, third)] == [
        True,
        False,
        True,
    ]
    before = {file: fresh_digest(file) for file in (first, second, third)}
    second.write_text("import numpy\nhelper = 2\n")
    assert [fresh_digest(file) != before[file] for file in (first, second, third)] == [
        True,
        True,
        True,
    ]


OURS = source_files.package_folders()


def names_in_stub(package: str) -> dict[str, str]:
    """The names that a package of ours shows to others, and where each
    is, as Python's parser reads them.
    """
    first, *rest = package.split(".")
    stub = OURS[first].joinpath(*rest, "__init__.pyi") if first in OURS else Path(os.devnull)
    lines = ast.parse(stub.read_text()).body if stub.is_file() else []
    imports = [line for line in lines if isinstance(line, ast.ImportFrom)]
    return {
        alias.name: f"{package}.{line.module}"
        for line in imports
        for alias in line.names
        if line.module
    }


def parsed_imports(path: Path) -> set[Path]:
    """The files of ours that a module imports, as Python's parser finds them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            shown = names_in_stub(node.module)
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            names |= {shown[alias.name] for alias in node.names if alias.name in shown}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    files = set()
    for name in names:
        package, *rest = name.split(".")
        if rest and package in OURS:
            files.add(OURS[package].joinpath(*rest).with_suffix(".py"))
    return {file for file in files if file.is_file()}


def test_imports_are_found_as_the_parser_finds_them() -> None:
    files = [file for folder in OURS.values() for file in folder.rglob("*.py")]
    assert len(files) > 200
    for file in files:
        assert set(source_files._source(file)[1]) == parsed_imports(file)


def test_imports_of_every_form_count(sources: Path) -> None:
    forms = (
        "from xylem import second",
        "    from xylem.second import (  # in a function\n        helper,\n    )",
        "import numpy, xylem.second as other",
        "from xylem import (\n    third,\n    second,\n)",
    )
    for form in forms:
        (sources / "first.py").write_text(f"x = 1\n{form}\n")
        fresh_digest(sources / "first.py")
        assert sources / "second.py" in source_files._source(sources / "first.py")[1]


def test_an_edit_behind_a_face_changes_the_digest(sources: Path) -> None:
    """A kernel that imports a helper of another package does not name the helper's file."""
    face = sources / "parts"
    (face / "inner").mkdir(parents=True)
    for package in (face, face / "inner"):
        (package / "__init__.py").write_text("")
    (face / "__init__.pyi").write_text(
        "from .helpers import helper as helper\nfrom .inner.others import other as other\n"
    )
    (face / "helpers.py").write_text("helper = 1\n")
    (face / "inner" / "others.py").write_text("other = 1\n")
    first = sources / "first.py"
    for imported, file in (
        ("helper", face / "helpers.py"),
        ("other", face / "inner" / "others.py"),
    ):
        first.write_text(f"from xylem.parts import (\n    {imported},\n)\n")
        before = fresh_digest(first)
        file.write_text(f"{imported} = 2\n")
        assert fresh_digest(first) != before
    unused = fresh_digest(first)
    (face / "helpers.py").write_text("helper = 3\n")
    assert fresh_digest(first) == unused
    (face / "__init__.pyi").write_text("from .helpers import other as other\n")
    assert fresh_digest(first) != unused


def test_modules_that_import_each_other_have_a_digest_each(sources: Path) -> None:
    (sources / "second.py").write_text("from xylem.first import helper\n")
    before = [fresh_digest(sources / name) for name in ("first.py", "second.py")]
    (sources / "second.py").write_text("from xylem.first import helper  # edited\n")
    after = [fresh_digest(sources / name) for name in ("first.py", "second.py")]
    assert not set(before) & set(after)
