"""File systems that fail: the n-th call raises, or data that were not synced are lost."""

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xylem_store.fs import FileSystem

OPERATIONS = (
    *(
        "create",
        "append",
        "write",
        "fsync",
        "close",
        "fsync_dir",
        "mkdir",
        "rename",
        "unlink",
        "rmdir",
    ),
    *("entries", "names", "stamp", "tail", "read", "map", "lock", "free_bytes"),
)


class QuickFileSystem(FileSystem):
    """A file system that syncs nothing: much faster, and only a power cut shows the difference."""

    def fsync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: Path) -> None:
        pass


class FaultyFileSystem(QuickFileSystem):
    """A file system that logs every call; call `fail_at`, from 0, raises OSError of `error`."""

    def __init__(self, fail_at: int | None = None, error: int = errno.EIO) -> None:
        self.log: list[tuple[str, tuple[Any, ...], Any]] = []
        self.fail_at = fail_at
        self.error = error

    def _call(self, name: str, *arguments: Any) -> Any:
        number = len(self.log)
        fails = number == self.fail_at
        if fails and name != "close":  # a close that fails has closed the file all the same
            self.log.append((name, arguments, None))
            raise OSError(self.error, os.strerror(self.error))
        data = [bytes(a) if isinstance(a, memoryview) else a for a in arguments]
        result = getattr(QuickFileSystem, name)(self, *arguments)
        self.log.append((name, tuple(data), result))
        if fails:
            raise OSError(self.error, os.strerror(self.error))
        return result


def _logged(name: str) -> Callable[..., Any]:
    return lambda self, *arguments: self._call(name, *arguments)


for _name in OPERATIONS:
    setattr(FaultyFileSystem, _name, _logged(_name))


@dataclass
class _File:
    data: bytes = b""
    synced: bytes = b""


@dataclass
class _Directory:
    entries: dict[str, Any] = field(default_factory=dict)
    synced: dict[str, Any] = field(default_factory=dict)


class Disk:
    """A disk after some calls of a log: the data that are synced, and those only in memory.

    It is stricter than any real one: each change of a directory that was not synced is lost or kept
    independently, even the two halves of a rename, and the unsynced bytes of a file may be lost,
    cut, or zeros.
    """

    def __init__(self, root: Path, template: Path) -> None:
        """Begin at `root` with the tree of `template`, all of it synced."""
        self._root = root
        self._top = self._load(template)
        self._open: dict[int, _File] = {}

    def _load(self, path: Path) -> _Directory:
        entries = {
            child.name: self._load(child)
            if child.is_dir()
            else _File(child.read_bytes(), child.read_bytes())
            for child in path.iterdir()
        }
        return _Directory(dict(entries), dict(entries))

    def _at(self, path: Path) -> Any:
        node = self._top
        for part in path.relative_to(self._root).parts:
            node = node.entries[part]
        return node

    def apply(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        """Apply one call of a log."""
        match name, arguments:
            case "create", (path,):
                self._open[result] = self._at(path.parent).entries[path.name] = _File()
            case "append", (path,):
                self._open[result] = self._at(path.parent).entries.setdefault(path.name, _File())
            case "write", (fd, data):
                self._open[fd].data += data
            case "fsync", (fd,):
                self._open[fd].synced = self._open[fd].data
            case "mkdir", (path,):
                self._at(path.parent).entries[path.name] = _Directory()
            case "fsync_dir", (path,):
                self._at(path).synced = dict(self._at(path).entries)
            case "rename", (source, target):
                node = self._at(source.parent).entries.pop(source.name)
                self._at(target.parent).entries[target.name] = node
            case (("unlink" | "rmdir"), (path,)):
                del self._at(path.parent).entries[path.name]
            case "lock", (path,) if result is not None:
                self._at(path.parent).entries.setdefault(path.name, _File())

    def lose_power(self, target: Path, fate: str, rng: random.Random) -> None:
        """Write to `target` the files that are on the disk after a power cut.

        fate  of data that were not synced: "lost", "kept", or "mixed", each change by chance
        """
        self._write(self._top, target, fate, rng)

    def _write(self, node: Any, target: Path, fate: str, rng: random.Random) -> None:
        def survives() -> bool:
            return fate == "kept" or (fate == "mixed" and rng.random() < 0.5)

        if isinstance(node, _File):
            data = node.data if node.data == node.synced or survives() else node.synced
            if (
                fate == "mixed"
                and data is node.data
                and node.data != node.synced
                and rng.random() < 0.7
            ):
                n_bytes_kept = (
                    len(node.synced) if data.startswith(node.synced) else 0
                )  # of one appended to
                cut = data[: rng.randrange(n_bytes_kept, len(data))]
                data = rng.choice([cut, data[:n_bytes_kept] + bytes(len(data) - n_bytes_kept)])
            target.write_bytes(data)
            return
        target.mkdir()
        for name in sorted(node.entries.keys() | node.synced.keys()):
            new, old = node.entries.get(name), node.synced.get(name)
            entry = new if new is old or survives() else old
            if entry is not None:
                self._write(entry, target / name, fate, rng)
