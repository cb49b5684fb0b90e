"""Names of data files: how a file is compressed, and whether it is in an object store."""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PosixPath
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, cast

from xylem.base.errors import BadParameter

# The suffixes of compressed files.
PACKED = (".gz", ".zst")

_URL = re.compile(r"[a-z][a-z0-9+.-]*://.")
_LOCAL = "file://"

# The timeouts of each kind of object store, as options of its driver.
SECONDS: dict[str, dict[str, Any]] = {
    "s3": {
        "config_kwargs": {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}
    }
}


class RemotePath(PosixPath):
    """A file or directory in an object store, by its URL; operations go to `fs`, its file system.

    Credentials come from the driver's environment.
    """

    def __str__(self) -> str:
        scheme, _, location = super().__str__().partition(":/")
        return f"{scheme}://{location}"

    def __fspath__(self) -> str:
        return str(self)

    @property
    def fs(self) -> Any:
        """Return fsspec's file system of the store.

        Raises BadParameter for an unknown kind of store.
        """
        return file_system(str(self))[0]

    @property
    def key(self) -> str:
        """Return the name within the store, as `fs` takes it."""
        return str(file_system(str(self))[1])

    def open(self, mode: str = "r", *_: Any, **options: Any) -> Any:
        """Return the opened object. Raises the driver's errors."""
        return self.fs.open(self.key, mode, **options)

    def is_dir(self, **_: Any) -> bool:
        """Return whether there are objects below the name. Raises the driver's errors."""
        return bool(self.fs.isdir(self.key))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object. Raises the driver's errors."""
        self.fs.rm_file(self.key)


def file_system(url: str, **options: Any) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the name within it. Raises BadParameter."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise BadParameter(
            "a file at a URL needs fsspec: pip install 'xylem-serve[remote]'"
        ) from None
    seconds = SECONDS.get(url.partition("://")[0], {})
    try:
        filesystem, name = url_to_fs(url, use_listings_cache=False, **seconds, **options)
    except (ImportError, ValueError) as error:
        raise BadParameter(
            f"{redacted_url(url)}: expected the URL of an object store, found: {error}"
        ) from None
    return filesystem, name


def redacted_url(url: str) -> str:
    """Return a URL without its parts that may be secret: a user, a password, a query."""
    scheme, mark, location = url.partition("://")
    return f"{scheme}{mark}{location.partition('?')[0].rpartition('@')[2]}"


def file_path(text: str) -> Path:
    """Return the path for the value of an option: local, or remote for the URL of an object store.

    Raises BadParameter for a URL with a user, because messages would show its password, and for an
    empty name, which a shell variable that is not set gives: it would mean the working directory.
    """
    if not text:
        raise BadParameter("expected the name of a file, found an empty one")
    if not _URL.match(text) or text.startswith(_LOCAL):
        return Path(text.removeprefix(_LOCAL))
    if "@" in text.partition("://")[2].partition("/")[0]:
        raise BadParameter(
            "expected a URL without user and password: the environment has them, found one with"
        )
    return RemotePath(text)


def absolute(path: Path) -> Path:
    """Return a path by which other processes find the file."""
    return path if isinstance(path, RemotePath) else path.absolute()


def faults_of(path: Path) -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a file may raise.

    For an object store these are all: each driver has errors of its own.
    """
    return (Exception,) if isinstance(path, RemotePath) else (OSError,)


def refuse_special(path: Path) -> None:
    """Raise OSError for a pipe, a socket or a device, such as `<(command)`.

    Opening one can block for ever.
    """
    if not isinstance(path, RemotePath) and path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(
            errno.EINVAL,
            "a pipe, a socket or a device: give a file, or - where the command reads standard "
            "input",
            str(path),
        )


def n_bytes_of(path: Path) -> int:
    """Return the size of a file in bytes. Raises the driver's errors."""
    return int(path.fs.size(path.key) if isinstance(path, RemotePath) else path.stat().st_size)


def reason_of(error: Exception) -> str:
    """Return the reason of an error of a disk or driver: one line of at most 200 characters."""
    text = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return str(text).split("\n", 1)[0][:200]


def plain_name(path: Path) -> str:
    """Return a file's name without .gz or .zst."""
    return path.stem if path.suffix in PACKED else path.name


def is_pattern(path: Path) -> bool:
    """Return whether a path has `*`, `?` or `[`, so that it may match many files."""
    return not set("*?[").isdisjoint(str(path))


def is_directory(path: Path) -> bool:
    """Return whether a path is a directory.

    False for a pattern, and for a path that cannot be examined: reading it will report why.
    """
    if isinstance(path, RemotePath) and is_pattern(path):
        return False
    try:
        return path.is_dir()
    except faults_of(path):  # reading it reports the reason
        return False


def names_in(directory: Path) -> set[str]:
    """Return the names of the files in a directory; empty if the directory does not exist.

    Raises BadParameter.
    """
    try:
        return (
            {
                name.rstrip("/").rpartition("/")[2]
                for name in directory.fs.ls(directory.key, detail=False)
            }
            if isinstance(directory, RemotePath)
            else {file.name for file in directory.iterdir()}
        )
    except FileNotFoundError:
        return set()
    except faults_of(directory) as error:
        raise BadParameter(
            f"{directory}: expected a directory to list, found: {reason_of(error)}"
        ) from None


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file as `unfinished` does. Raises BadParameter if it cannot be written."""
    try:
        with unfinished(path) as file:
            yield file
    except OSError as error:
        raise BadParameter(f"{path}: expected to write it, found: {reason_of(error)}") from None


@contextmanager
def unfinished(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write; it appears at `path` only when the block ends without an error.

    Its directory is made. Raises OSError.
    """
    if isinstance(path, RemotePath):
        with NamedTemporaryFile() as local:
            yield cast(BinaryIO, local)
            local.flush()
            try:
                path.fs.put_file(local.name, path.key)
            except Exception as error:  # each driver has errors of its own
                raise OSError(None, reason_of(error)) from None
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
