"""Tables to rows, or to lines of JSON: the columns of text and labels of `.csv`, `.tsv`, `.parquet` files."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from service.base.columns import DEFAULT_COLUMNS, TableColumns
from service.base.errors import BadData
from service.datasets.annif import corpus_lines, is_corpus, uris_in
from service.datasets.delimited import DELIMITERS, delimited_rows
from service.datasets.json_lines import TextRow
from service.datasets.parquet import ParquetTable
from service.datasets.stream import DataFile

_SHOWN_MAX = 10

_URIS = "subject_uris"
"""A column of URIs with blanks between, as Annif has it."""

_OTHER_LABELS = (_URIS, "subjects")
"""Columns of labels where none is named and there is no `labels`, the first that there is."""


def table_rows(file: DataFile, columns: TableColumns, *, with_labels: bool = True) -> Generator[TextRow]:
    """Yield the rows of a table, each with its first line in the file, of Parquet with its number.

    with_labels  False: there need be no column of labels, and rows have none
    A cell without a value is an empty text, or no label. Without a header, a .tsv file may have a text and
    `<URI>`s in each line. Raises BadData, naming the line, for a table that
    cannot be used, and BadParameter for a Parquet file where its reader is not installed.
    """
    suffix = Path(file.path.name.removesuffix(".gz")).suffix
    if suffix == ".tsv" and columns == DEFAULT_COLUMNS and is_corpus(file.path):
        yield from corpus_lines(file)
        return
    wanted = [column.name for column in columns.texts]
    label_column = _label_column(file.path, suffix, columns) if with_labels else ""
    if with_labels:
        wanted.append(label_column)
    is_uris = label_column == _URIS and columns.separator == DEFAULT_COLUMNS.separator
    rows = _parquet_rows(file, wanted, with_labels) if suffix == ".parquet" else None
    for line, cells in rows or _delimited_rows(file, DELIMITERS[suffix], wanted):
        labels = _labels(cells.pop(), columns.separator, is_uris) if with_labels else []
        # a text counts as often as its column weighs
        pairs = zip(cells, columns.texts, strict=True)
        texts = (cell or "" for cell, column in pairs for _ in range(column.weight))
        yield TextRow(line, "\n".join(texts), labels)


def _label_column(path: Path, suffix: str, columns: TableColumns) -> str:
    """Return the column of the labels: where none is named and there is no `labels`, that of Annif's."""
    if columns.labels != DEFAULT_COLUMNS.labels:
        return columns.labels
    if suffix == ".parquet":
        with closing(ParquetTable(DataFile(path))) as table:
            header = list(table.columns)
    else:
        _, header = next(delimited_rows(DataFile(path), DELIMITERS[suffix]), (1, []))
    found = [name for name in (columns.labels, *_OTHER_LABELS) if name in header]
    return found[0] if found else columns.labels


def _delimited_rows(file: DataFile, delimiter: str, wanted: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    """Yield the cells of some columns, named by the header, of each row. Raises BadData."""
    rows = delimited_rows(file, delimiter)
    line, header = next(rows, (1, []))
    if not header:
        raise file.fault(1, "expected a header with the names of columns, found an empty file")
    places = _places(file, line, header, wanted)
    for line, cells in rows:
        if len(cells) != len(header):
            raise file.fault(line, f"expected {len(header)} cells, as the header has, found {len(cells)}")
        yield line, [cells[place] for place in places]


def _parquet_rows(
    file: DataFile, wanted: Sequence[str], with_labels: bool
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the cells of some columns of each row of a Parquet file."""
    with closing(ParquetTable(file)) as table:
        _places(file, None, table.columns, wanted)
        texts, labels = (wanted[:-1], wanted[-1]) if with_labels else (wanted, None)
        table.check_types(texts, labels)
        yield from table.rows(wanted)


def _places(file: DataFile, line: int | None, header: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the place of each wanted column. Raises BadData, naming the columns that there are."""
    for name in wanted:
        if header.count(name) != 1:
            shown = ", ".join(repr(column[:40]) for column in header[:_SHOWN_MAX])
            more = f" and {len(header) - _SHOWN_MAX} more" if len(header) > _SHOWN_MAX else ""
            raise file.fault(line, f"expected one column {name[:80]!r}, found columns {shown}{more}")
    return [header.index(name) for name in wanted]


def _labels(cell: Any, separator: str, is_uris: bool) -> list[str]:
    """Return the labels in a cell: a text, a whole number, a list of texts, or nothing."""
    if is_uris and isinstance(cell, str):
        return uris_in(cell)
    if isinstance(cell, list):
        parts = [part for part in cell if part is not None]
    else:
        parts = [] if cell is None else str(cell).split(separator)
    return [label for part in parts if (label := part.strip())]


class TableLines:
    """The texts of a table, read as a file of bytes is: a context, closed at its end.

    n_bytes  of the file; `tell` says how many of them are read
    """

    def __init__(self, path: Path, columns: TableColumns, *, with_labels: bool = False) -> None:
        """Read nothing yet. Raises BadData for a file that is not there."""
        try:
            self.n_bytes = path.stat().st_size
        except OSError as error:
            raise BadData(f"{path}: expected a file that can be read, found {error.strerror}") from None
        self._place = 0
        self._rows = table_rows(DataFile(path, self._move), columns, with_labels=with_labels)
        self._with_labels = with_labels
        self._lines = self._encoded()

    def read1(self, n_bytes: int) -> bytes:
        """Return whole lines, of n_bytes or a row more; none at the end. Raises what `table_rows` does."""
        pieces: list[bytes] = []
        size = 0
        for line in self._lines:
            pieces.append(line)
            size += len(line)
            if size >= n_bytes:
                break
        return b"".join(pieces)

    def readline(self) -> bytes:
        """Return the next line; none at the end. Raises what `table_rows` does."""
        return next(self._lines, b"")

    def tell(self) -> int:
        """Return how many bytes of the file are read."""
        return self._place

    def _move(self, done: int, total: int) -> None:
        self._place = done

    def _encoded(self) -> Iterator[bytes]:
        for row in self._rows:
            labels = {"labels": row.labels} if self._with_labels else {}
            yield orjson.dumps({"text": row.text, **labels}) + b"\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()
