"""The base of all writers of the store; and the part of the store that writes label info.

Writers need a directory of their own in which they prepare what they will rename, locks that tell
whether a writer is alive, enough space, and typed errors.
"""

import contextlib
import errno
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from xylem_store.archive import Readable, content_of
from xylem_store.errors import Corrupt, ModelNotFound, StoreUnwritable
from xylem_store.fs import FileSystem, make_dirs, remove_tree, write_file
from xylem_store.identifiers import ALIASES, MODELS, VERSIONS
from xylem_store.label_info import (
    LABEL_INFO,
    Head,
    LabelInfo,
    head_digest,
    label_info_pieces,
    map_label_info,
)
from xylem_store.moves import NOBODY, Cause
from xylem_store.reading import Check, StoreReader, no_check
from xylem_store.version import HEADROOM_BYTES

STAGING = "staging"

LOCK_SECONDS = 60.0
"""The time that a writer waits for another writer of the same model."""

_LOCK = "lock"
_POLL_SECONDS = 0.01
_ATTEMPTS = 16


@contextlib.contextmanager
def stage(fs: FileSystem, root: Path) -> Iterator[Path]:
    """Make a new locked directory under root/staging; remove it afterwards.

    If it cannot be removed, `collect` removes it later.
    """
    home = make_dirs(fs, root, STAGING)
    path, lock = _claim(fs, home)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            remove_tree(fs, path)
        with contextlib.suppress(OSError):
            fs.close(lock)


def collect(fs: FileSystem, root: Path) -> list[Path]:
    """Remove the directories of dead writers, and return them; a living writer holds its lock."""
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for entry in fs.entries(root / STAGING):
            path = root / STAGING / entry.name
            if not entry.is_dir:
                fs.unlink(path)
                removed.append(path)
            elif _remove_abandoned(fs, path):
                removed.append(path)
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
    try:
        yield
    finally:
        fs.close(lock)


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
        try:
            remove_tree(fs, path)
        finally:
            fs.close(lock)
        return True
    return False


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreWriter(StoreReader):
    """A directory of models, for writing; see `store.Store`."""

    def collect(self) -> list[Path]:
        """Remove what dead writers left in the staging directory, and return it.

        The directories of living writers stay.
        """
        with self._writing(0):
            return collect(self._fs, self.root)

    def __init__(
        self,
        root: Path,
        *,
        fs: FileSystem | None = None,
        cause: Cause = NOBODY,
        check: Check = no_check,
    ) -> None:
        """Take what `StoreReader` takes, and the cause of moves of aliases in calls without one."""
        super().__init__(root, fs=fs, check=check)
        self._cause = cause

    def put_label_info(self, name: str, info: LabelInfo) -> None:
        """Replace the label info of a model; processes that have the old one open keep it.

        It takes effect in one step, and survives a loss of power. Raises ModelNotFound or
        StoreUnwritable.
        """
        needed = info.head.file_bytes + HEADROOM_BYTES
        self._require_model(name)
        with self._writing(needed), self._stage() as stage:
            self._require_space(needed)
            write_file(self._fs, stage / LABEL_INFO, label_info_pieces(info))
            self._replace_label_info(name, stage / LABEL_INFO)

    def export_label_info(self, name: str, file: BinaryIO) -> Head | None:
        """Write the file of a model's label info, verified first; return its head, or None.

        None means that there is no label info. Raises Corrupt and StoreUnreadable, and what `file`
        raises.
        """
        info = self.label_info(name)
        if info is None:
            return None
        for piece in label_info_pieces(info):
            file.write(piece)
        return info.head

    def import_label_info(self, name: str, file: Readable, n_bytes: int, digest: str) -> None:
        """Replace the label info of a model by a file that `export_label_info` wrote.

        file     read once
        n_bytes  the length of the file
        digest   its `head_digest`

        All digests and invariants are checked before it is replaced. Raises Corrupt, also for
        another digest, and what `put_label_info` raises.
        """
        self._require_model(name)
        with self._writing(n_bytes), self._stage() as stage:
            self._require_space(n_bytes + HEADROOM_BYTES)
            write_file(self._fs, stage / LABEL_INFO, content_of(file, LABEL_INFO, n_bytes))
            if file.read(1):
                raise Corrupt(LABEL_INFO, f"{n_bytes} bytes", "more")
            actual_digest = head_digest(
                map_label_info(self._fs, stage / LABEL_INFO, LABEL_INFO).head
            )
            if actual_digest != digest:
                raise Corrupt(LABEL_INFO, f"a head of digest {digest}", actual_digest)
            self._replace_label_info(name, stage / LABEL_INFO)

    def delete_label_info(self, name: str) -> bool:
        """Remove the label info of a model; return whether there was any.

        Raises what `put_label_info` raises.
        """
        self._require_model(name)
        with self._writing(0), self._stage() as stage, self._locked(name):
            return self._remove_label_info(name, stage)

    # --- parts

    @contextlib.contextmanager
    def _stage(self) -> Iterator[Path]:
        """Make the store if it does not exist, and a directory of this writer in it.

        The directories of dead writers are removed first.
        """
        if not self.root.is_dir():
            self._make_root()
        with contextlib.suppress(StoreUnwritable):
            self.collect()
        with stage(self._fs, self.root) as path:
            yield path

    def _make_root(self) -> None:
        parent = self.root.parent
        if not parent.is_dir():
            fault = f"expected {parent} to be a directory, in which the store is made, found none"
            raise StoreUnwritable(f"{self.root}: {fault}")
        if self.root.exists() and not self.root.is_dir():
            raise StoreUnwritable(f"{self.root}: expected a directory, found a file")
        make_dirs(self._fs, parent, self.root.name)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the lock of a model, whose directories are made if they are missing."""
        home = make_dirs(self._fs, self.root, MODELS, name)
        for part in (VERSIONS, ALIASES):
            make_dirs(self._fs, home, part)
        with locked(self._fs, home):
            yield

    def _require_space(self, needed_bytes: int) -> None:
        free = self._fs.free_bytes(self.root)
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
        return StoreUnwritable(f"{self.root}: expected {needed_space}, found {free_space}")

    @contextlib.contextmanager
    def _writing(self, needed_bytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _NO_SPACE:
                with contextlib.suppress(OSError):
                    free = self._fs.free_bytes(self.root)
                    raise self._no_space(needed_bytes, free, error.strerror) from error
            raise StoreUnwritable(f"{self.root}: expected to write, found {error}") from error

    def _require_model(self, name: str) -> None:
        if not self.versions(name):
            raise self._missing(name, ModelNotFound(name))

    def _replace_label_info(self, name: str, staged: Path) -> None:
        with self._locked(name):
            self._require_model(name)
            self._fs.rename(staged, self._home(name) / LABEL_INFO)
            self._fs.fsync_dir(self._home(name))

    def _remove_label_info(self, name: str, stage: Path) -> bool:
        """Move label info away, if there is any, and sync; called under the lock.

        Return whether there was.
        """
        if LABEL_INFO not in [entry.name for entry in self._entries(self._home(name))]:
            return False
        self._fs.rename(self._home(name) / LABEL_INFO, stage / LABEL_INFO)
        self._fs.fsync_dir(self._home(name))
        return True
