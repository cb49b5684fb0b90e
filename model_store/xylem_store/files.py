"""The paths of a store, and its small files: what its reader and its writers share."""

import contextlib
import errno
from pathlib import Path

from xylem_store.errors import StoreUnreadable
from xylem_store.fs import Entry, FileSystem, reading
from xylem_store.identifiers import (
    ALIASES,
    JOURNAL,
    MODELS,
    MOVES,
    VERSIONS,
    alias_in,
    check_model,
    check_version,
    is_model,
)
from xylem_store.moves import MOVES_BYTES_MAX

# When the journal is longer, it is removed, and begins anew: readers then look at all models.
JOURNAL_BYTES_MAX = 1 << 20


class StoreFiles:
    """A store as directories and small files; whatever has another name than ours is ignored."""

    def __init__(self, root: Path, fs: FileSystem | None = None) -> None:
        """Take the store's directory, and the file system, which tests replace."""
        self.root = Path(root)
        self.fs = fs or FileSystem()
        self._models = f"{self.root}/{MODELS}"

    def home(self, name: str) -> Path:
        """Return the directory of a model."""
        return Path(self.text_path(name))

    def text_path(self, name: str, *parts: str) -> str:
        """Return the path of a part of a model as a text.

        Paths would take a third of a look at many models.
        """
        return "/".join((self._models, check_model(name), *parts))

    def version_path(self, name: str, version: int) -> Path:
        """Return the directory of a version."""
        return Path(self.text_path(name, VERSIONS, str(check_version(version))))

    def model_names(self) -> list[str]:
        """Return the names of all directories of models."""
        return [
            entry.name
            for entry in self.entries(self.root / MODELS)
            if entry.is_dir and is_model(entry.name)
        ]

    def alias_names(self, name: str) -> set[str]:
        """Return the aliases of a model that have a document."""
        return {
            alias
            for entry in self.entries(self.text_path(name, ALIASES))
            if (alias := alias_in(entry.name)) is not None
        }

    def moves(self, name: str) -> bytes:
        """Return the bytes of the moves of a model's aliases."""
        return self.read(self.home(name) / MOVES, 2 * MOVES_BYTES_MAX) or b""

    def check_root(self) -> None:
        """Raise StoreUnreadable unless the store is a readable directory; it may be empty."""
        try:
            self.fs.entries(self.root)
        except OSError as error:
            raise StoreUnreadable.for_path(
                self.root,
                "the directory of the models",
                {errno.ENOENT: "none", errno.ENOTDIR: "a file"}.get(error.errno or 0)
                or error.strerror
                or type(error).__name__,
            ) from error

    def note_change(self, name: str) -> None:
        """Append a model to the journal, after a change and under the model's lock. Never raises.

        Nothing is synced: after a loss of power every reader begins anew.
        """
        path = self.root / JOURNAL
        with contextlib.suppress(OSError):
            with self.fs.closing(self.fs.append(path)) as fd:
                self.fs.write(fd, f"{name}\n".encode("ascii"))
            if self.fs.stamp(str(path))[1] > JOURNAL_BYTES_MAX:
                self.fs.unlink(path)

    def entries(self, path: Path | str) -> list[Entry]:
        """Return the entries of a directory; none if it does not exist. Raises StoreUnreadable."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self.reading(path):
            return self.fs.entries(path)
        return []

    def has(self, path: Path) -> bool:
        """Return whether the directory of this path has an entry of its name."""
        return path.name in [entry.name for entry in self.entries(path.parent)]

    def read(self, path: Path | str, bytes_max: int) -> bytes | None:
        """Return the bytes of a small file, None if it does not exist.

        Raises StoreUnreadable, and Corrupt for something that is not a file.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self.reading(path):
            return self.fs.read(path, bytes_max)
        return None

    def reading(self, path: Path | str) -> contextlib.AbstractContextManager[None]:
        """Turn the errors of the file system into StoreUnreadable, which names the path."""
        return reading(self.root, path)
