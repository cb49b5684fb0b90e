"""Which columns of a table are text and labels, guessed from their names and cells: for `xylem try`."""

import math
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from service.base.columns import (
    DEFAULT_COLUMNS,
    TABLES,
    TableColumns,
    TextColumn,
    columns_of,
    refuse_without_table,
)
from service.base.errors import BadData
from service.datasets.annif import is_corpus
from service.datasets.delimited import DELIMITERS, delimited_rows
from service.datasets.files import open_data
from service.datasets.stream import DataFile
from service.datasets.tables import ParquetTable

ROWS = 1000
"""So many rows are looked at."""

TEXTS = frozenset(["abstract", "body", "content", "description", "summary", "text", "title"])
LABELS = (
    *("labels", "label", "subject_uris", "subjects", "subject", "tags", "tag", "categories", "category"),
    *("keywords", "topics", "topic", "classes", "class", "target"),
)
"""Names that columns of texts and of labels have, whatever their case; of labels the likeliest first."""

SEPARATORS = (";", "|", ",")
"""The first one counts that is in a tenth of the cells."""


def guess_columns(
    path: Path, texts: Sequence[str] | None, labels: str | None, separator: str | None, delimiter: str | None
) -> TableColumns:
    """Return the columns of a table that are read; what is not None is what was said, as in `columns_of`.

    Of many files the first is looked at; of what is no table nothing is guessed.

    The delimiter is the one by which the most rows have as many cells as the header. Columns go by their
    names; else the one with the most words is the text, and the one whose cells repeat the most, but are not
    all equal, has the labels. Raises BadData, and BadParameter.
    """
    found = columns_of(texts, labels, separator, delimiter)
    file = next(open_data(path).each())
    path = file.path
    if file.kind not in TABLES:
        refuse_without_table(found, path)
        return found
    if file.kind == ".tsv" and is_corpus(path):
        return found
    if file.kind == ".parquet":
        with closing(ParquetTable(DataFile(path))) as table:
            rows = [row for _, row in islice(table.rows(table.columns), ROWS)]
            mark, cells = "", {name: [row[i] for row in rows] for i, name in enumerate(table.columns)}
    else:
        mark, cells = _delimited(path, found.delimiter)
    known = {name.lower(): name for name in cells}
    chosen = labels or next((known[name] for name in LABELS if name in known), None)
    others = [name for name in cells if name and name != chosen]
    if not texts and others:
        named = [name for name in others if name.lower() in TEXTS]
        named = named or [max(others, key=lambda name: sum(len(str(cell).split()) for cell in cells[name]))]
        found = found._replace(texts=tuple(map(TextColumn, named)))
    others = [name for name in others if name not in [column.name for column in found.texts]]
    if chosen is None and others:
        n_values = {name: len(set(map(str, cells[name]))) for name in others}
        chosen = min(others, key=lambda name: n_values[name] if n_values[name] > 1 else math.inf)
    chosen = chosen or found.labels
    between = separator or _separator(path, cells.get(chosen, []))
    return found._replace(labels=chosen, separator=between, delimiter=mark)


def _delimited(path: Path, said: str) -> tuple[str, dict[str, list[Any]]]:
    """Return the delimiter, and the cells of each column. Raises BadData."""
    if next(DataFile(path).blocks(), None) is None:
        raise BadData(f"{path}: expected a header with the names of columns, found an empty file")
    own = DELIMITERS[DataFile(path).kind]
    best: tuple[float, int, str, list[list[str]]] = (-1.0, 0, said or own, [[]])
    for mark in [said] if said else dict.fromkeys((own, *DELIMITERS.values(), ";", "|")):
        try:
            rows = [cells for _, cells in islice(delimited_rows(DataFile(path), mark), ROWS + 1)] or [[]]
        except BadData:
            continue  # a quote that is none with this delimiter; who reads all of the file is told
        width = len(rows[0])
        fit = sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0
        best = max(best, (fit, width, mark, rows), key=lambda each: each[:2])
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
