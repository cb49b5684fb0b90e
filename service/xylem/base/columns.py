"""How a data file is read: the columns of a table, its marks, the encoding, rows of one text."""

import codecs
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from xylem.base.errors import BadParameter
from xylem.base.files import plain_name

TABLES = (".csv", ".tsv", ".parquet")
"""The suffixes of tables; each but .parquet may be followed by .gz or .zst."""

WEIGHT_MAX = 9
"""The greatest weight of a column."""

COLUMNS_MAX = 64
"""The maximum number of text columns."""

SEPARATOR_CHARS_MAX = 16

_WEIGHED = re.compile(r"(.+)=(\d{1,9})", re.DOTALL)


class TextColumn(NamedTuple):
    """A column of text; each of its words counts `weight` times, from 1 to WEIGHT_MAX."""

    name: str
    weight: int = 1


class TableColumns(NamedTuple):
    """The columns of a table that are read, its marks, and how any file is read.

    The reader guesses what is empty: the first four, from the names and cells of the table.

    texts          joined by line ends, in this order; a column of weight w is repeated w times
    labels         the column of the labels
    separator      stands between the labels of a cell; blanks around a label, and empty labels, are
                   left out
    delimiter      stands between the cells of a line of a text table
    label_columns  patterns for several columns of labels, in place of `labels`: their cells are
                   labels; or, if they have only 0 and 1, the names of the columns are
    has_quotes     whether a cell of a text table may be quoted
    encoding       of the text; empty: UTF-8
    join           the column, or the key of lines of JSON, that is the same in the rows of one
                   text; their labels are joined. Empty: each row is one
    strict         whether a file is refused for each finding
    weight         the column, or the key of lines of JSON, with the weights of rows. Empty: all
                   weights are 1
    vectors        the file of vectors that stands beside a data file, as (data file, its vectors)
    """

    texts: tuple[TextColumn, ...] = ()
    labels: str = ""
    separator: str = ""
    delimiter: str = ""
    label_columns: tuple[str, ...] = ()
    has_quotes: bool = True
    encoding: str = ""
    join: str = ""
    strict: bool = False
    weight: str = ""
    vectors: tuple[tuple[Path, Path], ...] = ()

    def vectors_of(self, path: Path) -> Path | None:
        """Return the file of vectors that stands beside a data file, None if there is none."""
        return next((vectors for data, vectors in self.vectors if data == path), None)

    def with_vectors(self, vectors: Sequence[Path] | None, *files: Path | None) -> Self:
        """Return the same with a file of vectors beside each data file, in the same order.

        Raises BadParameter, whose path is the field of a job, unless there are as many of both, or
        no vectors.
        """
        paths = [file for file in files if file is not None]
        if vectors and self.join:
            raise BadParameter("vectors cannot be used with join rows").with_path("vectors")
        if vectors and len(vectors) != len(paths):
            names = ", ".join(path.name for path in paths)
            expected = f"expected a file for each file of data, {len(paths)} ({names})"
            raise BadParameter(f"vectors: {expected}, found {len(vectors)}").with_path("vectors")
        return self._replace(vectors=tuple(zip(paths, vectors or (), strict=False)))

    def with_texts(self, names: Iterable[str]) -> Self:
        """Return the same with these columns of text, each of weight 1."""
        return self._replace(texts=tuple(map(TextColumn, names)))

    @property
    def texts_and_weight(self) -> set[str]:
        """Return the names of the columns of texts and of weights."""
        return {column.name for column in self.texts} | {self.weight}

    @property
    def for_tables(self) -> tuple[Any, ...]:
        """Return the values that only tables have."""
        return self[:6]

    @property
    def is_guessed(self) -> bool:
        """Return whether the reader guesses everything."""
        return self.for_tables == DEFAULT_COLUMNS.for_tables


DEFAULT_COLUMNS = TableColumns()
"""No option says how a file is read."""


