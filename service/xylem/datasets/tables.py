"""Read the texts and labels of a table: .csv, .tsv or .parquet, also as lines of JSON."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import orjson

from xylem.base import (
    BadData,
    TableColumns,
    TextFields,
    faults_of,
    is_table,
    n_bytes_of,
    reason_of,
)
from xylem.datasets.annif import CorpusDirectory, corpus_lines, uris_in
from xylem.datasets.column_guess import (
    ROWS,
    URI_SEPARATOR,
    URIS,
    flags_of,
    options_of,
    understood,
)
from xylem.datasets.delimited import delimited_rows
from xylem.datasets.findings import HEADER_AGAIN, LINES_LEAST, swallowed_rows
from xylem.datasets.json_lines import TextRow
from xylem.datasets.parquet import ParquetTable
from xylem.datasets.stream import DataFile
from xylem.datasets.vectors import VECTOR, lines_with_vectors


def table_rows(
    file: DataFile,
    columns: TableColumns,
    join: Callable[[TextFields, list[Any]], Any] = TextFields.join,
    *,
    with_labels: bool = True,
) -> Generator[TextRow]:
    """Yield the rows of a table; `place` is the row's first line, or in Parquet its number.

    join         makes the text of a row, from the columns of text and their cells
    with_labels  False: rows have no labels, and a column of labels is not needed

    A cell without a value is an empty text, or no label. A .tsv file may also be a corpus of Annif:
    it has no header, but a text and `<URI>`s in each line. Raises BadData, which names the line,
    for a table that cannot be used, and BadParameter for a Parquet file if pyarrow is not
    installed.
    """
    columns = understood(file, columns, with_labels=with_labels)
    if not columns.texts:
        yield from corpus_lines(file)
        return
    file.options[:] = options_of(file, columns)
    table: ParquetTable | DelimitedTable = (
        ParquetTable(file) if file.kind == ".parquet" else DelimitedTable(file, columns)
    )
    with closing(table):
        text_names = columns.texts.names
        label_names = _label_names(table.columns, columns) if with_labels else []
        extra_names = [name for name in (columns.join, columns.weight, columns.vector) if name]
        names = [*text_names, *label_names, *extra_names]
        _check_columns(file, table.line, table.columns, names)
        if isinstance(table, ParquetTable):
            table.check_types(
                text_names, label_names, columns.vector, are_flags=bool(columns.label_columns)
            )
        rows = table.rows(names)
        places = slice(len(text_names), len(text_names) + len(label_names))
        are_flags = False
        if columns.label_columns and with_labels:
            first_rows = list(islice(rows, ROWS))
            are_flags = all(flags_of(cells[places]) is not None for _, cells in first_rows)
            rows = chain(first_rows, rows)
        is_uris = columns.labels == URIS and columns.separator == URI_SEPARATOR
        for line, cells in rows:
            labels: list[Any] = (
                _flagged(file, line, label_names, cells[places])
                if are_flags
                else [
                    label
                    for cell in cells[places]
                    for label in _labels(cell, columns.separator, is_uris)
                ]
            )
            other_cells = (
                dict(zip(extra_names, cells[places.stop :], strict=True)) if extra_names else {}
            )
            yield TextRow(
                line,
                join(columns.texts, cells[: places.start]),
                labels,
                key=""
                if columns.join and other_cells[columns.join] is None
                else other_cells.get(columns.join),
                weight=number_in(other_cells.get(columns.weight)),
                vector=other_cells.get(columns.vector),
            )


class DelimitedTable:
    """An open .csv or .tsv file.

    columns  the names in its header
    line     the line of the header
    """

    def __init__(self, file: DataFile, columns: TableColumns) -> None:
        """Read the header. Raises BadData."""
        self._file = file
        self._delimiter = columns.delimiter
        self._rows = delimited_rows(file, columns.delimiter, has_quotes=columns.has_quotes)
        self.line, self.columns = next(self._rows, (1, []))
        if not self.columns:
            raise file.fault(1, "expected a header with the names of columns, found an empty file")

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def rows(self, names: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the line of each row, and its cells in some columns.

        Raises BadData. Adds the first row to the findings of the file that is the header again, or
        that has a cell with rows in it.
        """
        header = self.columns
        places = [header.index(name) for name in names]
        n_findings = len(self._file.findings)
        line_before, cells_before = self.line, header
        for line, cells in self._rows:
            if len(cells) != len(header):
                is_quoted = any("\n" in cell for cell in cells)
                raise self._file.fault(
                    line,
                    f"expected {len(header)} cells, as the header has, found {len(cells)}"
                    f"{': perhaps a quote is part of the text: --quote none' if is_quoted else ''}",
                )
            if cells == header or line - line_before > LINES_LEAST:
                self._note(n_findings, line_before, cells_before)
                if cells == header and len(self._file.findings) == n_findings:
                    self._file.findings.append(HEADER_AGAIN.about(self._file.place(line)))
            line_before, cells_before = line, cells
            yield line, [cells[place] for place in places]
        self._note(n_findings, line_before, cells_before)

    def _note(self, n_findings: int, line: int, cells: list[str]) -> None:
        """Add the finding that a row has swallowed others, if it is the first one."""
        if len(self._file.findings) == n_findings:
            finding = swallowed_rows(cells, self._delimiter, partial(self._file.place, line))
            self._file.findings += [finding] if finding else []


