"""Whether a store has changed: what is as it was, by its directory's times, is not read again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from model_store.alias import ALIAS_BYTES_MAX
from model_store.errors import Corrupt, StoreUnreadable
from model_store.fs import FileSystem, Stamp, reading
from model_store.identifiers import ALIASES, MODELS, VERSIONS
from model_store.label_info import HEAD_BYTES, LABEL_INFO

T = TypeVar("T")

SETTLED_SECONDS = 2.0
"""So long after its last change a directory is sure to get another time by the next one."""

THOROUGH_SECONDS = 5.0
"""Seconds between two looks that read all: a file system over a network may be late with its times, and
somebody may have written to a file in place."""


class _Seen(NamedTuple):
    """What a path had when its times were these; not settled: it may have changed since, and kept them."""

    stamp: Stamp | None
    is_settled: bool
    found: tuple[Any, ...]


class StoreWatch:
    """Looks at a store, again and again. One thread at a time.

    A directory of the store changes by a rename alone (FORMAT.md), which gives it another time. Two changes
    within a tick of the clock may give it the same: one that has just changed is read at the next look too.
    """

    def __init__(self, root: Path, fs: FileSystem) -> None:
        self._root = root
        self._fs = fs
        self._seen: dict[Path, _Seen] = {}
        self._thorough_at = 0.0

    def generation(self) -> tuple[object, ...]:
        """Return a value that differs when a version was published or deleted, an alias changed, or label
        info was replaced; empty when there is no model.

        Compare for equality only. Cost where nothing changed: the times of two directories and of a file a
        model. Each THOROUGH_SECONDS all is read: the directories, the document of each alias, which is as
        long as the names of labels that it denies, and 8 kB where there is label info.

        Raises StoreUnreadable unless the store is a directory that can be read.
        """
        now = time.monotonic()
        if now >= self._thorough_at:
            self._seen, self._thorough_at = {}, now + THOROUGH_SECONDS
        before, self._seen = self._seen, {}
        self._check_root(before)
        found: list[object] = []
        models = self._root / MODELS
        for entry in self._part(before, models, self._fs.entries):
            home = models / entry.name
            found.append((entry.name, self._part(before, home / VERSIONS, self._fs.entries)))
            found.append((ALIASES, self._part(before, home / ALIASES, self._files)))
            found.append((LABEL_INFO, self._part(before, home / LABEL_INFO, self._label_info)))
        return tuple(found)

    def _check_root(self, before: Mapping[Path, _Seen]) -> None:
        """Raise StoreUnreadable unless the store is a directory that can be read; it may be empty."""
        try:
            stamp = self._fs.stamp(self._root)
            seen = before.get(self._root)
            if seen is None or seen.stamp != stamp:
                self._fs.entries(self._root)
            self._seen[self._root] = _Seen(stamp, True, ())
        except FileNotFoundError:
            raise StoreUnreadable.of(self._root, "the directory of the models", "none") from None
        except NotADirectoryError:
            raise StoreUnreadable.of(self._root, "the directory of the models", "a file") from None
        except OSError as error:
            found = error.strerror or type(error).__name__
            raise StoreUnreadable.of(self._root, "to read the directory of the models", found) from error

    def _part(
        self, before: Mapping[Path, _Seen], path: Path, read: Callable[[Path], Sequence[T]]
    ) -> tuple[T, ...]:
        """Return what there is at a path, () for nothing: as before, or read again."""
        stamp: Stamp | None = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), reading(self._root, path):
            stamp = self._fs.stamp(path)
        seen = before.get(path)
        if seen is None or seen.stamp != stamp or not seen.is_settled:
            found: Sequence[T] = ()
            if stamp is not None:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError), reading(self._root, path):
                    found = read(path)
            is_settled = stamp is None or time.time() - 1e-9 * stamp.changed_ns > SETTLED_SECONDS
            seen = _Seen(stamp, is_settled, tuple(found))
        self._seen[path] = seen
        return seen.found

    def _files(self, directory: Path) -> list[tuple[str, bytes]]:
        """Return the files of a directory and what they hold."""
        found = []
        for entry in self._fs.entries(directory):
            path = directory / entry.name
            with contextlib.suppress(FileNotFoundError, Corrupt), reading(self._root, path):
                found.append((entry.name, self._fs.read(path, ALIAS_BYTES_MAX)))
        return found

    def _label_info(self, path: Path) -> list[bytes]:
        with contextlib.suppress(Corrupt), reading(self._root, path):
            return [self._fs.read(path, HEAD_BYTES - 1)]
        return []
