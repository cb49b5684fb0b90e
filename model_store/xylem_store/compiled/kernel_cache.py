"""The cache of compiled kernels, which notices an edit in any file that a kernel uses.

numba's cache refuses a directory that it cannot write to, so a read-only image could not use one.
This one is read even if it cannot be written. If it cannot be used at all, calls still work, but
take longer.
"""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

from xylem_store.compiled.cache import remove_unused, shipped_dir, shipped_environments
from xylem_store.compiled.inlining import InlinedCacheImpl
from xylem_store.compiled.kernel_files import KernelFiles
from xylem_store.compiled.loading import CachedKernelImpl
from xylem_store.compiled.progress import PROGRESS


@functools.cache
def _warn_once(message: str, *arguments: str) -> None:
    logging.getLogger(__name__).warning(message, *arguments)


class KernelCache(FunctionCache):
    """numba's cache of a function's code, in which errors of the file system never fail a call.

    Code that cannot be read is compiled, and code that cannot be written is not stored.
    """

    _impl_class: Any = CachedKernelImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        directory = Path(self.cache_path)
        name = self._impl.filename_base
        stamp = self._impl.locator.get_source_stamp()
        shipped = shipped_dir()
        files = None if shipped is None else KernelFiles(str(shipped / directory.name), name, stamp)
        self._cache_file = KernelFiles(str(directory), name, stamp, files)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for this signature, None if there is none that can be read."""
        try:
            rtsys.initialize(target_context)  # the only preparation of numba that kernels need
            overload = self._load_overload(sig, target_context)
        except (
            OSError,
            ImportError,
            AttributeError,
        ):  # the last two: code that refers to a module that has moved
            overload = None
        if overload is None:
            PROGRESS.compiles()
            environments = "" if shipped_dir() else ", ".join(shipped_environments())
            _warn_once(
                "compiling kernels into %s: once for each release, each version of numba, and each "
                "minor version of Python and numpy%s",
                str(Path(self.cache_path).parent),
                f"; those that came with this installation are for {environments}"
                if environments
                else "",
            )
        return overload

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code for this signature if possible."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_once(
                "compiled kernels cannot be kept in %s: %s; each start compiles them again",
                self.cache_path,
                error.strerror or str(error),
            )
        else:
            remove_unused(Path(self.cache_path).parent)


class HelperCache(KernelCache):
    """Stores the compiled code of helpers that kernels inline, as KernelCache that of kernels."""

    _impl_class: Any = InlinedCacheImpl
