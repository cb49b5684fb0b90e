"""Read the rows of `.csv` and `.tsv` files, in the format of RFC 4180.

The parser is that of the standard library.
"""

import csv
import re
from collections.abc import Generator, Iterator
from itertools import chain
from typing import Literal

from xylem.datasets.stream import LINE_BYTES_MAX, DataFile

DELIMITERS = {".csv": ",", ".tsv": "\t"}

ROW_BYTES_MAX = LINE_BYTES_MAX  # the largest size of a row, all its lines together

_DELIMITER_LINE = re.compile(r"(\"?)sep=([^\"\r\n])\1\r?\n")

# Our message for each message of the parser, by the words that the latter contains.
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


def delimited_rows(
    file: DataFile, delimiter: str, *, has_quotes: bool = True
) -> Generator[tuple[int, list[str]]]:
    """Yield the rows of a file, the header first: the number of the first line, from 1, and cells.

    Cells may be quoted with `"`; a quoted cell may contain delimiters, line ends, and quotes, which
    are written twice. Without has_quotes a quote is a character as any other. A first line `sep=;`,
    as spreadsheets write it, is no row: it names the delimiter. Empty lines are ignored. Raises
    BadData, which names the line, for text that is not UTF-8, for NUL, for quotes that are not
    closed, and for rows of more than ROW_BYTES_MAX bytes. Memory: a block of the file, and a row.
    """
    # The parser's limit of the size of a cell holds for the whole process, and the default is
    # smaller than a long document: it is raised here, and `_Lines` bounds the rows instead.
    csv.field_size_limit(max(csv.field_size_limit(), ROW_BYTES_MAX))
    lines = _Lines(file)
    delimiter = lines.take_delimiter() or delimiter
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=quoting)
    while True:
        first = lines.start_row()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise file.fault(
                first,
                next(
                    (fault for start, fault in _FAULTS.items() if start in str(error)),
                    f"expected cells, found: {error}",
                ),
            ) from None
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

    def take_delimiter(self) -> str:
        """Return the delimiter that the first line names, and pass that line over; else ""."""
        first = next(self._lines, "")
        if match := _DELIMITER_LINE.fullmatch(first):
            self._n_lines = 1
            return match[2]
        self._lines = chain([first] if first else [], self._lines)
        return ""

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
            raise self._file.fault(
                self._first,
                f"expected a row of at most {ROW_BYTES_MAX} bytes, found a longer one"
                ": perhaps a quote is never closed",
            )
        return line


def _decoded_lines(file: DataFile) -> Iterator[str]:
    """Yield the lines as text, each with its line end.

    Raises BadData for text that is not UTF-8, and for NUL.
    """
    for block in file.lines():
        text = "" if b"\0" in block else block.decode(errors="replace")
        # only a block that has U+FFFD, which a file may have, can have other bytes than UTF-8
        if (not text or "\ufffd" in text) and (fault := file.text_fault(block)):
            raise fault
        # not `splitlines`, which also splits at form feeds and other characters
        yield from (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
