"""Read the columns of text and labels of a table: .csv, .tsv or .parquet.

The columns can be guessed, and the rows can be read as lines of JSON.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import orjson

from xylem.base import (
    DEFAULT_COLUMNS,
    PACKED,
    BadData,
    BadParameter,
    TableColumns,
    faults_of,
    n_bytes_of,
    reason_of,
)
from xylem.datasets.annif import CorpusDirectory, corpus_lines, is_corpus, uris_in
from xylem.datasets.delimited import DELIMITERS, delimited_rows
from xylem.datasets.json_lines import TextRow
from xylem.datasets.stream import LINE_BYTES_MAX, DataFile

BATCH_ROWS = 64
BATCH_ROWS_LEAST = 16
"""How many rows of a Parquet file are read at once; fewer, at least BATCH_ROWS_LEAST, if they may
be long. A row takes 20 microseconds, 40 if 16 are read at once, 13 if 4,096 are.
"""

BATCH_BYTES = 1 << 28  # the most bytes of rows read at once, if the file's metadata are true

GROUP_BYTES_MAX = 1 << 30
GROUP_RATIO_MAX = 16
"""A row group is refused if its columns unpack to more than GROUP_BYTES_MAX bytes, and to more than
GROUP_RATIO_MAX times their size in the file.
"""


def check_installed() -> None:
    """Raise BadParameter unless pyarrow, which reads Parquet, is installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        fault = "reading .parquet files needs pyarrow: pip install 'xylem-serve[data]'"
        raise BadParameter(fault) from None


