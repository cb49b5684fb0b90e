"""Read the rows of `.csv` and `.tsv` files, in the format of RFC 4180.

The parser is that of the standard library.
"""

import codecs
import csv
from collections.abc import Iterator

from xylem.datasets.stream import LINE_BYTES_MAX, DataFile

DELIMITERS = {".csv": ",", ".tsv": "\t"}

ROW_BYTES_MAX = LINE_BYTES_MAX
"""The largest size of a row, all its lines together."""

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
"""Our message for each message of the parser, by the words that the latter contains."""


def delimited_rows(file: DataFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a file, the header first: the number of the first line, from 1, and cells.

    Cells may be quoted with `"`; a quoted cell may contain delimiters, line ends, and quotes, which
    are written twice. Empty lines are ignored. Raises BadData, which names the line, for text that
    is not UTF-8, for NUL, for quotes that are not closed, and for rows of more than ROW_BYTES_MAX
    bytes. Memory: a block of the file, and a row.
    """
    # The parser's limit of the size of a cell holds for the whole process, and the default is
    # smaller than a long document: it is raised here, and `_Lines` bounds the rows instead.
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

    Raises BadData, which names the line and the byte, for text that is not UTF-8 and for NUL.
    Memory: a block.
    """
    for number, line in enumerate(_decoded_lines(file), 1):
        yield number, line.rstrip("\r\n")


class _Lines:
    """The lines of a file, given to the parser; it counts them, and the bytes of the current row.

    Raises BadData for a row of more than ROW_BYTES_MAX bytes.
    """

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._lines = _decoded_lines(file)
        self._n_lines = 0
        self._first = 1
        self._n_bytes = 0

    def start_row(self) -> int:
        """Begin a new row at the next line; return the number of that line."""
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
    """Return where byte `offset` of a block stands: its line, and its place in the line, from 1.

    first  the number of the block's first line
    """
    return first + block.count(b"\n", 0, offset), offset - block.rfind(b"\n", 0, offset)


def _decoded_lines(file: DataFile) -> Iterator[str]:
    """Yield the lines as text, each with its line end.

    Raises BadData for text that is not UTF-8, and for NUL.
    """
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
        # not `splitlines`, which also splits at form feeds and other characters
        yield from (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
