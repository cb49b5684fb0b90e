"""What all writers of a store need.

A directory of their own in which they prepare what they will rename, locks that tell whether a
writer is alive, enough space, and typed errors.
"""

import contextlib
import errno
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from xylem_store.encoder_files import remove_unused
from xylem_store.errors import StoreUnwritable
from xylem_store.files import StoreFiles
from xylem_store.fs import FileSystem, make_dirs, remove_tree
from xylem_store.identifiers import ALIASES, MODELS, VERSIONS

STAGING = "staging"

LOCK_SECONDS = 60.0  # the time that a writer waits for another writer of the same model

_LOCK = "lock"
_POLL_SECONDS = 0.01
_ATTEMPTS = 16
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def stage(fs: FileSystem, root: Path) -> Iterator[Path]:
    """Make a new locked directory under root/staging; remove it afterwards.

    If it cannot be removed, `collect` removes it later.
    """
    path, lock = _claim(fs, make_dirs(fs, root, STAGING))
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            remove_tree(fs, path)
        with contextlib.suppress(OSError):
            fs.close(lock)


def collect(fs: FileSystem, root: Path) -> list[Path]:
    """Remove the directories of dead writers, and return them; a living writer holds its lock.

    Encoders that nobody needs are removed, too.
    """
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for entry in fs.entries(root / STAGING):
            path = root / STAGING / entry.name
            if not entry.is_dir:
                fs.unlink(path)
                removed.append(path)
            elif _remove_abandoned(fs, path):
                removed.append(path)
    remove_unused(fs, root)
    return removed


@contextlib.contextmanager
def locked(fs: FileSystem, directory: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of a directory.

    Raises StoreUnwritable if another writer holds it for `seconds`.
    """
    deadline = time.monotonic() + seconds
    while (lock := fs.lock(directory / _LOCK)) is None:
        if time.monotonic() > deadline:
            raise StoreUnwritable(
                f"{directory}: expected its lock within {seconds:g} s, found it held by "
                "another writer"
            )
        time.sleep(_POLL_SECONDS)
    with fs.closing(lock):
        yield


def _claim(fs: FileSystem, home: Path) -> tuple[Path, int]:
    """Return a new directory and the descriptor of its lock.

    A collector may remove a new directory before it is locked; then another one is made.
    """
    for _ in range(_ATTEMPTS):
        path = home / secrets.token_hex(8)
        fs.mkdir(path)
        with contextlib.suppress(FileNotFoundError):
            lock = fs.lock(path / _LOCK)
            if lock is not None:
                return path, lock
    raise StoreUnwritable(
        f"{home}: expected a new directory, found {_ATTEMPTS} removed by other writers at once"
    )


def _remove_abandoned(fs: FileSystem, path: Path) -> bool:
    """Remove a staging directory unless its lock is held; return whether it was removed."""
    with contextlib.suppress(FileNotFoundError):  # its writer or another collector removed it first
        lock = fs.lock(path / _LOCK)
        if lock is None:
            return False
        with fs.closing(lock):
            remove_tree(fs, path)
        return True
    return False


class Staging:
    """Where writers of a store prepare what they rename, and how they take turns."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files

    def prepare(self) -> None:
        """Make the store if it does not exist, and check that a version can be staged in it.

        Call this before long work whose result is to be published. The directory that holds the
        store must exist: a mistyped path is refused rather than made. A disk may still fill up
        afterwards. Raises StoreUnwritable.
        """
        with self.writing(0), self.stage():
            pass

    def collect(self) -> list[Path]:
        """Remove what dead writers left in the staging directory, and return it.

        The directories of living writers stay.
        """
        with self.writing(0):
            return collect(self._files.fs, self._files.root)

    # --- for writers

    @contextlib.contextmanager
    def stage(self) -> Iterator[Path]:
        """Make the store if it does not exist, and a directory of this writer in it.

        The directories of dead writers are removed first.
        """
        if not self._files.root.is_dir():
            self._make_root()
        with contextlib.suppress(StoreUnwritable):
            self.collect()
        with stage(self._files.fs, self._files.root) as path:
            yield path

    def _make_root(self) -> None:
        parent = self._files.root.parent
        if not parent.is_dir():
            raise StoreUnwritable(
                f"{self._files.root}: expected {parent} to be a directory, in which the store is "
                "made, found none"
            )
        if self._files.root.exists() and not self._files.root.is_dir():
            raise StoreUnwritable(f"{self._files.root}: expected a directory, found a file")
        make_dirs(self._files.fs, parent, self._files.root.name)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock of a model, whose directories are made if they are missing."""
        home = make_dirs(self._files.fs, self._files.root, MODELS, name)
        for part in (VERSIONS, ALIASES):
            make_dirs(self._files.fs, home, part)
        with locked(self._files.fs, home):
            try:
                yield
            finally:
                self._files.note_change(name)

    @contextlib.contextmanager
    def locked_part(self, part: str) -> Iterator[None]:
        """Hold the lock of a part of the store that is no model, which is made if it is missing."""
        with locked(self._files.fs, make_dirs(self._files.fs, self._files.root, part)):
            yield

    def require_space(self, needed_bytes: int) -> None:
        """Raise StoreUnwritable if the disk has less space."""
        free = self._files.fs.free_bytes(self._files.root)
        if free < needed_bytes:
            raise self._no_space(needed_bytes, free)

    def _no_space(
        self, needed_bytes: int, free_bytes: int, refusal: str | None = None
    ) -> StoreUnwritable:
        """Return the error for a lack of space.

        refusal  the message of the system, which can refuse although bytes are free (a quota)
        """
        needed_space = (
            f"about {needed_bytes:,} bytes of space" if needed_bytes else "space for small files"
        )
        free_space = f"{free_bytes:,} bytes free" + (f" and {refusal!r}" if refusal else "")
        return StoreUnwritable(f"{self._files.root}: expected {needed_space}, found {free_space}")

    @contextlib.contextmanager
    def writing(self, needed_bytes: int) -> Iterator[None]:
        """Turn the errors of the file system into StoreUnwritable.

        needed_bytes  the space that the error names if the disk is full
        """
        try:
            yield
        except OSError as error:
            if error.errno in _NO_SPACE:
                with contextlib.suppress(OSError):
                    raise self._no_space(
                        needed_bytes, self._files.fs.free_bytes(self._files.root), error.strerror
                    ) from error
            raise StoreUnwritable(
                f"{self._files.root}: expected to write, found {error}"
            ) from error
