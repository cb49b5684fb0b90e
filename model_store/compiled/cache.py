"""Where compiled kernels are kept: a cache that notices an edit in any file a kernel uses.

numba's cache refuses a directory that it cannot write to: a read-only image could not use one. This one is
read where it can only be read. Where it cannot be used at all, that costs time, not the call.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config as _numba_config
from numba.core.caching import FunctionCache, _CacheLocator

from model_store.compiled.inlining import InlinedCacheImpl
from model_store.compiled.loading import KeptKernelImpl
from model_store.compiled.processors import chosen_level, compile_for, directory_for
from model_store.compiled.sources import PACKAGES, ROOT, source_digest

_CONFIG: Any = _numba_config
"""numba sets its attributes when it is imported; its type stubs do not know them."""

_ENVIRONMENT = (
    f"python{sys.version_info[0]}.{sys.version_info[1]}-numba{numba.__version__}"
    f"-llvmlite{llvmlite.__version__}-numpy{np.__version__}"
)


def cache_dir() -> Path:
    """Where compiled kernels are kept: $XYLEM_KERNEL_CACHE, else the user's cache directory.

    Where the user has no home that can be written to, as in a container, it is a directory of the user's own
    below that for temporary files; where that is not to be had either, one that cannot exist.
    NUMBA_BOUNDSCHECK changes the code without changing its key, so it has a directory of its own, and so has
    each mixture of Python, numba, llvmlite and numpy: two of them would evict each other's kernels. So
    have the levels of processors ($XYLEM_KERNEL_CPU): it must be seen which are there.
    """
    directory = _directory_of_this_processor()
    level = chosen_level(directory)
    return directory_for(directory, level) if level else directory


def use_chosen_level() -> None:
    """Let numba compile and load what $XYLEM_KERNEL_CPU says. To be called before the first kernel."""
    level = chosen_level(_directory_of_this_processor())
    if level:
        compile_for(level)


def _directory_of_this_processor() -> Path:
    """Return where kernels for the very processor of this machine are kept."""
    base = os.environ.get("XYLEM_KERNEL_CACHE")
    root = Path(base) if base else _cache_at_home() or _temporary_cache()
    return root / ("checked" if _CONFIG.BOUNDSCHECK else "plain") / _ENVIRONMENT


@functools.cache
def _cache_at_home() -> Path | None:
    """Return the user's cache directory, if it can be written to or holds something."""
    try:
        directory = Path.home() / ".cache" / "xylem" / "kernels"
        directory.mkdir(parents=True, exist_ok=True)
        return directory if os.access(directory, os.W_OK) or any(directory.iterdir()) else None
    except (OSError, RuntimeError):  # RuntimeError: no home is known
        return None


@functools.cache
def _temporary_cache() -> Path:
    """Return a directory that nobody else can write to: what it holds is executed."""
    try:
        directory = Path(tempfile.gettempdir()) / f"xylem-kernels-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        return directory if is_mine else Path(tempfile.mkdtemp(prefix="xylem-kernels-"))
    except OSError:
        return Path(os.devnull, "xylem-kernels")


def _directory_of(file: Path) -> str:
    """Return the name of the directory that the kernels of a file have in a cache."""
    return f"{file.stem}-{source_digest(file)[:16]}"


class KernelCacheLocator(_CacheLocator):
    """numba cache locator: a directory for each file of kernels, named and stamped with the sources' digest.

    So two checkouts, or two releases, that share a cache do not overwrite each other's kernels.
    """

    def __init__(self, function: Callable[..., Any], file: Path) -> None:
        self._file = file
        self._line = function.__code__.co_firstlineno
        self._path = cache_dir() / _directory_of(file)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelCacheLocator | None:
        """Return a locator for `py_func`; None when it is not in a file."""
        file = Path(py_file).resolve()
        if not file.is_file():
            return None
        return cls(py_func, file)

    def ensure_cache_path(self) -> None:
        """Make the directory, and mark it and the environment's as used; raise OSError when that fails."""
        self._path.mkdir(parents=True, exist_ok=True)
        for directory in (self._path, self._path.parent):
            if directory.stat().st_mtime < time.time() - _TOUCH_SECONDS:
                os.utime(directory)

    def get_cache_path(self) -> str:
        """Return the directory."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return the digest of everything that decides the compiled code."""
        return source_digest(self._file)

    def get_disambiguator(self) -> str:
        """Return what tells two functions of one name in a file apart."""
        return str(self._line)


@functools.cache
def _say_once(directory: str, error: str) -> None:
    """Log that compiled kernels are not kept."""
    logging.getLogger(__name__).warning(
        "compiled kernels cannot be kept in %s: %s; each start compiles them again", directory, error
    )


_TOUCH_SECONDS = 86400.0
_UNUSED_SECONDS = 30 * _TOUCH_SECONDS


def _names_of_this_release() -> set[str]:
    """Return the names of the directories that this release's kernels have in a cache."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {_directory_of(file) for file in files}


@functools.cache
def _say_compiling(directory: str) -> None:
    """Log that kernels are compiled, which takes a minute or two for all of them. Once a process."""
    logging.getLogger(__name__).warning(
        "compiling kernels into %s: once for each release and each version of Python, numba and numpy",
        directory,
    )


@functools.cache
def remove_unused(cache: Path) -> None:
    """Remove what other releases and environments left and nobody has used for 30 days. Once a process.

    cache   the directory of this environment, beside which are those of others

    A process that loads a kernel has marked the directory before. One that comes in between finds less than
    there was, which is a cache without it: it compiles, and makes the directory again.
    """
    with contextlib.suppress(OSError):
        stays = _names_of_this_release()
        mine = (path for path in cache.iterdir() if path.name not in stays)
        others = (path for path in cache.parent.iterdir() if path != cache)
        for directory in (*mine, *others):
            unused_since = time.time() - directory.stat().st_mtime
            is_one = re.fullmatch(r".+-[0-9a-f]{16}|python[0-9.]+-numba.+", directory.name)
            if is_one and unused_since > _UNUSED_SECONDS:
                shutil.rmtree(directory, ignore_errors=True)


class _KernelCacheImpl(KeptKernelImpl):
    """How kernels are kept, and where."""

    _locator_classes: Any = (KernelCacheLocator,)


class _InlinedCacheImpl(InlinedCacheImpl):
    """How the code that kernels inline is kept, and where."""

    _locator_classes: Any = (KernelCacheLocator,)


class KernelCache(FunctionCache):
    """numba's cache of a function's code; what the file system refuses is compiled, and not kept."""

    _impl_class: Any = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for this signature, None when there is none that can be read."""
        try:
            found = super().load_overload(sig, target_context)
        except (OSError, ImportError, AttributeError):  # the last two: code of a module that has moved since
            found = None
        if found is None:
            _say_compiling(str(Path(self.cache_path).parent))
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for this signature if that is possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say_once(self.cache_path, error.strerror or str(error))
        else:
            remove_unused(Path(self.cache_path).parent)


class HelperCache(KernelCache):
    """The same for code that kernels inline."""

    _impl_class: Any = _InlinedCacheImpl
