"""The errors of reading a store: which file it was, within the store, and what was found there."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from model_store.errors import Corrupt, StoreUnreadable

_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
"""What opening gives for a link, a pipe, a directory or a socket where a file should be."""


@contextlib.contextmanager
def reading(root: Path, path: Path) -> Iterator[None]:
    """Give the errors of reading a file of the store at `root` their types, but for missing files."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        if error.errno in _NO_FILE:
            name = _name_within(root, error.filename or path)
            raise Corrupt(name, "a regular file", "something else") from error
        found = error.strerror or type(error).__name__
        raise StoreUnreadable.of(path, f"to read {_name_within(root, path)}", found) from error


def _name_within(root: Path, path: Path | str) -> str:
    """Return a file's path within the store, for messages that clients see."""
    try:
        return str(Path(path).relative_to(root))
    except ValueError:
        return Path(path).name
