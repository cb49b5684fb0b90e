"""Files of instances, a JSON object a line, in blocks; and blocks answered by threads, in order."""

from __future__ import annotations

import codecs
import io
import re
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    TableColumns,
    file_path,
    is_directory,
    is_table,
    plain_name,
)

if TYPE_CHECKING:
    from xylem.serving.lines import Answered, LineBlock

STDIN = "-"
_READ_BYTES = 1 << 18
_ESCAPED = re.compile(rb'[\x00-\x1f"\\]')


class Source(NamedTuple):
    """Where lines come from: `file` is read, `raw` tells how far
    it is, of `n_bytes` (0: not known).

    is_plain  whether a line is a text, not JSON
    """

    file: BinaryIO
    raw: BinaryIO
    n_bytes: int
    is_plain: bool = False


def source_of(text: str) -> Source:
    """Return one line that has a text."""
    from xylem.serving.lines import dump

    line = dump({"text": text}) + b"\n"
    return Source(io.BytesIO(line), io.BytesIO(line), len(line))


@contextmanager
def opened(
    data: str,
    columns: TableColumns = DEFAULT_COLUMNS,
    start: int = 0,
    end: int = 0,
    *,
    is_plain: bool = False,
) -> Iterator[Source]:
    """Open the file of instances, or standard input; a row of a table, or
    a document, becomes a line of JSON.

    start, end  of lines that are not packed: only these bytes are read; 0: to the end

    Raises BadData, for a table also while it is read.
    """
    if data == STDIN:
        yield Source(sys.stdin.buffer, sys.stdin.buffer, 0, is_plain)
        return
    path = file_path(data)
    if is_table(path) or is_directory(path):
        from xylem.datasets import TableLines  # and kernels: `xylem --help` needs neither

        with TableLines(path, columns) as table:
            yield Source(table, table, table.n_bytes)  # type: ignore[arg-type]
        return
    if not plain_name(path).endswith((".jsonl", ".ndjson")):
        endings = (
            f".jsonl, .ndjson, .csv, .tsv (and .gz or .zst), or .parquet, or {STDIN} "
            "for standard input"
        )
        raise BadData(f"{data}: expected a name that ends in {endings}, found {path.name!r}")
    from xylem.datasets import open_unpacked

    file, raw = open_unpacked(path)
    with file:
        if end:
            raw.packed.seek(start)
            piece: Any = _Piece(file, end - start)
            yield Source(piece, raw.packed, raw.n_bytes)
        else:
            yield Source(file, raw.packed, raw.n_bytes)


class _Piece:
    """The next `left` bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file = file
        self._left = left

    def read1(self, n_bytes: int) -> bytes:
        """Return up to n_bytes; none at the end."""
        chunk: bytes = self._file.read1(min(n_bytes, self._left))  # type: ignore[attr-defined]
        self._left -= len(chunk)
        return chunk


def blocks_of(
    source: Source, line_bytes_max: int, rows_max: int, first: int = 1
) -> Iterator[LineBlock]:
    """Yield the lines of `source` in blocks, as they come; of a line that is too long, None.

    first  the number of the first line

    A byte order mark in front is left out.
    """
    from xylem.serving.lines import LineBlock  # and schemas: `xylem --help` needs neither

    remainder = b""
    skipping = False
    while True:
        chunk = source.file.read1(_READ_BYTES)  # type: ignore[attr-defined]
        *raw_lines, remainder = (remainder + chunk).split(b"\n")
        if not chunk and (remainder or skipping):
            raw_lines = [remainder]
            remainder = b""
        if first == 1 and raw_lines:
            raw_lines[0] = raw_lines[0].removeprefix(codecs.BOM_UTF8)
        if source.is_plain:
            raw_lines = [_json_of(line) for line in raw_lines]
        lines = [line if len(line) <= line_bytes_max else None for line in raw_lines]
        if lines and skipping:
            lines[0] = None
            skipping = False
        if len(remainder) > line_bytes_max:
            remainder = b""
            skipping = True
        for start in range(0, len(lines), rows_max):
            yield LineBlock(first + start, lines[start : start + rows_max])
        first += len(lines)
        if not chunk:
            return


def _json_of(line: bytes) -> bytes:
    """Return a text as a line of JSON; what is no UTF-8 stays, for whoever reads it to say so."""
    escaped = _ESCAPED.sub(lambda match: b"\\u%04x" % match[0][0], line.removesuffix(b"\r"))
    return b'{"text":"%b"}' % escaped


def idle(source: Source) -> Callable[[], bool]:
    """Return a function that tells whether reading on would wait: never for files."""
    if source.file is not sys.stdin.buffer:
        return lambda: False
    awaited = select.poll()  # `select` takes no descriptor above 1023
    awaited.register(source.file, select.POLLIN)
    return lambda: not awaited.poll(0)


def in_order(
    todo: Iterator[LineBlock],
    answer: Callable[[LineBlock], Answered],
    threads: int,
    waits: Callable[[], bool],
) -> Iterator[Answered]:
    """Yield the answers in order, made by `threads` threads; all
    there are before reading on would wait.
    """
    pending: deque[Future[Answered]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for block in todo:
            pending.append(pool.submit(answer, block))
            while pending and (len(pending) > threads or waits()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
