"""Read files of instances in blocks of lines, each a JSON object; answer the blocks in threads."""

import codecs
import io
import re
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import orjson

from xylem import datasets
from xylem.base import (
    DEFAULT_COLUMNS,
    JSON_LINES,
    BadData,
    BadInstance,
    TableColumns,
    TextFields,
    file_path,
    is_directory,
    is_table,
    plain_name,
)

if TYPE_CHECKING:
    from xylem.serving.batches.lines import Answered, LineBlock

STDIN = "-"
_READ_BYTES = 1 << 18
_ESCAPED = re.compile(rb'[\x00-\x1f"\\]')


class Source(NamedTuple):
    """An open file of lines.

    file      the lines are read from it
    raw       the same file before it is unpacked: its position tells the progress
    n_bytes   the size of `raw`; 0: not known
    convert   makes a line of JSON of each line; None: they are such lines
    """

    file: BinaryIO
    raw: BinaryIO
    n_bytes: int
    convert: Callable[[bytes], bytes] | None = None

    def waiting(self) -> Callable[[], bool]:
        """Return a function that tells whether reading on would wait for input; False for files."""
        if self.raw is not sys.stdin.buffer:
            return lambda: False
        poll = select.poll()  # `select` takes no descriptor above 1023
        poll.register(self.raw, select.POLLIN)
        return lambda: not poll.poll(0)


def source_of(text: str) -> Source:
    """Return a source of one line, which has this text."""
    from xylem.serving.batches.lines import dump

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
    """Open a file of instances, or standard input.

    Each row of a table, and each document of a directory, becomes a line of JSON. So do lines with
    the columns of text that are named, with fields of the version, or with a column of vectors.
    Vectors beside the file are put into its lines.

    start, end  the bytes to read of a file of lines that is not packed; end 0: to its end

    Raises BadData; for a table, and for text of another encoding than UTF-8, also while it is read.
    """
    fields = columns.texts or columns.fields
    convert = _json_of if is_plain else None
    if fields or columns.vector:
        convert = partial(_as_instance, fields, columns.vector)
    if data == STDIN:
        yield Source(_as_utf8(sys.stdin.buffer, data, columns), sys.stdin.buffer, 0, convert)
        return
    path = file_path(data)
    makes_lines = is_table(path) or is_directory(path)
    if makes_lines or columns.vectors_of(path) is not None:
        with datasets.TableLines(path, columns) as table:
            yield Source(
                table,  # type: ignore[arg-type]
                table,  # type: ignore[arg-type]
                table.n_bytes,
                None if makes_lines else convert,
            )
        return
    if not plain_name(path).endswith(JSON_LINES):
        raise BadData(
            f"{data}: expected a name that ends in .jsonl, .ndjson, .csv, .tsv (and .gz or .zst), "
            f"or .parquet, or {STDIN} for standard input, found {path.name!r}"
        )

    file, raw = datasets.open_unpacked(path)
    with file:
        if end:
            raw.packed.seek(start)
        lines: Any = _Piece(file, end - start) if end else _as_utf8(file, data, columns)
        yield Source(lines, raw.packed, raw.n_bytes, convert)


class _Piece:
    """The next n_bytes of a file, as a file."""

    def __init__(self, file: BinaryIO, n_bytes: int) -> None:
        self._file = file
        self._n_bytes_left = n_bytes

    def read1(self, n_bytes: int) -> bytes:
        """Return up to n_bytes; nothing at the end."""
        n_bytes = min(n_bytes, self._n_bytes_left)
        chunk: bytes = self._file.read1(n_bytes)  # type: ignore[attr-defined]
        self._n_bytes_left -= len(chunk)
        return chunk


class _Utf8:
    """Reads a file of text in another encoding, and returns its bytes in UTF-8."""

    def __init__(self, file: BinaryIO, data: str, encoding: str) -> None:
        self._file = file
        self._data = data
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read1(self, n_bytes: int) -> bytes:
        """Return the next bytes, read as up to n_bytes of the file; nothing at the end.

        Raises BadData for bytes that the encoding does not have.
        """
        try:
            while chunk := self._file.read1(n_bytes):  # type: ignore[attr-defined]
                if text := self._decoder.decode(chunk):  # a chunk may end within a character
                    return text.encode()
            return self._decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            raise BadData(
                f"{self._data}: expected {self._encoding}, found {str(error)[:200]}"
            ) from None


def _as_utf8(file: Any, data: str, columns: TableColumns) -> Any:
    """Return a file whose bytes are UTF-8; `data` is its name in errors."""
    return _Utf8(file, data, columns.encoding) if columns.encoding else file


def blocks_of(
    source: Source, line_bytes_max: int, rows_max: int, first: int = 1
) -> "Iterator[LineBlock]":
    """Yield the lines of `source` in blocks, as they arrive; None for a line that is too long.

    first  the number of the first line

    A byte order mark at the beginning is skipped.
    """
    from xylem.serving.batches.lines import LineBlock  # imports schemas: `xylem --help` needs none

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
        if source.convert is not None:
            raw_lines = list(map(source.convert, raw_lines))
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
    """Return a text as a line of JSON. Bytes that are not UTF-8 stay, for the parser to reject."""
    return b'{"text":"%b"}' % _ESCAPED.sub(
        lambda match: b"\\u%04x" % match[0][0], line.removesuffix(b"\r")
    )


def _as_instance(fields: TextFields, vector: str, line: bytes) -> bytes:
    """Return a line of JSON whose keys are fields as one with a text, and its vector as `vector`.

    vector  the key with the vectors; empty: it need not be changed

    Other lines, and the object `fields` of a line, stay, for the parser.
    """
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    if not isinstance(row, dict):
        return line
    if vector:
        row["vector"] = row.get(vector)
    cells = None if TextFields.key in row else fields.cells(row)
    if cells is None:
        return orjson.dumps(row) if vector else line
    other_values = {key: row[key] for key in ("id", "labels", "sequence", "vector") if key in row}
    try:
        return orjson.dumps({"text": fields.join(cells), **other_values})
    except BadInstance:  # the parser names the field
        return orjson.dumps(
            {TextFields.key: dict(zip(fields.names, cells, strict=True)), **other_values}
        )


def in_order(
    todo: "Iterator[LineBlock]",
    answer: "Callable[[LineBlock], Answered]",
    threads: int,
    would_wait: Callable[[], bool],
) -> "Iterator[Answered]":
    """Yield the answers to blocks in order, made by `threads` threads.

    Before reading on would wait (`would_wait`), all answers to blocks that were read are yielded.
    """
    pending: deque[Future[Answered]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for block in todo:
            pending.append(pool.submit(answer, block))
            while pending and (len(pending) > threads or would_wait()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
