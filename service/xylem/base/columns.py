"""The columns of a table that have the text and the labels of its rows."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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
    """The columns of a table that are read, and the separators of its cells and labels.

    texts      joined by line ends, in this order; a column of weight w is repeated w times
    labels     the column of the labels
    separator  stands between the labels of a cell; blanks around a label, and empty labels, are
               left out
    delimiter  stands between the cells of a line of a text table; empty: the suffix of the file
               decides
    """

    texts: tuple[TextColumn, ...] = (TextColumn("text"),)
    labels: str = "labels"
    separator: str = ";"
    delimiter: str = ""


DEFAULT_COLUMNS = TableColumns()
"""The columns that are read if no option names any."""


def columns_of(
    texts: Sequence[str] | None,
    labels: str | None,
    separator: str | None,
    delimiter: str | None = None,
) -> TableColumns:
    """Return the columns for the values of `--text-column`, `--label-column` and so on.

    A text is NAME or NAME=WEIGHT, a delimiter a character or "tab"; None: default. Raises
    BadParameter.
    """
    if texts is not None and len(texts) > COLUMNS_MAX:
        raise BadParameter(f"text column: expected at most {COLUMNS_MAX}, found {len(texts)}")
    text_columns = DEFAULT_COLUMNS.texts if not texts else tuple(map(_text_column, texts))
    names = [column.name for column in text_columns]
    if len(set(names)) < len(names):
        raise BadParameter(
            f"text column: expected distinct names, found {', '.join(map(repr, names))}"
        )
    if labels is not None and not labels:
        raise BadParameter("label column: expected a name, found an empty one")
    if separator is not None and not 0 < len(separator) <= SEPARATOR_CHARS_MAX:
        expected = f"expected 1 to {SEPARATOR_CHARS_MAX} characters"
        raise BadParameter(f"label separator: {expected}, found {len(separator)}")
    delimiter_char = "\t" if delimiter == "tab" else delimiter or ""
    if delimiter is not None and (len(delimiter_char) != 1 or delimiter_char in '"\r\n'):
        raise BadParameter(
            f"delimiter: expected a character, not a quote, or tab, found {delimiter!r}"
        )
    return TableColumns(
        text_columns,
        DEFAULT_COLUMNS.labels if labels is None else labels,
        DEFAULT_COLUMNS.separator if separator is None else separator,
        delimiter_char,
    )


def _text_column(text: str) -> TextColumn:
    if not text:
        raise BadParameter("text column: expected a name, found an empty one")
    match = _WEIGHED.fullmatch(text)
    name, weight = (match[1], int(match[2])) if match else (text, 1)
    if not 1 <= weight <= WEIGHT_MAX:
        raise BadParameter(
            f"text column {name!r}: expected a weight from 1 to {WEIGHT_MAX}, found {weight}"
        )
    return TextColumn(name, weight)


def is_table(path: Path) -> bool:
    """Return whether a file has the suffix of a table."""
    return plain_name(path).endswith(TABLES)


def refuse_without_table(columns: TableColumns, *files: Path | None) -> None:
    """Raise BadParameter if columns are chosen although no file is a table."""
    paths = [file for file in files if file is not None]
    # a directory, which has no suffix, may contain tables
    can_be_tables = [is_table(file) or not file.suffix for file in paths]
    if columns != DEFAULT_COLUMNS and not any(can_be_tables):
        names = ", ".join(repr(file.name) for file in paths)
        raise BadParameter(
            f"columns: expected a file that ends in {', '.join(TABLES)}, found {names}"
        )
