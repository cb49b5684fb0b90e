"""All file-system calls of the store, in one place, so that tests can make any of them fail.

Everything here is POSIX. Errors are the plain OSErrors of the system; `reading` turns them into
errors of the store.

Files are mapped without a descriptor that stays open. Python's `mmap` keeps one for each map until
3.13 (`trackfd`). A version has twenty arrays, so 60 models would use up the 1,024 descriptors of a
process.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import weakref
from collections.abc import Iterable, Iterator
from ctypes import CDLL, addressof, c_int, c_long, c_size_t, c_ubyte, c_void_p, get_errno
from pathlib import Path
from typing import Any, NamedTuple

from xylem_store.errors import Corrupt, StoreUnreadable

_FAILED = c_void_p(-1).value
_libc = CDLL(None, use_errno=True)
_libc.mmap.restype = c_void_p
_libc.mmap.argtypes = c_void_p, c_size_t, c_int, c_int, c_int, c_long
_libc.munmap.argtypes = c_void_p, c_size_t
_libc.madvise.argtypes = c_void_p, c_size_t, c_int


def map_bytes(fd: int, n_bytes: int) -> memoryview:
    """Return the first `n_bytes` bytes of an open file, mapped read-only; `fd` may then be closed.

    n_bytes  at least 1, and at most the size of the file

    The bytes stay mapped until the last view of them is gone. Raises OSError.
    """
    address = _libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _FAILED:
        raise OSError(get_errno(), os.strerror(get_errno()))
    mapped = (c_ubyte * n_bytes).from_address(address)
    weakref.finalize(mapped, _libc.munmap, address, n_bytes).atexit = False
    return memoryview(mapped).cast("B").toreadonly()


def read_head(mapped: memoryview, n_bytes: int) -> bytes:
    """Return the first bytes of a map, without letting the system read megabytes ahead of them."""
    array: Any = mapped.obj
    address = addressof(array)
    _libc.madvise(address, len(mapped), mmap.MADV_RANDOM)
    head = bytes(mapped[:n_bytes])
    _libc.madvise(address, len(mapped), mmap.MADV_NORMAL)
    return head


Buffer = bytes | memoryview

# O_NONBLOCK: opening a fifo must not block
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Entry(NamedTuple):
    """A name in a directory; a symbolic link does not count as a directory."""

    name: str
    is_dir: bool


class Mapped(NamedTuple):
    """The bytes of a file, mapped read-only, and values that identify exactly these bytes."""

    data: memoryview | bytes
    identity: tuple[int, int, int, int, int]


class FileSystem:
    """The file-system calls, each as thin as possible; tests replace single ones."""

    def create(self, path: Path) -> int:
        """Return a descriptor to write a new file, whose mode is read-only (0444)."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)

    def append(self, path: Path) -> int:
        """Return a descriptor to append to a file, which is made if it does not exist."""
        return os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )

    def write(self, fd: int, data: Buffer) -> None:
        """Write all of `data`."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def fsync(self, fd: int) -> None:
        """Return when the file's bytes are on the medium."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close a descriptor; a lock that it holds is released."""
        os.close(fd)

    @contextlib.contextmanager
    def closing(self, fd: int) -> Iterator[int]:
        """Close a descriptor at the end."""
        try:
            yield fd
        finally:
            self.close(fd)

    def fsync_dir(self, path: Path) -> None:
        """Return when the directory's entries are on the medium."""
        with self.closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
            os.fsync(fd)

    def mkdir(self, path: Path) -> None:
        """Make one directory."""
        path.mkdir(0o755)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file, replacing `target`, or a directory to a new name."""
        source.rename(target)

    def move(self, source: Path, target: Path) -> None:
        """Rename, and return when the new name is on the medium."""
        self.rename(source, target)
        self.fsync_dir(target.parent)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must be on the same file system."""
        os.link(source, target, follow_symlinks=False)

    def n_names(self, path: Path) -> int:
        """Return how many names a file has."""
        return path.stat(follow_symlinks=False).st_nlink

    def unlink(self, path: Path) -> None:
        """Remove a file's name; processes that have it mapped keep its bytes."""
        path.unlink()

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def entries(self, path: Path | str) -> list[Entry]:
        """Return the names in a directory, sorted."""
        with os.scandir(path) as scan:
            return sorted(Entry(e.name, e.is_dir(follow_symlinks=False)) for e in scan)

    def read(self, path: Path | str, bytes_max: int) -> bytes:
        """Return the bytes of a small file, at most `bytes_max` + 1 of them."""
        with _opened(path) as fd:  # a file object would take twice as long
            return os.read(fd, min(os.fstat(fd).st_size, bytes_max) + 1)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as scan:
            return sorted(entry.name for entry in scan)
        return []

    def stamp(self, path: str) -> tuple[int, int, int, int]:
        """Return the inode of a file or directory, its size, and when it last changed.

        The times, in nanoseconds, are of its content and of its status. All are 0 if it does not
        exist.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(path)
            return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        return 0, 0, 0, 0

    def tail(self, path: Path, offset: int, bytes_max: int) -> tuple[int, bytes]:
        """Return the inode of a file and its bytes from an offset on; 0 if it does not exist."""
        with contextlib.suppress(FileNotFoundError), _opened(path) as fd:
            return os.fstat(fd).st_ino, os.pread(fd, bytes_max, offset)
        return 0, b""

    def map(self, path: Path) -> Mapped:
        """Map a file read-only."""
        with _opened(path) as fd:
            status = os.fstat(fd)
            identity = (
                status.st_dev,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            )
            # an empty file cannot be mapped
            return Mapped(map_bytes(fd, status.st_size) if status.st_size else b"", identity)

    def lock(self, path: Path) -> int | None:
        """Return a descriptor that holds the lock file, made if needed; None if it is locked.

        The lock ends when the descriptor is closed, or the process dies.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, fd)
            with contextlib.suppress(
                BlockingIOError, FileNotFoundError
            ):  # locked by another, or removed since it was opened
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.stat().st_ino == os.fstat(fd).st_ino:
                    stack.pop_all()
                    return fd
        return None

    def free_bytes(self, path: Path) -> int:
        """Return how many bytes can still be written on the file system of `path`."""
        volume = os.statvfs(path)
        return volume.f_bavail * volume.f_frsize


