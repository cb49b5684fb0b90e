"""Tables to rows, or to lines of JSON: columns of text and labels of
.csv, .tsv, .parquet; guessed too.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any, Self

import orjson

from xylem.base import (
    DEFAULT_COLUMNS,
    PACKED,
    TABLES,
    BadData,
    BadParameter,
    TableColumns,
    TextColumn,
    columns_of,
    faults_of,
    n_bytes_of,
    reason_of,
    refuse_without_table,
)
from xylem.datasets.annif import CorpusDirectory, corpus_lines, is_corpus, uris_in
from xylem.datasets.delimited import DELIMITERS, delimited_rows
from xylem.datasets.files import open_data
from xylem.datasets.json_lines import TextRow
from xylem.datasets.stream import LINE_BYTES_MAX, DataFile

BATCH_ROWS = 64
BATCH_ROWS_LEAST = 16
"""Rows of a Parquet file read at once, fewer where they may be long. A row takes 20 microseconds,
40 if 16 (the least) are read at once, 13 if 4,096 are.
"""

BATCH_BYTES = 1 << 28  # of rows that are read at once, if the file tells the truth of its sizes

GROUP_BYTES_MAX = 1 << 30
GROUP_RATIO_MAX = 16
"""The most that columns of a row group may unpack to, if it is so
many times their size in the file.
"""


def check_installed() -> None:
    """Raise BadParameter unless the reader of Parquet is installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        expected = "expected pyarrow, which reads .parquet files"
        raise BadParameter(f"{expected}, found none: pip install 'xylem-serve[data]'") from None


class ParquetTable:
    """The columns of a Parquet file; the file's bytes are read once more, for its digest."""

    def __init__(self, file: DataFile) -> None:
        """Read the digest and the names of the columns.

        Raises BadData, and BadParameter without pyarrow.
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
        """Raise BadData unless the columns hold text, and labels:
        text, whole numbers, or lists of text.
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
        """Yield the number of each row, from 1, and its cells in some
        columns: None where there is nothing.

        Raises BadData for damage, and for a cell of more than LINE_BYTES_MAX bytes.
        """
        number = 0
        try:
            for batch in self._batches(list(dict.fromkeys(columns))):
                for cells in zip(
                    *(batch.column(name).to_pylist() for name in columns), strict=True
                ):
                    number += 1
                    # a list of labels may be longer than all its strings together
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
        """Yield a few rows at a time. Raises BadData for a file that was made to fill the memory.

        No cell is longer than the whole of its column in a row group. But cells that repeat a text
        of a dictionary, or the one before them, can make gigabytes of a few kB.
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
    """Return the type of a column's values: of a dictionary that of what it encodes."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


_COLUMNS_QUOTED_MAX = 10

_URIS = "subject_uris"  # a column of URIs with blanks between, as Annif has it


def table_rows(
    file: DataFile, columns: TableColumns, *, with_labels: bool = True
) -> Generator[TextRow]:
    """Yield the rows of a table, each with its first line in the file, of Parquet with its number.

    with_labels  False: there need be no column of labels, and rows have none
    A cell without a value is an empty text, or no label. Without a header, a .tsv file may have a
    text and `<URI>`s in each line. Raises BadData, naming the line, for a table that cannot be
    used, and BadParameter for a Parquet file where its reader is not installed.
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
        # a text counts as often as its column weighs
        pairs = zip(cells, columns.texts, strict=True)
        texts = (cell or "" for cell, column in pairs for _ in range(column.weight))
        yield TextRow(line, "\n".join(texts), labels)


def _label_column(path: Path, suffix: str, columns: TableColumns) -> str:
    """Return the column of the labels: where none is named and
    there is no `labels`, that of Annif's.
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
    """Yield the cells of some columns, named by the header, of each row. Raises BadData."""
    rows = delimited_rows(file, delimiter)
    line, header = next(rows, (1, []))
    if not header:
        raise file.fault(1, "expected a header with the names of columns, found an empty file")
    places = _places(file, line, header, column_names)
    for line, cells in rows:
        if len(cells) != len(header):
            raise file.fault(
                line, f"expected {len(header)} cells, as the header has, found {len(cells)}"
            )
        yield line, [cells[place] for place in places]


def _parquet_rows(
    file: DataFile, column_names: Sequence[str], with_labels: bool
) -> Iterator[tuple[int, list[Any]]]:
    with closing(ParquetTable(file)) as table:
        _places(file, None, table.columns, column_names)
        texts, labels = (
            (column_names[:-1], column_names[-1]) if with_labels else (column_names, None)
        )
        table.check_types(texts, labels)
        yield from table.rows(column_names)


def _places(
    file: DataFile, line: int | None, header: Sequence[str], column_names: Sequence[str]
) -> list[int]:
    """Return the place of each wanted column. Raises BadData, naming the columns that there are."""
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
    """Return the labels in a cell: a text, a whole number, a list of texts, or nothing."""
    if is_uris and isinstance(cell, str):
        return uris_in(cell)
    if isinstance(cell, list):
        parts = [part for part in cell if part is not None]
    else:
        parts = [] if cell is None else str(cell).split(separator)
    return [label for part in parts if (label := part.strip())]