class ParquetTable:
    """An open Parquet file. Its bytes are read twice: once for the digest, once by pyarrow.

    columns  the names of the columns
    """

    def __init__(self, file: DataFile) -> None:
        """Compute the digest of the file and read the names of its columns.

        Raises BadData, and BadParameter if pyarrow is not installed.
        """
        check_installed()
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        if file.path.suffix in PACKED:
            fault = "expected a name that ends in .parquet, for such a file is compressed within"
            raise file.fault(None, f"{fault}, found .parquet{file.path.suffix}")
        for _ in file.blocks():
            pass
        self._file = file
        self._faults = (pa.ArrowException, UnicodeDecodeError, *faults_of(file.path))
        try:
            with ExitStack() as stack:
                open_file = stack.enter_context(file.path.open("rb"))
                self._table = ParquetFile(open_file)
                self._schema = self._table.schema_arrow
                self._open_file = stack.pop_all()
        except self._faults as error:
            raise self._damage(error) from None
        self.columns: list[str] = list(self._schema.names)

    def close(self) -> None:
        """Close the file."""
        self._open_file.close()

    def check_types(self, texts: Sequence[str], labels: str | None) -> None:
        """Raise BadData for a column of another type than expected.

        texts   names of columns, which must hold text
        labels  name of a column, which must hold text, whole numbers, or lists of text; None: there
                is no such column
        """
        from pyarrow import types

        for name in texts:
            value_type = _value_type(self._schema.field(name).type)
            if not _is_text(value_type):
                raise self._file.fault(
                    None, f"column {name[:40]!r}: expected text, found {str(value_type)[:60]}"
                )
        if labels is not None:
            value_type = _value_type(self._schema.field(labels).type)
            is_list = (
                types.is_list(value_type)
                or types.is_large_list(value_type)
                or types.is_fixed_size_list(value_type)
            )
            is_simple = (
                _is_text(value_type) or types.is_integer(value_type) or types.is_null(value_type)
            )
            if not is_simple and not (is_list and _is_text(_value_type(value_type.value_type))):
                expected = "expected text, whole numbers, or lists of text"
                fault = f"column {labels[:40]!r}: {expected}, found {str(value_type)[:60]}"
                raise self._file.fault(None, fault)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of each row, from 1, and its cells in the columns; a null is None.

        Raises BadData for damage, and for a row whose cells are longer than LINE_BYTES_MAX.
        """
        number = 0
        try:
            for batch in self._batches(list(dict.fromkeys(columns))):
                for cells in zip(
                    *(batch.column(name).to_pylist() for name in columns), strict=True
                ):
                    number += 1
                    # the length of a list counts too: a list of empty strings may be long
                    if (
                        sum(len(cell) for cell in cells if isinstance(cell, str | list))
                        > LINE_BYTES_MAX
                    ):
                        fault = (
                            f"expected a row of at most {LINE_BYTES_MAX} bytes, found a longer one"
                        )
                        raise self._file.fault(number, fault)
                    yield number, list(cells)
        except self._faults as error:
            raise self._damage(error) from None

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield batches of a few rows. Raises BadData for a file that was made to fill the memory.

        No cell is longer than its column's data in a row group. But cells that repeat an entry of a
        dictionary, or the cell before them, can make gigabytes of a few kB.
        """
        for number in range(self._table.num_row_groups):
            group = self._table.metadata.row_group(number)
            chunks = [
                chunk
                for chunk in map(group.column, range(group.num_columns))
                if chunk.path_in_schema.startswith(tuple(columns))
            ]
            n_bytes = sum(chunk.total_uncompressed_size for chunk in chunks)
            is_dense = n_bytes > GROUP_RATIO_MAX * sum(
                chunk.total_compressed_size for chunk in chunks
            )
            if is_dense and n_bytes > GROUP_BYTES_MAX:
                raise self._file.fault(
                    None,
                    f"expected row groups that unpack to at most {GROUP_BYTES_MAX} bytes, "
                    f"found one of {n_bytes}: write smaller ones",
                )
            n_rows = max(
                1 if is_dense else BATCH_ROWS_LEAST, min(BATCH_ROWS, BATCH_BYTES // max(1, n_bytes))
            )
            yield from self._table.iter_batches(n_rows, row_groups=[number], columns=columns)

    def _damage(self, error: Exception) -> BadData:
        if isinstance(error, MemoryError):
            raise error
        text = str(error).split("\n", 1)[0][:200]
        return self._file.fault(None, f"expected a whole Parquet file, found damage: {text}")


def _value_type(kind: Any) -> Any:
    """Return the type of a column's values; for a column with a dictionary, that of its entries."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


_COLUMNS_QUOTED_MAX = 10

_URIS = "subject_uris"  # the name of Annif's column of URIs, which blanks separate


def table_rows(
    file: DataFile, columns: TableColumns, *, with_labels: bool = True
) -> Generator[TextRow]:
    """Yield the rows of a table; `place` is the row's first line, or in Parquet its number.

    with_labels  False: rows have no labels, and a column of labels is not needed

    A cell without a value is an empty text, or no label. A .tsv file may also be a corpus of Annif:
    it has no header, but a text and `<URI>`s in each line. Raises BadData, which names the line,
    for a table that cannot be used, and BadParameter for a Parquet file if pyarrow is not
    installed.
    """
    suffix = file.kind
    if suffix == ".tsv" and columns == DEFAULT_COLUMNS and is_corpus(file.path):
        yield from corpus_lines(file)
        return
    column_names = [column.name for column in columns.texts]
    label_column = _label_column(file.path, suffix, columns) if with_labels else ""
    if with_labels:
        column_names.append(label_column)
    is_uris = label_column == _URIS and columns.separator == DEFAULT_COLUMNS.separator
    rows = _parquet_rows(file, column_names, with_labels) if suffix == ".parquet" else None
    for line, cells in rows or _delimited_rows(
        file, columns.delimiter or DELIMITERS[suffix], column_names
    ):
        labels = _labels(cells.pop(), columns.separator, is_uris) if with_labels else []
        # the text of a column of weight w is repeated w times
        pairs = zip(cells, columns.texts, strict=True)
        texts = (cell or "" for cell, column in pairs for _ in range(column.weight))
        yield TextRow(line, "\n".join(texts), labels)


def _label_column(path: Path, suffix: str, columns: TableColumns) -> str:
    """Return the name of the column of labels.

    If the user names none and the table has no column `labels`, it is a column of Annif, if the
    table has one.
    """
    if columns.labels != DEFAULT_COLUMNS.labels:
        return columns.labels
    if suffix == ".parquet":
        with closing(ParquetTable(DataFile(path))) as table:
            header = list(table.columns)
    else:
        _, header = next(
            delimited_rows(DataFile(path), columns.delimiter or DELIMITERS[suffix]), (1, [])
        )
    candidates = [name for name in (columns.labels, _URIS, "subjects") if name in header]
    return candidates[0] if candidates else columns.labels


def _delimited_rows(
    file: DataFile, delimiter: str, column_names: Sequence[str]
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the line number of each row and its cells in the columns, which the header names.

    Raises BadData.
    """
    rows = delimited_rows(file, delimiter)
    line, header = next(rows, (1, []))
    if not header:
        raise file.fault(1, "expected a header with the names of columns, found an empty file")
    places = _column_indices(file, line, header, column_names)
    for line, cells in rows:
        if len(cells) != len(header):
            raise file.fault(
                line, f"expected {len(header)} cells, as the header has, found {len(cells)}"
            )
        yield line, [cells[place] for place in places]


def _parquet_rows(
    file: DataFile, column_names: Sequence[str], with_labels: bool
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row and its cells in the columns.

    with_labels  whether the last one of the columns has the labels

    Raises BadData, and BadParameter if pyarrow is not installed.
    """
    with closing(ParquetTable(file)) as table:
        _column_indices(file, None, table.columns, column_names)
        texts, labels = (
            (column_names[:-1], column_names[-1]) if with_labels else (column_names, None)
        )
        table.check_types(texts, labels)
        yield from table.rows(column_names)


def _column_indices(
    file: DataFile, line: int | None, header: Sequence[str], column_names: Sequence[str]
) -> list[int]:
    """Return the index of each column in the header.

    Raises BadData, which lists the header's columns, for a name that is not in it exactly once.
    """
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
    return [header.index(name) for name in column_names]


def _labels(cell: Any, separator: str, is_uris: bool) -> list[str]:
    """Return the labels in a cell: a text, a whole number, a list of texts, or None.

    is_uris  whether a text holds URIs, which blanks separate
    """
    if is_uris and isinstance(cell, str):
        return uris_in(cell)
    if isinstance(cell, list):
        parts = [part for part in cell if part is not None]
    else:
        parts = [] if cell is None else str(cell).split(separator)
    return [label for part in parts if (label := part.strip())]


class TableLines:
    """The rows of a table or of a directory of documents, read as a file of lines of JSON.

    It is a context manager.

    n_bytes  the size of the file; `tell` returns how many of its bytes are read
    """

    def __init__(self, path: Path, columns: TableColumns, *, with_labels: bool = False) -> None:
        """Prepare to read; with_labels: lines have `labels` beside `text`.

        Raises BadData for a file that does not exist.
        """
        try:
            self.n_bytes = n_bytes_of(path)
        except faults_of(path) as error:
            raise BadData(
                f"{path}: expected a file that can be read, found {reason_of(error)}"
            ) from None
        self._place = 0
        self._rows: Iterator[TextRow]
        if path.is_dir():
            self._rows = CorpusDirectory(path).documents(with_labels=with_labels)
        else:
            self._rows = table_rows(DataFile(path, self._move), columns, with_labels=with_labels)
        self._with_labels = with_labels
        self._lines = self._json_lines()

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

    def _json_lines(self) -> Generator[bytes]:
        for row in self._rows:
            labels = {"labels": row.labels} if self._with_labels else {}
            yield orjson.dumps({"text": row.text, **labels}) + b"\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
