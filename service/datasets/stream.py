"""The bytes of a data file, decompressed, or of standard input, in blocks of whole lines."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import select
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from service.base.errors import BadData

BLOCK_BYTES = 1 << 20
"""How much is read and parsed at once."""

LINE_BYTES_MAX = 1 << 24
"""The longest line of a data file."""

_GZIP_MAGIC = b"\x1f\x8b"

Progress = Callable[[int, int], None]
"""Called with (bytes of the file read so far, bytes of the file)."""


class DataFile:
    """A data file read once from front to back: counts lines, takes the digest, reports progress.

    `line` is the number, from 1, of the first line of the block given out last; `sha256` is of the
    decompressed bytes and is whole once they have all been read.
    """

    def __init__(
        self, path: Path, on_progress: Progress | None = None, after: DataFile | None = None
    ) -> None:
        """Open nothing yet; the digest goes on from that of the file `after`, when there is one."""
        self.path = path
        self.line = 1
        self._on_progress = on_progress
        self._digest: hashlib._Hash = after._digest.copy() if after else hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the digest, in hexadecimal, of the bytes read so far."""
        return self._digest.hexdigest()

    def fault(self, line: int | None, what: str) -> BadData:
        """Return the error that names the file and the line; `what` says expected and found."""
        place = str(self.path) if line is None else f"{self.path}:{line}"
        return BadData(f"{place}: {what}")

    def blocks(self) -> Iterator[bytes]:
        """Yield the decompressed bytes in blocks of BLOCK_BYTES.

        Raises BadData when the file cannot be read, or is not the gzip data that its name says it is.
        """
        packed = self.path.suffix == ".gz"
        try:
            with self.path.open("rb") as file:
                total = file.seek(0, 2)
                file.seek(0)
                self._refuse_disguise(file, packed)
                stream = gzip.GzipFile(fileobj=file, mode="rb") if packed else file
                while block := stream.read(BLOCK_BYTES):
                    self._digest.update(block)
                    if self._on_progress:
                        self._on_progress(file.tell(), total)
                    yield block
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.fault(None, f"expected whole gzip data, found damage: {error}") from error
        except OSError as error:
            raise self.fault(None, f"expected a readable file, found: {error.strerror or error}") from error

    def _refuse_disguise(self, file: BinaryIO, packed: bool) -> None:
        magic = file.read(len(_GZIP_MAGIC))
        file.seek(0)
        if packed and magic != _GZIP_MAGIC:
            found = "an empty file" if not magic else "other data"
            raise self.fault(None, f"expected gzip data, as the suffix .gz says, found {found}")
        if not packed and magic == _GZIP_MAGIC:
            raise self.fault(None, "expected no compression, found gzip data: let the file's name end in .gz")

    def lines(self) -> Iterator[bytes]:
        """Yield blocks of whole lines; a line end is put after the last line where the file has none.

        A byte order mark in front is left out. Raises BadData for a line of more than LINE_BYTES_MAX bytes.
        `line` is that of the block given out.
        """
        rest, mark = b"", codecs.BOM_UTF8
        for block in self.blocks():
            cut = block.rfind(b"\n") + 1
            self._check_length(len(rest) + (block.find(b"\n") if cut else len(block)))
            if cut:
                whole = rest + block[:cut]
                yield whole.removeprefix(mark)
                self.line += whole.count(b"\n")
                rest, mark = block[cut:], b""
            else:
                rest += block
        if rest:
            yield rest.removeprefix(mark) + b"\n"

    def _check_length(self, n_bytes: int) -> None:
        if n_bytes > LINE_BYTES_MAX:
            found = f"expected a line of at most {LINE_BYTES_MAX} bytes, found a longer one"
            raise self.fault(self.line, found)


class StandardInput(DataFile):
    """Lines of standard input, given out as they come.

    It ends with its last byte, or at the first interrupt (Ctrl-C) while it is being read: what has not been
    read then, or is not a whole line, is dropped. A second interrupt is a KeyboardInterrupt, as any other.
    """

    def __init__(self) -> None:
        super().__init__(Path("standard input"))
        self._was_interrupted = False

    def blocks(self) -> Iterator[bytes]:
        """Yield what there is to read, at most BLOCK_BYTES at a time."""
        descriptor = sys.stdin.fileno()
        with _first_interrupt() as interrupt:
            awaited = select.poll()  # `select` takes no descriptor above 1023
            for one in (descriptor, *interrupt):
                awaited.register(one, select.POLLIN)
            while True:
                if [ready for ready, _ in awaited.poll()] != [descriptor]:
                    self._was_interrupted = True
                    return
                block = os.read(descriptor, BLOCK_BYTES)
                if not block:
                    return
                self._digest.update(block)
                yield block

    def lines(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, as DataFile does."""
        for block in super().lines():
            if self._was_interrupted:  # what is left is the beginning of a line
                return
            yield block


@contextmanager
def _first_interrupt() -> Iterator[list[int]]:
    """Give a descriptor that can be read after the first interrupt, which then does nothing else.

    None outside the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    reader, writer = os.pipe()

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        os.write(writer, b"!")

    before = signal.signal(signal.SIGINT, note)
    try:
        yield [reader]
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(reader)
        os.close(writer)
