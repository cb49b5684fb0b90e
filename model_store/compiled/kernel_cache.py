"""The cache of compiled kernels: it notices an edit in any file that a kernel uses.

numba's cache refuses a directory that it cannot write to: a read-only image could not use one. This one is
read where it can only be read. Where it cannot be used at all, that costs time, not the call.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, _CacheLocator
from numba.core.runtime.nrt import rtsys

from model_store.compiled.cache import (
    TOUCH_SECONDS,
    cache_dir,
    directory_of,
    remove_unused,
    shipped_dir,
    shipped_environments,
)
from model_store.compiled.inlining import InlinedCacheImpl
from model_store.compiled.kernel_files import KernelFiles
from model_store.compiled.loading import CachedKernelImpl
from model_store.compiled.progress import PROGRESS
from model_store.compiled.sources import source_digest


class KernelCacheLocator(_CacheLocator):
    """numba cache locator: a directory for each file of kernels, named and stamped with the sources' digest.

    So two checkouts, or two releases, that share a cache do not overwrite each other's kernels.
    """

    def __init__(self, function: Callable[..., Any], file: Path) -> None:
        self._file = file
        self._line = function.__code__.co_firstlineno
        self._path = cache_dir() / directory_of(file)

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
            if directory.stat().st_mtime < time.time() - TOUCH_SECONDS:
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


@functools.cache
def _say_compiling(directory: str) -> None:
    """Log that kernels are compiled, which takes a minute or two for all of them. Once a process."""
    others = "" if shipped_dir() else ", ".join(shipped_environments())
    logging.getLogger(__name__).warning(
        "compiling kernels into %s: once for each release and each version of Python, numba and numpy%s",
        directory,
        f"; those that came with this installation are for {others}" if others else "",
    )


class _KernelCacheImpl(CachedKernelImpl):
    """How kernels are kept, and where."""

    _locator_classes: Any = (KernelCacheLocator,)


class _InlinedCacheImpl(InlinedCacheImpl):
    """How the code that kernels inline is kept, and where."""

    _locator_classes: Any = (KernelCacheLocator,)


class KernelCache(FunctionCache):
    """numba's cache of a function's code; what the file system refuses is compiled, and not kept."""

    _impl_class: Any = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        directory, locator, name = Path(self.cache_path), self._impl.locator, self._impl.filename_base
        stamp, shipped = locator.get_source_stamp(), shipped_dir()
        files = None if shipped is None else KernelFiles(str(shipped / directory.name), name, stamp)
        self._cache_file = KernelFiles(str(directory), name, stamp, files)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for this signature, None when there is none that can be read."""
        try:
            rtsys.initialize(target_context)  # of all that numba prepares, what kernels need
            found = self._load_overload(sig, target_context)
        except (OSError, ImportError, AttributeError):  # the last two: code of a module that has moved since
            found = None
        if found is None:
            PROGRESS.compiles()
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
