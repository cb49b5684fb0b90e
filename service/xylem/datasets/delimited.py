"""Rows of cells of `.csv` and `.tsv` files, as RFC 4180 has them, by the standard
library's parser.
"""

import codecs
import csv
from collections.abc import Iterator

from xylem.datasets.stream import LINE_BYTES_MAX, DataFile

DELIMITERS = {".csv": ",", ".tsv": "\t"}

ROW_BYTES_MAX = LINE_BYTES_MAX
"""The longest row, all its lines together."""

_FAULTS = {
    "unexpected end of data": "expected a closing quote of a cell that begins in this row, "
    "found the end of "
    "the file",
    "new-line character seen": "expected lines that end in LF or CR LF, found a CR alone "
    "outside of quotes",
    "expected after": "expected a comma (of a .tsv file: a tab) or a line end after a "
    "closing quote, found "
    "more; a quote within a quoted cell is written twice",
}
"""What the parser's messages mean."""


def delimited_rows(file: DataFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each row's first line, from 1, and its cells: the header first.

    Cells may be quoted with `"`; a quoted cell may have delimiters, line ends, and quotes written
    twice. Empty lines are passed over. Raises BadData, naming the line, for other text than UTF-8,
    NUL, quotes that are not closed, and rows of more than ROW_BYTES_MAX bytes. Memory: a block of
    the file, and a row.
    """
    # The parser's own limit is of the whole process, and smaller than a
    # long document: `_Lines` bounds rows.
    csv.field_size_limit(max(csv.field_size_limit(), ROW_BYTES_MAX))
    lines = _Lines(file)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        first = lines.start_row()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            explanations = (fault for start, fault in _FAULTS.items() if start in str(error))
            raise file.fault(first, next(explanations, f"expected cells, found: {error}")) from None
        if cells is None:
            return
        if cells:
            yield first, cells


def text_lines(file: DataFile) -> Iterator[tuple[int, str]]:
    """Yield the number of each line, from 1, and its text without the line end.

    Raises BadData, naming the line and the byte, for other text than UTF-8 and NUL. Memory: a
    block.
    """
    for number, line in enumerate(_decoded(file), 1):
        yield number, line.rstrip("\r\n")


class _Lines:
    """The lines of a file as text, for the parser; it counts
    them, and the bytes of the row at hand.
    """

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._lines = _decoded(file)
        self._n_lines = 0
        self._first = 1
        self._n_bytes = 0

    def start_row(self) -> int:
        """Say that the lines so far were parsed; return the number of the next one."""
        self._first = self._n_lines + 1
        self._n_bytes = 0
        return self._first

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._n_lines += 1
        self._n_bytes += len(line)
        if self._n_bytes > ROW_BYTES_MAX:
            fault = f"expected a row of at most {ROW_BYTES_MAX} bytes, found a longer one"
            raise self._file.fault(self._first, f"{fault}: perhaps a quote is never closed")
        return line


def _place(block: bytes, offset: int, first: int) -> tuple[int, int]:
    """Return the line of byte `offset` of a block whose first line is
    `first`, and its place there, from 1.
    """
    return first + block.count(b"\n", 0, offset), offset - block.rfind(b"\n", 0, offset)


def _decoded(file: DataFile) -> Iterator[str]:
    """Yield the lines, each with its end. Raises BadData for other text than UTF-8, and for NUL."""
    for block in file.lines():
        if file.line == 1 and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise file.fault(1, "expected UTF-8, found a byte order mark of UTF-16: convert it")
        if b"\0" in block:
            line, place = _place(block, block.index(b"\0"), file.line)
            fault = (
                f"expected text, found NUL, byte {place} of the line: perhaps the file is UTF-16"
            )
            raise file.fault(line, fault)
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            line, place = _place(block, error.start, file.line)
            fault = (
                f"expected UTF-8, found byte 0x{block[error.start]:02x}, byte {place} of the line"
            )
            raise file.fault(line, f"{fault}: perhaps it is Windows-1252") from None
        # `splitlines` would also split at other characters than line ends
        yield from (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
