"""The files of compiled kernels: damaged ones are left out, those of the installation are read first."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile

_DIGEST_BYTES = hashlib.sha256().digest_size


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel in a directory: an index by types, and its code for each.

    Each file ends with the sha256 of the rest. One that does not is as good as none: the kernel is compiled
    again. numba itself would run whatever machine code a damaged file holds.

    shipped   the files that came with the installation, which are only read; None: there are none
    """

    def __init__(self, directory: str, name: str, stamp: str, shipped: KernelFiles | None = None) -> None:
        super().__init__(directory, name, stamp)
        self._shipped = shipped

    def load(self, key: Any) -> Any:
        """Return the code for these types and this processor; None: it is not there."""
        found = None if self._shipped is None else self._shipped.load(key)
        return super().load(key) if found is None else found

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
    """Return whether a file is there and ends with the digest of the rest."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return False
    return hashlib.sha256(stored[:-_DIGEST_BYTES]).digest() == stored[-_DIGEST_BYTES:]
