"""The data directory: the files that jobs read, by their names below one directory.

Links are followed, but never out of that directory.
"""

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from pydantic import BaseModel

from xylem.admin.jobs.errors import DataNotFound
from xylem.base import BadData, BadRequest, LimitExceeded, Unavailable
from xylem_store import FileSystem

# The most characters of a name.
NAME_MAX = 512

LIST_MAX = 10_000  # the most files of a listing

# The most levels of directories of a listing.
DEPTH_MAX = 8

# An upload that nobody has written to for this long was left by a killed process.
ABANDONED_SECONDS = 86_400.0

_UPLOAD = ".upload-"
# matches a valid part of an uploaded file's name
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


# Shows whether a file, or one of a pair, was changed or replaced: device, inode, size, time.
Fingerprint = tuple[tuple[int, ...], ...]


class DataRoot:
    """The directory of the data files.

    root       None, or a directory that does not exist: the service has no data directory
    bytes_max  the most bytes of an uploaded file
    prefix     how the names of the files begin; others do not exist. None: no file exists
    """

    def __init__(self, root: Path | None, bytes_max: int, prefix: str | None = "") -> None:
        self._root = root
        self._bytes_max = bytes_max
        self._prefix = prefix

    def below(self, prefix: str | None) -> "DataRoot":
        """Return the files whose names begin with a prefix."""
        return DataRoot(self._root, self._bytes_max, prefix)

    def _has(self, path: Path, root: Path) -> bool:
        """Return whether a path without links may be one of the files."""
        is_below = path.is_relative_to(root) and self._prefix is not None
        return is_below and str(path.relative_to(root)).startswith(self._prefix or "")

    def path_of(self, name: object, field: str = "data") -> Path:
        """Return the path of a file below the root, with links followed.

        Raises BadRequest, at `field`, if there is no regular file of this name below the root.
        """
        root = self._existing_root(field)
        try:
            if isinstance(name, str) and 0 < len(name) <= NAME_MAX:
                path = (root / name).resolve()
                is_hidden = any(part.startswith(_UPLOAD) for part in path.parts[len(root.parts) :])
                exists = self._has(path, root) and path.is_file() and not is_hidden
                # the other file of a pair is read, too
                partner = path.with_name(path.name.replace(".X.npz", ".Y.npz"))
                if exists and self._has(partner.resolve(), root):
                    return path
        except (OSError, ValueError, RuntimeError):  # too long, a NUL character, a circle of links
            pass
        name_text = repr(name[:200]) if isinstance(name, str) else type(name).__name__
        raise BadRequest(f"expected a file below the data directory, found {name_text}").with_path(
            field
        )

    def with_relative_paths(self, message: str) -> str:
        """Return a message with the names of files relative to the root, as callers know them."""
        return message if self._root is None else message.replace(f"{self._root.resolve()}/", "")

    def list(self) -> "list[UploadedFile]":
        """Return the files by name, at most LIST_MAX.

        Files that are hidden, unreadable, or links out of the root are left out.

        Raises BadRequest without a root, and Unavailable if the root cannot be read.
        """
        root = self._existing_root()
        files: list[UploadedFile] = []
        directories = [(root, 0)]
        while directories and len(files) < LIST_MAX:
            directory, depth = directories.pop()
            try:
                for path in sorted(directory.iterdir()):
                    if path.name.startswith("."):
                        continue
                    if path.is_dir() and not path.is_symlink() and depth < DEPTH_MAX:
                        directories.append((path, depth + 1))
                    else:
                        with contextlib.suppress(OSError, RuntimeError):
                            status = path.stat()
                            is_ours = self._has(path, root) and self._has(path.resolve(), root)
                            if is_ours and stat.S_ISREG(status.st_mode):
                                files.append(_facts(str(path.relative_to(root)), status))
            except OSError as error:  # an unreadable directory below, as lost+found, is left out
                if directory == root:
                    raise Unavailable(
                        f"data directory: expected to read it, found {error.strerror}"
                    ) from error
        return sorted(files, key=attrgetter("name"))[:LIST_MAX]

    def upload(self, name: str) -> "Upload":
        """Return an Upload, which writes a new file, or replaces one, piece by piece.

        A name has parts of letters, digits, `.`, `_` and `-`, not beginning with `.` or `-`, and
        `/` between them; its directory must exist. Raises BadRequest for any other name, and
        Unavailable.
        """
        root = self._existing_root("name")
        parts = name.split("/")
        if len(name) > NAME_MAX or not all(_PART.fullmatch(part) for part in parts):
            expected = "parts of letters, digits, '.', '_' and '-', separated by '/'"
            raise BadRequest(f"expected {expected}, found {name[:200]!r}").with_path("name")
        try:
            directory = root.joinpath(*parts[:-1]).resolve()
            fits = directory.is_dir() and self._has(directory / parts[-1], root)
            fits = fits and not (directory / parts[-1]).is_dir()
        except (OSError, RuntimeError):
            fits = False
        if not fits:
            expected = "a file in a directory below the data directory"
            raise BadRequest(f"expected {expected}, found {name[:200]!r}").with_path("name")
        with contextlib.suppress(OSError):
            for path in directory.glob(f"{_UPLOAD}*"):
                if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                    path.unlink()
        return Upload(directory, parts[-1], name, self._bytes_max)

    def delete(self, name: str) -> None:
        """Remove a file; if it is a link, the link.

        Raises DataNotFound, BadRequest without a root, Unavailable.
        """
        root = self._existing_root("name")
        try:
            self.path_of(name, "name")
            path = (root / name).parent.resolve() / Path(name).name
            if not self._has(path, root):
                raise BadRequest("outside")
        except BadRequest:
            raise DataNotFound(
                f"expected a file below the data directory, found {name[:200]!r}"
            ) from None
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"{name}: expected to remove it, found {error.strerror}") from error

    def _existing_root(self, field: str = "data") -> Path:
        if self._root is None or not self._root.is_dir():
            raise BadRequest(
                "expected the service to have a data directory (XYLEM_DATA_DIR), found none"
            ).with_path(field)
        return self._root.resolve()