class TableLines:
    """The texts of a table, or of a directory of documents, read as a file of bytes is: a context.

    n_bytes  of the file; `tell` says how many of them are read
    """

    def __init__(self, path: Path, columns: TableColumns, *, with_labels: bool = False) -> None:
        """Read nothing yet. Raises BadData for a file that is not there."""
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
        self._lines = self._encoded()

    def read1(self, n_bytes: int) -> bytes:
        """Return whole lines, of n_bytes or a row more; none at the
        end. Raises what `table_rows` does.
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
        """Return the next line; none at the end. Raises what `table_rows` does."""
        return next(self._lines, b"")

    def tell(self) -> int:
        """Return how many bytes of the file are read."""
        return self._place

    def _move(self, done: int, total: int) -> None:
        self._place = done

    def _encoded(self) -> Generator[bytes]:
        for row in self._rows:
            labels = {"labels": row.labels} if self._with_labels else {}
            yield orjson.dumps({"text": row.text, **labels}) + b"\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()


ROWS = 1000
"""So many rows are looked at."""

TEXTS = frozenset(["abstract", "body", "content", "description", "summary", "text", "title"])
LABELS = (
    *(
        "labels",
        "label",
        "subject_uris",
        "subjects",
        "subject",
        "tags",
        "tag",
        "categories",
        "category",
    ),
    *("keywords", "topics", "topic", "classes", "class", "target"),
)
"""Names that columns of texts and of labels have, whatever their
case; of labels the likeliest first.
"""

SEPARATORS = (";", "|", ",")  # the first one counts that is in a tenth of the cells


def guess_columns(
    path: Path,
    texts: Sequence[str] | None,
    labels: str | None,
    separator: str | None,
    delimiter: str | None,
) -> TableColumns:
    """Return the columns of a table that are read; what is not None is
    what was said, as in `columns_of`.

    Of many files the first is looked at; of what is no table nothing is guessed.

    The delimiter is the one by which the most rows have as many cells as the header. Columns go by
    their names; else the one with the most words is the text, and the one whose cells repeat the
    most, but are not all equal, has the labels. Raises BadData, and BadParameter.
    """
    guess = columns_of(texts, labels, separator, delimiter)
    file = next(open_data(path).files())
    path = file.path
    if file.kind not in TABLES:
        refuse_without_table(guess, path)
        return guess
    if file.kind == ".tsv" and is_corpus(path):
        return guess
    if file.kind == ".parquet":
        with closing(ParquetTable(DataFile(path))) as table:
            rows = [row for _, row in islice(table.rows(table.columns), ROWS)]
            cell_delimiter = ""
            cells = {name: [row[i] for row in rows] for i, name in enumerate(table.columns)}
    else:
        cell_delimiter, cells = _delimited(path, guess.delimiter)
    names_by_lowercase = {name.lower(): name for name in cells}
    chosen = labels or next(
        (names_by_lowercase[name] for name in LABELS if name in names_by_lowercase), None
    )
    candidates = [name for name in cells if name and name != chosen]
    if not texts and candidates:
        text_names = [name for name in candidates if name.lower() in TEXTS]
        text_names = text_names or [
            max(candidates, key=lambda name: sum(len(str(cell).split()) for cell in cells[name]))
        ]
        guess = guess._replace(texts=tuple(map(TextColumn, text_names)))
    candidates = [
        name for name in candidates if name not in [column.name for column in guess.texts]
    ]
    if chosen is None and candidates:
        n_values = {name: len(set(map(str, cells[name]))) for name in candidates}
        chosen = min(
            candidates, key=lambda name: n_values[name] if n_values[name] > 1 else math.inf
        )
    chosen = chosen or guess.labels
    label_separator = separator or _separator(path, cells.get(chosen, []))
    return guess._replace(labels=chosen, separator=label_separator, delimiter=cell_delimiter)


def _delimited(path: Path, delimiter: str) -> tuple[str, dict[str, list[Any]]]:
    """Return the delimiter, and the cells of each column. Raises BadData."""
    if next(DataFile(path).blocks(), None) is None:
        raise BadData(f"{path}: expected a header with the names of columns, found an empty file")
    usual_delimiter = DELIMITERS[DataFile(path).kind]
    best: tuple[float, int, str, list[list[str]]] = (-1.0, 0, delimiter or usual_delimiter, [[]])
    for mark in (
        [delimiter]
        if delimiter
        else dict.fromkeys((usual_delimiter, *DELIMITERS.values(), ";", "|"))
    ):
        try:
            rows = [
                cells for _, cells in islice(delimited_rows(DataFile(path), mark), ROWS + 1)
            ] or [[]]
        except BadData:
            continue  # a quote that is none with this delimiter; who reads all of the file is told
        width = len(rows[0])
        fit = sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0
        best = max(best, (fit, width, mark, rows), key=lambda candidate: candidate[:2])
    _, width, mark, (header, *rows) = best
    rows = [row for row in rows if len(row) == width]
    return mark, {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _separator(path: Path, cells: Sequence[Any]) -> str:
    texts = [cell for cell in cells if isinstance(cell, str) and cell]
    for cell in texts:
        if cell[0] == "[" and cell[-1] == "]":
            expected = f"{path}: expected labels with a separator between, as a; b"
            raise BadData(f"{expected}, found a list as text: {cell:.40}")
    least = 0.1 * len(texts)
    often = (mark for mark in SEPARATORS if texts and sum(mark in cell for cell in texts) >= least)
    return next(often, DEFAULT_COLUMNS.separator)
