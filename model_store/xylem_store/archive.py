"""A version as a tar: the two files of its manifest first, then its arrays, sorted by name.

The label info of the model may follow them.

Reading is not extraction: the manifest says which members follow and how long they are, and
anything else is refused before it is written. No name in the archive ever becomes a path.
"""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from xylem_store.arrays import file_name
from xylem_store.errors import Corrupt, StoreUnreadable
from xylem_store.fs import Buffer, FileSystem, write_file
from xylem_store.label_info import LABEL_INFO, LabelInfo, label_info_pieces
from xylem_store.manifest import (
    ARRAYS,
    MANIFEST,
    MANIFEST_BYTES_MAX,
    SEAL,
    SEAL_BYTES_MAX,
    Manifest,
    parse_manifest,
)

_BLOCK = 512

# The most bytes after the end of an archive: programs pad a tar to a record of 20 blocks.
TRAILER_BYTES_MAX = 20 * _BLOCK

_PIECE_BYTES = 1 << 20


class Readable(Protocol):
    """A file, a pipe or the body of a request: it need not be able to seek."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end."""


def archive_pieces(
    fs: FileSystem, directory: Path, manifest: Manifest, info: LabelInfo | None = None
) -> Iterator[Buffer]:
    """Yield the bytes of the tar of a version; the same bytes for the same version. Raises OSError.

    info  the label info to include; None: no label info
    """
    for name, bytes_max in ((MANIFEST, MANIFEST_BYTES_MAX), (SEAL, SEAL_BYTES_MAX)):
        yield from _member(name, fs.read(directory / name, bytes_max))
    for name in sorted(manifest.arrays):
        file = f"{ARRAYS}/{file_name(name)}"
        yield from _member(file, fs.map(directory / file).data)
    if info is not None:
        yield _header(LABEL_INFO, info.head.file_bytes)
        yield from label_info_pieces(info)
        yield bytes(-info.head.file_bytes % _BLOCK)
    yield bytes(2 * _BLOCK)


def read_archive(
    fs: FileSystem,
    file: Readable,
    directory: Path,
    require_space: Callable[[int], None],
    info_path: Path | None = None,
) -> Manifest:
    """Write the arrays of the version in the tar `file` into `directory` and return its manifest.

    require_space  called with the number of bytes to be written, before the first is written
    info_path      the file to which label info after the arrays is written, unchecked; None: label
                   info is refused

    Raises Corrupt for a tar that `archive_pieces` would not have made, StoreUnreadable if `file`
    cannot be read, and OSError if `directory` cannot be written. The contents of the arrays are not
    checked.
    """
    sealed = []
    for name, bytes_max in ((MANIFEST, MANIFEST_BYTES_MAX), (SEAL, SEAL_BYTES_MAX)):
        size = _size_of(_read(file, _BLOCK), name)
        if size > bytes_max:
            raise Corrupt(f"archive: {name}", f"at most {bytes_max} bytes", size)
        sealed.append(b"".join(_read_member(file, name, size)))
    manifest = parse_manifest(*sealed)
    require_space(manifest.model_bytes)
    fs.mkdir(directory / ARRAYS)
    for name, info in sorted(manifest.arrays.items()):
        member = f"{ARRAYS}/{file_name(name)}"
        size = _size_of(_read(file, _BLOCK), member)
        if size != info.bytes:
            raise Corrupt(f"archive: {member}", f"{info.bytes} bytes", size)
        write_file(fs, directory / member, _read_member(file, member, size))
    fs.fsync_dir(directory / ARRAYS)
    end = _read(file, _BLOCK)
    if info_path is not None and end != bytes(_BLOCK):
        size = _size_of(end, LABEL_INFO)
        require_space(size)
        write_file(fs, info_path, _read_member(file, LABEL_INFO, size))
        end = _read(file, _BLOCK)
    if end + _read(file, _BLOCK) != bytes(2 * _BLOCK):
        raise Corrupt("archive", "an end after the last array", "more or nothing")
    _refuse_more(len(_read(file, TRAILER_BYTES_MAX + 1)))
    return manifest


def spool_archive(file: BinaryIO, piece: bytes, header_at: int) -> int:
    """Append a piece of a tar to a file; return the offset of the next header, or of the end.

    header_at  what the call for the previous piece returned, 0 at first

    Raises Corrupt for bytes that are no tar and for more than TRAILER_BYTES_MAX after its end, and
    OSError. These checks keep a small compressed body that unpacks to gigabytes, and is no archive,
    from filling the disk.
    """
    n_bytes = file.seek(0, io.SEEK_END) + file.write(piece)
    while header_at + _BLOCK <= n_bytes:
        file.seek(header_at)
        block = file.read(_BLOCK)
        if block == bytes(_BLOCK):
            _refuse_more(n_bytes - header_at - 2 * _BLOCK)
            break
        size = _info_of(block, "a file").size
        header_at += _BLOCK + size + -size % _BLOCK
    return header_at


def _refuse_more(n_bytes: int) -> None:
    if n_bytes > TRAILER_BYTES_MAX:
        raise Corrupt("archive", f"at most {TRAILER_BYTES_MAX} bytes behind its end", "more")


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o444
    return info.tobuf(tarfile.GNU_FORMAT)


def _member(name: str, data: bytes | memoryview) -> Iterator[Buffer]:
    yield _header(name, len(data))
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]
    yield bytes(-len(data) % _BLOCK)


def _size_of(block: bytes, expected: str) -> int:
    """Return the size that the header of the regular file `expected` states.

    Raises Corrupt for another header.
    """
    info = _info_of(block, expected)
    if info.name != expected:
        raise Corrupt("archive", f"the file {expected}", ascii(info.name)[:120])
    return info.size


def _info_of(block: bytes, expected: str) -> tarfile.TarInfo:
    """Return the parsed header of a regular file. Raises Corrupt, naming the expected file."""
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise Corrupt("archive", f"a tar header of {expected}", str(error)) from error
    if not info.isreg() or info.size < 0:
        raise Corrupt("archive", f"the file {expected}", ascii(info.name)[:120])
    return info


def content_of(file: Readable, name: str, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of a file.

    Raises Corrupt if it has fewer, and StoreUnreadable.
    """
    for start in range(0, size, _PIECE_BYTES):
        length = min(_PIECE_BYTES, size - start)
        piece = _read(file, length)
        if len(piece) < length:
            raise Corrupt(f"archive: {name}", f"{size} bytes", start + len(piece))
        yield piece


def _read_member(file: Readable, name: str, size: int) -> Iterator[bytes]:
    """Yield the content of a member, and skip its padding to a full block."""
    yield from content_of(file, name, size)
    _read(file, -size % _BLOCK)


def _read(file: Readable, size: int) -> bytes:
    """Return the next `size` bytes, fewer only at the end."""
    content = b""
    try:
        while len(content) < size and (piece := file.read(size - len(content))):
            content += piece
    except OSError as error:
        raise StoreUnreadable(f"archive: expected to read it, found {error}") from error
    return content