def columns_of(
    texts: Sequence[str] | None,
    labels: str | None,
    separator: str | None,
    delimiter: str | None = None,
    label_columns: Sequence[str] | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    join_rows: str | None = None,
    strict: bool = False,
    weight_column: str | None = None,
) -> TableColumns:
    """Return the columns for the values of `--text-column`, `--label-column` and so on.

    A text is NAME or NAME=WEIGHT, a delimiter a character or "tab", a quote "none"; None: the
    reader guesses. Raises BadParameter, whose path is the field of a job.
    """
    if texts is not None and len(texts) > COLUMNS_MAX:
        raise BadParameter(
            f"text column: expected at most {COLUMNS_MAX}, found {len(texts)}"
        ).with_path("text_column")
    text_columns = tuple(map(_text_column, texts or ()))
    names = [column.name for column in text_columns]
    if len(set(names)) < len(names):
        raise BadParameter(
            f"text column: expected distinct names, found {', '.join(map(repr, names))}"
        ).with_path("text_column")
    if labels is not None and not labels:
        raise BadParameter("label column: expected a name, found an empty one").with_path(
            "label_column"
        )
    if separator is not None and not 0 < len(separator) <= SEPARATOR_CHARS_MAX:
        expected = f"expected 1 to {SEPARATOR_CHARS_MAX} characters"
        raise BadParameter(f"label separator: {expected}, found {len(separator)}").with_path(
            "label_separator"
        )
    delimiter_char = "\t" if delimiter == "tab" else delimiter or ""
    if delimiter is not None and (len(delimiter_char) != 1 or delimiter_char in '"\r\n'):
        raise BadParameter(
            f"delimiter: expected a character, not a quote, or tab, found {delimiter!r}"
        ).with_path("delimiter")
    if label_columns and labels is not None:
        raise BadParameter(
            "label columns: expected --label-column or --label-columns, found both"
        ).with_path("label_columns")
    if weight_column is not None and (join_rows or not weight_column):
        expected = "a name, and rows that are not joined"
        instead = f"--join-rows {join_rows}" if weight_column else "an empty name"
        raise BadParameter(f"weight column: expected {expected}, found {instead}").with_path(
            "weight_column"
        )
    if quote not in (None, "none"):
        raise BadParameter(f"quote: expected none, found {quote!r}").with_path("quote")
    return TableColumns(
        texts=text_columns,
        labels=labels or "",
        separator=separator or "",
        delimiter=delimiter_char,
        label_columns=tuple(label_columns or ()),
        has_quotes=quote is None,
        encoding="" if encoding is None else _encoding(encoding),
        join=join_rows or "",
        strict=strict,
        weight=weight_column or "",
    )


def _encoding(name: str) -> str:
    """Return the name of an encoding of text, "" for UTF-8. Raises BadParameter."""
    try:
        "a".encode(name)  # a codec that is no encoding of text, as rot13, is refused
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        expected = "expected the name of an encoding, as windows-1252"
        raise BadParameter(f"encoding: {expected}, found {name[:40]!r}").with_path(
            "encoding"
        ) from None
    return "" if codec.name in ("utf-8", "utf-8-sig") else codec.name


def _text_column(text: str) -> TextColumn:
    if not text:
        raise BadParameter("text column: expected a name, found an empty one").with_path(
            "text_column"
        )
    match = _WEIGHED.fullmatch(text)
    name, weight = (match[1], int(match[2])) if match else (text, 1)
    if not 1 <= weight <= WEIGHT_MAX:
        raise BadParameter(
            f"text column {name!r}: expected a weight from 1 to {WEIGHT_MAX}, found {weight}"
        ).with_path("text_column")
    return TextColumn(name, weight)


def is_table(path: Path) -> bool:
    """Return whether a file has the suffix of a table."""
    return plain_name(path).endswith(TABLES)


def refuse_without_table(columns: TableColumns, *files: Path | None) -> None:
    """Raise BadParameter if columns are chosen although no file is a table."""
    paths = [file for file in files if file is not None]
    # a directory, which has no suffix, may contain tables
    can_be_tables = [is_table(file) or not file.suffix for file in paths]
    if not columns.is_guessed and not any(can_be_tables):
        names = ", ".join(repr(file.name) for file in paths)
        raise BadParameter(
            f"columns: expected a file that ends in {', '.join(TABLES)}, found {names}"
        )
