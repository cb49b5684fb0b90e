"""Directories in which writers prepare what they will rename, and the locks that tell the living apart."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from model_store.errors import StoreUnwritable
from model_store.fs import FileSystem, make_dirs, remove_tree

STAGING = "staging"

LOCK_SECONDS = 60.0
"""How long a writer waits for another writer of the same model."""

_LOCK = "lock"
_POLL_SECONDS = 0.01
_ATTEMPTS = 16


@contextlib.contextmanager
def stage(fs: FileSystem, root: Path) -> Iterator[Path]:
    """Make a directory of our own under root/staging, locked while we live; remove it afterwards.

    What cannot be removed now, `collect` removes later.
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
    """Remove what dead writers left, and return it; who holds its lock lives."""
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
    """Hold the lock of a directory; raise StoreUnwritable when another holds it for too long."""
    deadline = time.monotonic() + seconds
    while (lock := fs.lock(directory / _LOCK)) is None:
        if time.monotonic() > deadline:
            raise StoreUnwritable(
                f"{directory}: expected its lock within {seconds:g} s, found it held by another writer"
            )
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        fs.close(lock)


def _claim(fs: FileSystem, home: Path) -> tuple[Path, int]:
    """Return a new directory and the descriptor of its lock; a collector may have taken it before us."""
    for _ in range(_ATTEMPTS):
        path = home / secrets.token_hex(8)
        fs.mkdir(path)
        with contextlib.suppress(FileNotFoundError):
            lock = fs.lock(path / _LOCK)
            if lock is not None:
                return path, lock
    raise StoreUnwritable(f"{home}: expected a directory to stay, found {_ATTEMPTS} removed at once")


def _remove_abandoned(fs: FileSystem, path: Path) -> bool:
    """Remove a staging directory unless its lock is held; return whether it was removed."""
    with contextlib.suppress(FileNotFoundError):  # its writer or another collector was faster
        lock = fs.lock(path / _LOCK)
        if lock is None:
            return False
        try:
            remove_tree(fs, path)
        finally:
            fs.close(lock)
        return True
    return False
