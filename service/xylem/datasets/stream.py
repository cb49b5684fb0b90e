"""Read a data file or standard input in blocks of bytes or of whole lines, decompressed."""

import codecs
import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from xylem.base import (
    BadData,
    BadParameter,
    Finding,
    RowPlace,
    XylemError,
    faults_of,
    plain_name,
    reason_of,
    refuse_special,
)

BLOCK_BYTES = 1 << 20  # the number of bytes that are read and parsed at once

LINE_BYTES_MAX = 1 << 24  # the most bytes of a line of a data file

_KINDS = {".gz": "gzip", ".zst": "Zstandard"}
# The first bytes of compressed data. Zstandard has two: files of pzstd begin with a frame that
# decoders skip.
_MAGICS = {".gz": (b"\x1f\x8b",), ".zst": (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")}

FASTTEXT_LABEL = "__label__"  # the front of words that are labels, in files of fastText

# A function that is called with (bytes of the file read so far, size of the file in bytes).
Progress = Callable[[int, int], None]


class Unpacked(io.RawIOBase):
    """The decompressed bytes of a file on this machine or in an object store.

    packed   the file itself; its `tell` returns how many of its bytes are read
    n_bytes  the size of the file
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises BadData if it cannot be opened, or is not compressed as its name says.
        """
        self.path = path
        self._faults: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
        with self._reporting_damage():
            refuse_special(path)
            self.packed: BinaryIO = path.open("rb")
            magic = self.packed.read(4)
            self.n_bytes = self.packed.seek(0, 2)
            self.packed.seek(0)
        try:
            self._refuse_disguise(magic)
            self._stream: Any = self._open_stream()
        except BaseException:
            self.packed.close()
            raise

    def _refuse_disguise(self, magic: bytes) -> None:
        """Raise BadData unless the first bytes fit the suffix."""
        suffix = self.path.suffix
        packings = [packing for packing, magics in _MAGICS.items() if magic.startswith(magics)]
        if suffix in _MAGICS and suffix not in packings:
            raise self.fault(
                f"expected {_KINDS[suffix]} data, as the suffix {suffix} says, "
                f"found {'other data' if magic else 'an empty file'}"
            )
        if suffix not in _MAGICS and packings:
            raise self.fault(
                f"expected no compression, found {_KINDS[packings[0]]} data: "
                f"let the file's name end in {packings[0]}"
            )

    def _open_stream(self) -> Any:
        """Return a stream of the decompressed bytes.

        Raises BadParameter for a .zst file if pyarrow is not installed.
        """
        if self.path.suffix == ".gz":
            return gzip.GzipFile(fileobj=self.packed, mode="rb")
        if self.path.suffix != ".zst":
            return self.packed
        try:
            import pyarrow as pa
        except ImportError:
            raise BadParameter(
                "reading .zst files needs pyarrow: pip install 'xylem-serve[data]'"
            ) from None
        self._faults = (pa.ArrowException, OSError)
        return pa.CompressedInputStream(pa.PythonFile(self.packed, "r"), "zstd")

    def fault(self, message: str) -> BadData:
        """Return an error that names the file."""
        return BadData(f"{self.path}: {message}")

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer; return how many, 0 at the end. Raises BadData."""
        with self._reporting_damage():
            return int(self._stream.readinto(buffer))

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            with suppress(Exception):  # the file was only read, so that no data can be lost
                self.packed.close()
        super().close()

    @contextmanager
    def _reporting_damage(self) -> Iterator[None]:
        """Raise BadData for damaged data, and for errors of the disk or the object store."""
        try:
            yield
        except (XylemError, MemoryError):
            raise
        except self._faults as error:
            raise self.fault(
                f"expected whole {_KINDS[self.path.suffix]} data, found damage: {error}"
            ) from error
        except faults_of(self.path) as error:
            raise self.fault(f"expected a readable file, found: {reason_of(error)}") from error


def open_unpacked(path: Path) -> tuple[BinaryIO, Unpacked]:
    """Open a file; return a buffered reader of its decompressed bytes, and the `Unpacked` below it.

    Closing the reader closes the file. Raises BadData.
    """
    raw = Unpacked(path)
    return io.BufferedReader(raw, BLOCK_BYTES), raw


class DataFile:
    """A data file that is read once from front to back.

    It counts the lines, computes the digest and reports progress.

    kind      the suffix of its format, without that of a compression
    line      the number, from 1, of the first line of the last block that `lines` yielded
    encoding  of the text, "" for UTF-8; it is set before the file is read
    first_place  is added to the numbers of rows, so that those of several files differ
    findings  what its reader has noticed about single rows
    options   how its reader understood a table, as options of commands
    sha256    the digest of the decompressed bytes that were read so far
    """

    def __init__(
        self, path: Path, on_progress: Progress | None = None, previous: "DataFile | None" = None
    ) -> None:
        """Prepare to read; the file is opened later.

        previous  a file that was read before, whose digest this one continues
        """
        self.path = path
        self.kind = Path(plain_name(path)).suffix
        self.line = 1
        self.first_place = 0
        self._is_part = previous is not None
        self.encoding: str = previous.encoding if previous else ""
        self.findings: list[Finding] = previous.findings if previous else []
        self.options: list[str] = []
        self._on_progress = on_progress
        self._digest: hashlib._Hash = previous._digest.copy() if previous else hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the digest, in hexadecimal, of the bytes read so far."""
        return self._digest.hexdigest()

    def fault(self, line: int | None, message: str) -> BadData:
        """Return an error that names the file and the line.

        message  states what was expected and what was found
        """
        return BadData(f"{self.origin(line)}: {message}")

    def place(self, number: int) -> RowPlace:
        """Return the place of a row by its number."""
        path, _, line = self.origin(number).rpartition(":")
        return RowPlace(
            int(line), Path(path).name if self._is_part or path != str(self.path) else ""
        )

    @property
    def origins(self) -> Path:
        """Return the list of what the lines were copied from, which a job writes beside its files.

        Its first line names the data of a user, each other one the origin of a line, `file:line`.
        """
        return Path(str(self.path.parent), f".{self.path.name}.origins")

    def origin(self, line: int | None) -> str:
        """Return the file and the line as a user knows them; without a line the file."""
        with suppress(OSError), self.origins.open() as origins:
            return next(islice(origins, line or 0, None), "").rstrip("\n")
        return str(self.path) if line is None else f"{self.path}:{line}"

    def blocks(self) -> Iterator[bytes]:
        """Yield the decompressed bytes in blocks of BLOCK_BYTES. Raises BadData as `Unpacked`."""
        file, raw = open_unpacked(self.path)
        with file:
            while block := file.read(BLOCK_BYTES):
                self._digest.update(block)
                if self._on_progress:
                    self._on_progress(raw.packed.tell(), raw.n_bytes)
                yield block

    def _utf8_blocks(self) -> Iterator[bytes]:
        if not self.encoding:
            yield from self.blocks()
            return
        decoder = codecs.getincrementaldecoder(self.encoding)()
        try:
            for block in self.blocks():
                yield decoder.decode(block).encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            raise self.fault(
                self.line, f"expected {self.encoding}, found {str(error)[:200]}"
            ) from None

    def again(self) -> "DataFile":
        """Return the same file, to be read from its front."""
        file = DataFile(self.path)
        file.encoding = self.encoding
        return file

    @property
    def is_fasttext(self) -> bool:
        """Return whether the first line of a .txt file has a label of fastText. Raises BadData."""
        line, _, _ = next(self.again().lines(), b"").partition(b"\n")
        return any(word.startswith(FASTTEXT_LABEL.encode()) for word in line.split())

    def text_fault(self, block: bytes) -> BadData | None:
        """Return the error of a block of lines that has a NUL or is not UTF-8; None if it is text.

        It names the line, the byte, and the encoding that the text may have. The block's first line
        is `line`.
        """
        if self.line == 1 and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return self.fault(
                1, "expected UTF-8, found a byte order mark of UTF-16: --encoding utf-16"
            )
        offset = block.find(b"\0")
        message = "expected text, found NUL, byte {} of the line: perhaps the file is UTF-16"
        if offset < 0:
            try:
                block.decode()
            except UnicodeDecodeError as error:
                offset = error.start
                message = (
                    f"expected UTF-8, found byte 0x{block[offset]:02x}, byte {{}} of the line: "
                    "perhaps it is Windows-1252: --encoding windows-1252"
                )
        if offset < 0:
            return None
        return self.fault(
            self.line + block.count(b"\n", 0, offset),
            message.format(offset - block.rfind(b"\n", 0, offset)),
        )

    def files(self) -> "Iterator[DataFile]":
        """Yield this file; `DataFiles` yields several."""
        yield self

    def lines(self) -> Iterator[bytes]:
        """Yield blocks of whole lines; a line end is added if the last line has none.

        A byte order mark at the front is removed. `line` is set to the number of the block's first
        line. Text of another encoding becomes UTF-8. Raises BadData for a line of more than
        LINE_BYTES_MAX bytes, and for bytes that the encoding does not have.
        """
        remainder = b""
        mark = codecs.BOM_UTF8
        for block in self._utf8_blocks():
            cut = block.rfind(b"\n") + 1
            if len(remainder) + (block.find(b"\n") if cut else len(block)) > LINE_BYTES_MAX:
                raise self.fault(
                    self.line,
                    f"expected a line of at most {LINE_BYTES_MAX} bytes, found a longer one",
                )
            if cut:
                block_lines = remainder + block[:cut]
                yield block_lines.removeprefix(mark)
                self.line += block_lines.count(b"\n")
                remainder = block[cut:]
                mark = b""
            else:
                remainder += block
        if remainder:
            yield remainder.removeprefix(mark) + b"\n"


class StandardInput(DataFile):
    """Standard input; blocks are yielded as soon as their bytes come."""

    def __init__(self) -> None:
        super().__init__(Path("standard input"))

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes that can be read, at most BLOCK_BYTES at a time."""
        while block := os.read(sys.stdin.fileno(), BLOCK_BYTES):
            self._digest.update(block)
            yield block
