"""Guess which columns of a table are texts and which one is labels."""

import math
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from xylem.base import (
    DEFAULT_COLUMNS,
    TABLES,
    BadData,
    TableColumns,
    TextColumn,
    columns_of,
    refuse_without_table,
)
from xylem.datasets.annif import is_corpus
from xylem.datasets.delimited import DELIMITERS, delimited_rows
from xylem.datasets.files import open_data
from xylem.datasets.stream import DataFile
from xylem.datasets.tables import ParquetTable

ROWS = 1000
"""The most rows that are read to guess the columns."""

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
"""Names of columns of texts and of labels, in lower case; those of labels in order of preference.
"""

SEPARATORS = (";", "|", ",")
SEPARATED_SHARE = 0.1
"""The first separator is used that occurs in at least this share of the cells."""


def guess_columns(
    path: Path,
    texts: Sequence[str] | None,
    labels: str | None,
    separator: str | None,
    delimiter: str | None,
) -> TableColumns:
    """Guess the columns of a table that have texts and labels, its separator and its delimiter.

    The arguments are as in `columns_of`; one that is not None is used and not guessed. If the path
    names several files, the first one is read. For a file that is no table nothing is guessed.

    The delimiter is the one with which the most rows have as many cells as the header. Columns are
    found by their names; if no name matches, the column with the most words is the text, and the
    column with the fewest different values, but more than one, has the labels. Raises BadData and
    BadParameter.
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
        cell_delimiter, cells = _sample_columns(path, guess.delimiter)
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


def _sample_columns(path: Path, delimiter: str) -> tuple[str, dict[str, list[Any]]]:
    """Return the delimiter of a .csv or .tsv file, and the cells of each column by its name.

    delimiter  the delimiter; "": it is guessed

    Raises BadData.
    """
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
            continue  # quotes may be wrong with this delimiter; reading the table reports faults
        width = len(rows[0])
        fit = sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0
        best = max(best, (fit, width, mark, rows), key=lambda candidate: candidate[:2])
    _, width, mark, (header, *rows) = best
    rows = [row for row in rows if len(row) == width]
    return mark, {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _separator(path: Path, cells: Sequence[Any]) -> str:
    """Return the separator of labels in the cells. Raises BadData for lists written as text."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell]
    for cell in texts:
        if cell[0] == "[" and cell[-1] == "]":
            expected = f"{path}: expected labels with a separator between, as a; b"
            raise BadData(f"{expected}, found a list as text: {cell:.40}")
    least = SEPARATED_SHARE * len(texts)
    often = (mark for mark in SEPARATORS if texts and sum(mark in cell for cell in texts) >= least)
    return next(often, DEFAULT_COLUMNS.separator)