_COLUMNS_QUOTED_MAX = 10


def _label_names(header: Sequence[str], columns: TableColumns) -> list[str]:
    return [
        name
        for name in header
        if name not in columns.names_without_labels
        and any(fnmatchcase(name, pattern) for pattern in columns.label_columns)
    ] or [columns.labels or columns.label_columns[0]]


def _check_columns(
    file: DataFile, line: int | None, header: Sequence[str], column_names: Sequence[str]
) -> None:
    """Raise BadData, which lists the header's columns, for a name that is not in it just once."""
    for name in column_names:
        if header.count(name) != 1:
            listing = ", ".join(repr(column[:40]) for column in header[:_COLUMNS_QUOTED_MAX])
            suffix = (
                f" and {len(header) - _COLUMNS_QUOTED_MAX} more"
                if len(header) > _COLUMNS_QUOTED_MAX
                else ""
            )
            raise file.fault(
                line, f"expected one column {name[:80]!r}, found columns {listing}{suffix}"
            )


def _flagged(file: DataFile, line: int, names: Sequence[str], cells: Sequence[Any]) -> list[str]:
    """Return the names of the columns with a 1. Raises BadData for other cells than 0 and 1."""
    flags = flags_of(cells)
    if flags is None:
        cell = next(cell for cell in cells if flags_of([cell]) is None)
        raise file.fault(
            line,
            "expected 0 or 1 in the columns of labels, as in the rows before, "
            f"found {str(cell)[:40]!r}",
        )
    return [name for name, flag in zip(names, flags, strict=True) if flag]


def number_in(cell: Any) -> Any:
    """Return the number in a cell of text; any other cell unchanged."""
    try:
        return float(cell) if isinstance(cell, str) else cell
    except ValueError:
        return cell


def _labels(cell: Any, separator: str, is_uris: bool) -> list[Any]:
    """Return the labels in a cell: a text, a whole number, a list of these, or None.

    is_uris  whether a text holds URIs, which blanks separate
    """
    if isinstance(cell, list):
        return cell
    if cell is None or cell == "":
        return []
    return uris_in(cell) if is_uris else str(cell).split(separator)


class TableLines:
    """The rows of a table, of a directory of documents, or of lines with vectors beside them.

    They are read as a file of lines of JSON, each with its vector if there are vectors.

    It is a context manager.

    n_bytes  the size of the file; `tell` returns how many of its bytes are read
    number   that of the row in the last line
    options  how a table is read, as options of commands, after the first line
    """

    def __init__(self, path: Path, columns: TableColumns, *, with_labels: bool = False) -> None:
        """Prepare to read.

        with_labels  whether lines have `labels`, the weight, the vector by the name of its column,
                     and `fields` if columns are named, because their text is made later; else
                     lines have a `text`, and a `vector` if there is one

        Raises BadData for a file that does not exist.
        """
        try:
            self.n_bytes = n_bytes_of(path)
        except faults_of(path) as error:
            raise BadData(
                f"{path}: expected a file that can be read, found {reason_of(error)}"
            ) from None
        self._place = self.number = 0
        self._with_labels = with_labels
        self._weight = columns.weight
        self._fields = columns.texts or columns.fields
        file = DataFile(path, self._move)
        file.encoding = columns.encoding
        columns = columns.for_file(path, file.kind)
        self._vector = columns.vector
        self.options = file.options
        if path.is_dir():
            lines = self._json_lines(CorpusDirectory(path).documents(with_labels=with_labels))
        elif is_table(path):
            lines = self._json_lines(table_rows(file, columns, self._join, with_labels=with_labels))
        else:
            lines = self._plain_lines(file)
        self._lines = lines_with_vectors(lines, path, columns)

    def read1(self, n_bytes: int) -> bytes:
        """Return whole lines of at least n_bytes together; fewer at the end, then b"".

        Raises the errors of `table_rows`.
        """
        pieces: list[bytes] = []
        size = 0
        for line in self._lines:
            pieces.append(line)
            size += len(line)
            if size >= n_bytes:
                break
        return b"".join(pieces)

    def readline(self) -> bytes:
        """Return the next line; b"" at the end. Raises the errors of `table_rows`."""
        return next(self._lines, b"")

    def tell(self) -> int:
        """Return how many bytes of the file were read."""
        return self._place

    def _move(self, done: int, total: int) -> None:
        self._place = done

    def _plain_lines(self, file: DataFile) -> Iterator[bytes]:
        for block in file.lines():
            for self.number, line in enumerate(block.split(b"\n")[:-1], file.line):
                yield line + b"\n"

    def _json_lines(self, rows: Iterator[TextRow]) -> Iterator[bytes]:
        for row in rows:
            self.number = row.place
            values: dict[str, Any] = {}
            if self._with_labels:
                values = {"labels": row.labels}
                if self._weight:
                    values[self._weight] = row.weight
            if self._vector:
                values[self._vector if self._with_labels else VECTOR] = row.vector
            key = "text" if isinstance(row.text, str) else TextFields.key
            yield orjson.dumps({key: row.text, **values}) + b"\n"

    def _join(self, fields: TextFields, cells: list[Any]) -> str | dict[str, Any]:
        is_joined_later = self._with_labels and fields == self._fields
        return (
            dict(zip(fields.names, cells, strict=True)) if is_joined_later else fields.join(cells)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