class Upload(contextlib.AbstractContextManager["Upload"]):
    """A file that is being uploaded; it has a temporary name until `finish` renames it.

    Use it as a context manager: at the end of the context, an unfinished file is removed. A file
    that a killed process left is removed a day later, by an upload into the same directory. Not
    thread-safe: one call at a time; each may block.
    """

    def __init__(self, directory: Path, file_name: str, name: str, bytes_max: int) -> None:
        self._target = directory / file_name
        self._name = name
        self._bytes_max = bytes_max
        self.bytes = 0
        with _writing(name):
            self._path = directory / f"{_UPLOAD}{secrets.token_hex(8)}"
            self._fd = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640
            )

    def write(self, piece: bytes) -> None:
        """Append bytes. Raises LimitExceeded (limit data_bytes_max) and Unavailable."""
        self.bytes += len(piece)
        if self.bytes > self._bytes_max:
            raise LimitExceeded(
                f"{self._name}: expected at most {self._bytes_max} bytes (limit "
                "data_bytes_max), found more"
            )
        with _writing(self._name):
            view = memoryview(piece)
            while view:
                view = view[os.write(self._fd, view) :]

    def finish(self) -> "UploadedFile":
        """Sync the file to the disk, and give it its name.

        Raises Unavailable; the end of the context then removes a file that has no name yet.
        """
        with _writing(self._name):
            os.fsync(self._fd)
            self._path.replace(self._target)
            FileSystem().fsync_dir(self._target.parent)
            status = os.fstat(self._fd)
        self.close()
        return _facts(self._name, status)

    def close(self) -> None:
        """Remove the file if it is unfinished."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def __exit__(self, *_: object) -> None:
        self.close()


def fingerprint(path: Path) -> Fingerprint:
    """Return the fingerprint of a data file, and of its partner if it is one of a pair.

    Raises BadData.
    """
    from xylem.datasets import partner  # imported only now, as readers and kernels come with it

    files = [path, partner(path)] if ".npz" in path.suffixes[-2:] else [path]
    try:
        statuses = [file.stat() for file in files]
    except OSError as error:
        raise BadData(f"{path}: expected a file that is there, found {error.strerror}") from None
    return tuple(
        (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses
    )


def _facts(name: str, status: os.stat_result) -> "UploadedFile":
    return UploadedFile(name=name, bytes=status.st_size, modified=status.st_mtime)


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{name}: expected to write it, found {error.strerror}") from error


class UploadedFile(BaseModel):
    """A file of the data directory; `modified` is in seconds since 1970."""

    name: str
    bytes: int
    modified: float
