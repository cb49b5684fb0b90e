"""The files of compiled kernels: where they are, and how kernels are loaded from them.

Damaged files are ignored, and those of the installation are read first. numba stores the LLVM code
of a kernel beside its machine code, for kernels that are compiled and call it, and parses it
whenever the kernel is loaded. Here it is parsed only when it is needed: a process that compiles
nothing does without.
"""

import contextlib
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile, _CacheLocator

from xylem_store.compiled.cache import TOUCH_SECONDS, cache_dir, directory_of
from xylem_store.compiled.sources import source_digest

_DIGEST_BYTES = hashlib.sha256().digest_size


class KernelCacheLocator(_CacheLocator):
    """numba cache locator: a directory for each file of kernels, named by the sources' digest.

    The digest is the stamp of the sources too. So two checkouts, or two releases, that share a
    cache do not overwrite each other's kernels.
    """

    def __init__(self, function: Callable[..., Any], file: Path) -> None:
        self._file = file
        self._line = function.__code__.co_firstlineno
        self._path = cache_dir() / directory_of(file)

    @classmethod
    def from_function(
        cls, py_func: Callable[..., Any], py_file: str
    ) -> "KernelCacheLocator | None":
        """Return a locator for `py_func`, None if it is not in a file."""
        file = Path(py_file).resolve()
        return cls(py_func, file) if file.is_file() else None

    def ensure_cache_path(self) -> None:
        """Make the directory, and mark it and the environment's as used. Raises OSError."""
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
        """Return what distinguishes functions of the same name in a file: the line."""
        return str(self._line)


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel in a directory: an index by types, and the code for each.

    shipped   the files that came with the installation, which are only read; None without any

    Each file ends with the sha256 of everything before it. A file that does not is ignored, and the
    kernel is compiled again. numba itself would run whatever machine code a damaged file holds.
    """

    def __init__(
        self, directory: str, name: str, stamp: str, shipped: "KernelFiles | None" = None
    ) -> None:
        super().__init__(directory, name, stamp)
        self._shipped = shipped

    def load(self, key: Any) -> Any:
        """Return the code for these types and this processor, None if it is not stored."""
        shipped_code = None if self._shipped is None else self._shipped.load(key)
        return super().load(key) if shipped_code is None else shipped_code

    def _load_index(self) -> Any:
        return super()._load_index() if _is_whole(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if _is_whole(Path(self._data_path(name))) else None

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _is_whole(path: Path) -> bool:
    """Return whether a file exists and ends with the digest of everything before it."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return False
    return hashlib.sha256(stored[:-_DIGEST_BYTES]).digest() == stored[-_DIGEST_BYTES:]
