"""Files of instances, a JSON object a line, in blocks; and blocks answered by threads, in order."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import select
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from service.base.columns import DEFAULT_COLUMNS, TableColumns, is_table
from service.base.errors import BadData

if TYPE_CHECKING:
    from service.serving.lines import Answered, LineBlock

STDIN = "-"
GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 1 << 18
_ESCAPED = re.compile(rb'[\x00-\x1f"\\]')


class Source(NamedTuple):
    """Where lines come from: `file` is read, `raw` tells how far it is, of `n_bytes` (0: not known).

    is_plain  whether a line is a text, not JSON
    """

    file: BinaryIO
    raw: BinaryIO
    n_bytes: int
    is_plain: bool = False


def source_of(text: str) -> Source:
    """Return one line that has a text."""
    from service.serving.lines import dump

    line = dump({"text": text}) + b"\n"
    return Source(io.BytesIO(line), io.BytesIO(line), len(line))


@contextmanager
def opened(data: str, columns: TableColumns = DEFAULT_COLUMNS, *, is_plain: bool = False) -> Iterator[Source]:
    """Open the file of instances, or standard input; a row of a table, or a document, becomes a line of JSON.

    Raises BadData, for a table also while it is read.
    """
    if data == STDIN:
        yield Source(sys.stdin.buffer, sys.stdin.buffer, 0, is_plain)
        return
    path = Path(data)
    if is_table(path) or path.is_dir():
        from service.datasets.tables import TableLines  # and kernels: `xylem --help` needs neither

        with TableLines(path, columns) as table:
            yield Source(table, table, table.n_bytes)  # type: ignore[arg-type]
        return
    if not path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        wanted = f".jsonl, .ndjson, .csv, .tsv (and .gz), or .parquet, or {STDIN} for standard input"
        raise BadData(f"{data}: expected a name that ends in {wanted}, found {path.name!r}")
    try:
        raw = path.open("rb")
    except OSError as error:
        raise BadData(f"{data}: expected a file that can be read, found {error.strerror}") from None
    with raw:
        n_bytes = os.fstat(raw.fileno()).st_size
        if path.suffix != ".gz" and n_bytes and os.pread(raw.fileno(), 2, 0) == GZIP_MAGIC:
            raise BadData(f"{data}: expected no compression, found gzip data: let the file's name end in .gz")
        if path.suffix != ".gz":
            yield Source(raw, raw, n_bytes)
            return
        try:
            with gzip.open(raw) as unpacked:
                yield Source(unpacked, raw, n_bytes)  # type: ignore[arg-type]
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadData(f"{data}: expected a gzip file, found a damaged one: {error}") from None


def blocks(source: Source, line_bytes_max: int, rows_max: int) -> Iterator[LineBlock]:
    """Yield the lines of `source` in blocks, as they come; of a line that is too long, None.

    A byte order mark in front is left out.
    """
    from service.serving.lines import LineBlock  # and schemas: `xylem --help` needs neither

    first, rest, skipping = 1, b"", False
    while True:
        chunk = source.file.read1(_READ_BYTES)  # type: ignore[attr-defined]
        *ends, rest = (rest + chunk).split(b"\n")
        if not chunk and (rest or skipping):
            ends, rest = [rest], b""
        if first == 1 and ends:
            ends[0] = ends[0].removeprefix(codecs.BOM_UTF8)
        if source.is_plain:
            ends = [_json_of(end) for end in ends]
        lines = [end if len(end) <= line_bytes_max else None for end in ends]
        if lines and skipping:
            lines[0], skipping = None, False
        if len(rest) > line_bytes_max:
            rest, skipping = b"", True
        for start in range(0, len(lines), rows_max):
            yield LineBlock(first + start, lines[start : start + rows_max])
        first += len(lines)
        if not chunk:
            return


def _json_of(line: bytes) -> bytes:
    """Return a text as a line of JSON; what is no UTF-8 stays, for whoever reads it to say so."""
    escaped = _ESCAPED.sub(lambda found: b"\\u%04x" % found[0][0], line.removesuffix(b"\r"))
    return b'{"text":"%b"}' % escaped


def idle(source: Source) -> Callable[[], bool]:
    """Return a function that tells whether reading on would wait: never for files."""
    if source.n_bytes:
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
    """Yield the answers in order, made by `threads` threads; all there are before reading on would wait."""
    pending: deque[Future[Answered]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for block in todo:
            pending.append(pool.submit(answer, block))
            while pending and (len(pending) > threads or waits()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
