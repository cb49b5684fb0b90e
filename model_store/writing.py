"""What every writer of the store needs: a directory of its own, a model's lock, space, typed errors."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from model_store import staging
from model_store.errors import StoreUnwritable
from model_store.fs import FileSystem, make_dirs
from model_store.identifiers import ALIASES, MODELS, VERSIONS
from model_store.moves import NOBODY, Cause
from model_store.reading import StoreReader

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreWriter(StoreReader):
    """A directory of models that may be written; see `store.Store`."""

    def collect(self) -> list[Path]:
        """Remove what dead writers left in the staging directory, and return it; the living keep theirs."""
        with self._writing(0):
            return staging.collect(self._fs, self.root)

    def __init__(self, root: Path, *, fs: FileSystem | None = None, by: Cause = NOBODY) -> None:
        """Take the store's directory, and whose moves of aliases these are where a call does not say."""
        super().__init__(root, fs=fs)
        self._by = by

    # --- parts

    @contextlib.contextmanager
    def _stage(self) -> Iterator[Path]:
        """Make the store where there is none, and a directory of our own in it; clear dead ones away."""
        if not self.root.is_dir():
            self._make_root()
        with contextlib.suppress(StoreUnwritable):
            self.collect()
        with staging.stage(self._fs, self.root) as path:
            yield path

    def _make_root(self) -> None:
        """Make the store's directory, but none above it."""
        parent = self.root.parent
        if not parent.is_dir():
            fault = f"expected {parent} to be a directory, in which the store is made, found none"
            raise StoreUnwritable(f"{self.root}: {fault}")
        if self.root.exists() and not self.root.is_dir():
            raise StoreUnwritable(f"{self.root}: expected a directory, found a file")
        make_dirs(self._fs, parent, self.root.name)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the lock of a model, whose directories are made where missing."""
        home = make_dirs(self._fs, self.root, MODELS, name)
        for part in (VERSIONS, ALIASES):
            make_dirs(self._fs, home, part)
        with staging.locked(self._fs, home):
            yield

    def _require_space(self, needed_bytes: int) -> None:
        free = self._fs.free_bytes(self.root)
        if free < needed_bytes:
            raise self._no_space(needed_bytes, free)

    def _no_space(self, needed_bytes: int, free_bytes: int, refusal: str | None = None) -> StoreUnwritable:
        """Return the error; `refusal` is the system's word, which there can be with bytes free (a quota)."""
        wanted = f"about {needed_bytes:,} bytes of space" if needed_bytes else "space for small files"
        found = f"{free_bytes:,} bytes free" + (f" and {refusal!r}" if refusal else "")
        return StoreUnwritable(f"{self.root}: expected {wanted}, found {found}")

    @contextlib.contextmanager
    def _writing(self, needed_bytes: int) -> Iterator[None]:
        """Give the errors of writing their type."""
        try:
            yield
        except OSError as error:
            if error.errno in _NO_SPACE:
                with contextlib.suppress(OSError):
                    free = self._fs.free_bytes(self.root)
                    raise self._no_space(needed_bytes, free, error.strerror) from error
            raise StoreUnwritable(f"{self.root}: expected to write, found {error}") from error
