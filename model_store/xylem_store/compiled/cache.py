"""The cache directories of compiled kernels, named by a digest, and the removal of old ones.

The digest is of everything that decides a kernel's code: the kernel's file, and every file of this
project that it imports. numba's own cache looks at the file of the function only, and does not see
an edit in a helper of another file.
"""

import contextlib
import functools
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path

import llvmlite
import numba
import numpy as np

from xylem_store.compiled.processors import CONFIG, chosen_level, compile_for, directory_for
from xylem_store.compiled.sources import package_folders, source_digest

# numpy's minor version: numba itself looks at no more of it, and releases that differ only in the
# patch give the same code (docs/adr/0027-kernels-and-numpy.md).
_NUMPY = ".".join(np.__version__.split(".")[:2])

_ENVIRONMENT = (
    f"python{sys.version_info[0]}.{sys.version_info[1]}-numba{numba.__version__}"
    f"-llvmlite{llvmlite.__version__}-numpy{_NUMPY}"
)

# The kernels that came with this installation; missing in a checkout.
SHIPPED = Path(__file__).with_name("shipped")

_SHIPPED_HERE = SHIPPED / _ENVIRONMENT


def cache_dir() -> Path:
    """Return the directory of compiled kernels: $XYLEM_KERNEL_CACHE or the user's cache directory.

    If the user has no writable home, as in a container, it is a directory of this user below that
    for temporary files; if that is impossible too, a path that cannot exist.

    Some kernels have a directory of their own: those compiled with NUMBA_BOUNDSCHECK, which changes
    the code without changing its key; those of each combination of numba, llvmlite, and minor
    versions of Python and numpy, because two combinations would evict each other's kernels; and
    those of each level of processors ($XYLEM_KERNEL_CPU, `shipped_dir`), because it must be
    possible to see for which levels there are kernels.
    """
    directory = _directory_of_this_processor()
    level = _level()
    return directory_for(directory, level) if level else directory


def shipped_dir() -> Path | None:
    """Return the directory of usable kernels that came with this installation, None without any.

    They are the kernels of a wheel (deploy/wheels): for some levels of processors, and one
    combination of versions.
    """
    level = _level()
    if level is None or CONFIG.BOUNDSCHECK:
        return None
    directory = directory_for(_SHIPPED_HERE, level)
    return directory if directory.is_dir() else None


def shipped_environments() -> list[str]:
    """Return the environments of the kernels that came with this installation.

    An environment is a combination of versions and a level of processors.
    """
    return sorted(directory.name for directory in SHIPPED.iterdir()) if SHIPPED.is_dir() else []


def use_chosen_level() -> None:
    """Let numba compile and load kernels for the level that $XYLEM_KERNEL_CPU chooses.

    Call this before the first kernel.
    """
    level = _level()
    if level:
        compile_for(level)


def _level() -> str | None:
    """Return the level of processors that kernels are for, None for this machine's processor."""
    return chosen_level(_directory_of_this_processor(), _SHIPPED_HERE)


def _directory_of_this_processor() -> Path:
    """Return where kernels for exactly the processor of this machine are stored."""
    base = os.environ.get("XYLEM_KERNEL_CACHE")
    root = Path(base) if base else _cache_at_home() or _temporary_cache()
    return root / ("checked" if CONFIG.BOUNDSCHECK else "plain") / _ENVIRONMENT


@functools.cache
def _cache_at_home() -> Path | None:
    """Return the user's cache directory if it is writable or not empty, else None."""
    try:
        directory = Path.home() / ".cache" / "xylem" / "kernels"
        directory.mkdir(parents=True, exist_ok=True)
        return directory if os.access(directory, os.W_OK) or any(directory.iterdir()) else None
    except (OSError, RuntimeError):  # RuntimeError: the home directory is unknown
        return None


@functools.cache
def _temporary_cache() -> Path:
    """Return a directory that nobody else can write to: the code in it is executed."""
    try:
        directory = Path(tempfile.gettempdir()) / f"xylem-kernels-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        is_private = (
            stat.S_ISDIR(status.st_mode)
            and status.st_uid == os.getuid()
            and not status.st_mode & 0o077
        )
        return directory if is_private else Path(tempfile.mkdtemp(prefix="xylem-kernels-"))
    except OSError:
        return Path(os.devnull, "xylem-kernels")


def directory_of(file: Path) -> str:
    """Return the name of the directory in a cache for the kernels of a file."""
    return f"{file.stem}-{source_digest(file)[:16]}"


TOUCH_SECONDS = 86400.0
_UNUSED_SECONDS = 30 * TOUCH_SECONDS


@functools.cache
def remove_unused(cache: Path) -> None:
    """Remove what other releases and environments left and nobody has used for 30 days.

    cache   the directory of this environment, whose siblings are those of others

    It runs once in a process. A process that loads a kernel marks the directory as used first. If
    its directory is removed in between all the same, it compiles, and makes the directory again.
    """
    with contextlib.suppress(OSError):
        current_names = {
            directory_of(file)
            for folder in package_folders().values()
            for file in folder.rglob("*.py")
        }
        outdated_directories = (path for path in cache.iterdir() if path.name not in current_names)
        other_environments = (path for path in cache.parent.iterdir() if path != cache)
        for directory in (*outdated_directories, *other_environments):
            unused_since = time.time() - directory.stat().st_mtime
            is_cache_directory = re.fullmatch(
                r".+-[0-9a-f]{16}|python[0-9.]+-numba.+", directory.name
            )
            if is_cache_directory and unused_since > _UNUSED_SECONDS:
                shutil.rmtree(directory, ignore_errors=True)
