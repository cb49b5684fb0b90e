"""Take out of this interpreter's installation what Xylem never
imports: `python trim.py [EXTRA ...]`.

ADR 14 has what goes, what that saves, and how it is checked: kernels are compiled afterwards, by
training and asking a model of every kind, and `make image-test` does what users do in a container.
"""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

PACKAGE = "xylem-serve"

SUFFIXES = {".pyi", ".pyx", ".pxd", ".pxi", ".h", ".hpp", ".c", ".cpp", ".a", ".f", ".f90", ".tmpl"}
"""Files for compilers and type checkers. A library is a `.so`, or a `.so.` and a number."""

OURS = {"xylem", "xylem_store"}
"""Their stubs stay: they list what each package shows to others, and the packages read them."""

TESTS = {"tests", "_tests"}
"""Directories of libraries' own tests."""

UNUSED = (
    "botocore/data/*",  # descriptions of the services of a cloud; KEPT has what is used
    "botocore/cacert.pem",  # certifi's are used
    "numba/cuda",
    "numba/np/ufunc/tbbpool.*",  # threads of numba's own: kernels run in ours
    "numba/np/ufunc/omppool.*",
    "numpy/distutils",
    "pygments/lexers/*",  # rich shows Python's code, in tracebacks
    "scipy/*",
    "scipy/sparse/csgraph",
    "scipy/sparse/linalg",
    "scipy.libs",  # a second BLAS, for scipy.linalg
    "sqlalchemy/dialects/mssql",
    "sqlalchemy/dialects/mysql",
    "sqlalchemy/dialects/oracle",
    "sqlalchemy/testing",
)
"""What goes, as patterns of paths below site-packages."""

KEPT = (
    "botocore/data/_retry.json",
    "botocore/data/endpoints.json",
    "botocore/data/partitions.json",
    "botocore/data/s3",
    "botocore/data/sdk-default-configuration.json",
    "botocore/data/sso*",
    "botocore/data/sts",
    "pygments/lexers/__init__.py",
    "pygments/lexers/_mapping.py",
    "pygments/lexers/python.py",
    "pygments/lexers/special.py",
    "scipy/*.py",
    "scipy/*.so",
    "scipy/_lib",
    "scipy/sparse",
)
"""What stays though a pattern of UNUSED covers it; within it the other patterns hold."""

STRIPPED = (
    *("llvmlite", "numba", "sqlalchemy", "httptools", "uvloop"),
    *("aiohttp", "frozenlist", "multidict", "propcache", "wrapt"),
)
"""Packages whose libraries lose their symbols.

Not those that come with a directory `.libs`: what was rewritten to find it cannot be loaded when
stripped.
"""


def normalised(name: str) -> str:
    """Return the name of a distribution as indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(extras: frozenset[str]) -> set[str]:
    """Return the names of the distributions that PACKAGE needs
    with these extras, itself among them.
    """
    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(PACKAGE, extras)]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        found.add(normalised(name))
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                continue
            step = requirement.name, frozenset(requirement.extras)
            if step not in seen:
                seen.add(step)
                waiting.append(step)
    return found


def files_of(package: Distribution) -> Iterator[Path]:
    """Yield the files that a distribution installed."""
    for file in package.files or ():
        yield Path(str(package.locate_file(file))).resolve()


def remove(path: Path) -> None:
    """Remove a file or a directory, and the directories above that are empty then."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if path.parent.is_dir() and not any(path.parent.iterdir()):
        remove(path.parent)


def is_unused(path: Path, site: Path) -> bool:
    """Return whether a path below site-packages goes: by UNUSED
    and KEPT, as tests, or by its suffix.
    """
    name = str(path.relative_to(site))
    is_kept = any(fnmatch.fnmatchcase(name, pattern) for pattern in KEPT)
    # Each pattern is of as many parts as it has: fnmatch's * would cross the slashes.
    is_listed = any(
        fnmatch.fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")
        for pattern in UNUSED
    )
    if path.is_dir():
        return (is_listed and not is_kept) or path.name in TESTS
    is_ours = name.split("/")[0] in OURS
    return (is_listed and not is_kept) or (path.suffix in SUFFIXES and not is_ours)


def unused(directory: Path, site: Path) -> Iterator[Path]:
    """Yield what goes below a directory, whole directories as one path."""
    for path in sorted(directory.iterdir()):
        if is_unused(path, site):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from unused(path, site)


def strip(site: Path) -> None:
    """Take the symbols for debuggers and linkers out of the shared libraries of STRIPPED."""
    libraries = [path for name in STRIPPED for path in (site / name).rglob("*.so")]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


def main() -> None:
    """Remove, strip, and say how many megabytes are left."""
    site = Path(sysconfig.get_path("purelib")).resolve()
    stays = needed(frozenset(sys.argv[1:]))
    others = [each for each in distributions() if normalised(each.metadata["Name"]) not in stays]
    for package in others:
        for file in list(files_of(package)):
            if file.is_relative_to(sys.prefix):
                remove(file)
    for path in [*unused(site, site), *site.rglob("__pycache__")]:
        remove(path)
    for record in site.glob("*.dist-info/RECORD"):
        record.unlink()  # of files that are not there any more
    strip(site)
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    sys.stdout.write(f"{len(others)} distributions removed, {size / 1e6:.0f} MB left in {site}\n")


if __name__ == "__main__":
    main()