@contextlib.contextmanager
def _opened(path: Path | str) -> Iterator[int]:
    """Open a regular file for reading. Raises OSError for links, devices and pipes."""
    fd = os.open(path, _READ_FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "expected a regular file", str(path))
        yield fd
    finally:
        os.close(fd)


def write_file(fs: FileSystem, path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a new file; its bytes (not yet its name) are on the medium when this returns."""
    with fs.closing(fs.create(path)) as fd:
        for piece in pieces:
            fs.write(fd, piece)
        fs.fsync(fd)


def make_dirs(fs: FileSystem, root: Path, *names: str) -> Path:
    """Make root/names[0]/names[1]... as far as missing, all names on the medium, and return it.

    Parents are synced even if nothing was missing: the process that made them may have died before
    syncing.
    """
    path = root
    for name in names:
        with contextlib.suppress(FileExistsError):
            fs.mkdir(path / name)
        fs.fsync_dir(path)
        path = path / name
    return path


def remove_tree(fs: FileSystem, path: Path) -> None:
    """Remove a directory and everything in it; links are removed, not followed."""
    for entry in fs.entries(path):
        if entry.is_dir:
            remove_tree(fs, path / entry.name)
        else:
            fs.unlink(path / entry.name)
    fs.rmdir(path)


# The errors of opening a link, a pipe, a directory or a socket instead of a file.
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)


@contextlib.contextmanager
def reading(root: Path, path: Path | str) -> Iterator[None]:
    """Turn the errors of reading a file of the store at `root` into Corrupt and StoreUnreadable.

    FileNotFoundError and NotADirectoryError pass unchanged.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        if error.errno in _NO_FILE:
            raise Corrupt(
                _name_within(root, error.filename or path), "a regular file", "something else"
            ) from error
        raise StoreUnreadable.for_path(
            Path(path),
            f"to read {_name_within(root, path)}",
            error.strerror or type(error).__name__,
        ) from error


def _name_within(root: Path, path: Path | str) -> str:
    """Return a file's path within the store, for messages that clients see."""
    try:
        return str(Path(path).relative_to(root))
    except ValueError:
        return Path(path).name
