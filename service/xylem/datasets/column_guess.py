"""Guess how a table is read: its delimiter, the columns of texts and labels, and the separator.

All readers of tables use this one: what an option says is not guessed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from glob import escape
from itertools import islice
from typing import Any, NamedTuple

from xylem.base import BadData, TableColumns
from xylem.datasets.annif import is_corpus
from xylem.datasets.delimited import DELIMITERS, delimited_rows
from xylem.datasets.findings import AMBIGUOUS_LABELS, NO_HEADER, mark_between, quoted
from xylem.datasets.parquet import ParquetTable
from xylem.datasets.stream import DataFile

# What is read if nothing else can be guessed.
DEFAULT_SEPARATOR = ";"
DEFAULT_TEXT = "text"
DEFAULT_LABELS = "labels"

# The most rows that are read to guess the columns, and about the most characters of them.
ROWS = 500
SAMPLE_CHARACTERS = 1 << 22

# Names of columns of texts and of labels, in lower case; those of labels in order of preference.
TEXTS = (
    *(DEFAULT_TEXT, "abstract", "body", "content", "description"),
    *("headline", "subject", "summary", "title"),
)
LABELS = (
    *(DEFAULT_LABELS, "label", "subject_uris", "subjects", "subject", "tags", "tag"),
    *("categories", "category", "keywords", "topics", "topic", "classes", "class", "target"),
)

URIS = "subject_uris"  # the name of Annif's column of URIs
URI_SEPARATOR = " "

SEPARATORS = (";", "|")
# A separator is used that occurs in at least this share of the cells: labels seldom contain it.
SEPARATED_SHARE = 0.1

# Other marks that are used if they divide the cells into few parts. Those that are not here, as `/`
# and `-`, stand within names, too: then a finding says so.
LIST_MARKS = (",", " ", "\t", "#", "、", "，", "；")

FEW_ROWS = 20  # with fewer rows a column may have labels if any value is repeated

# A column of which a larger share of values differ has no labels: labels are repeated.
DISTINCT_SHARE = 0.9

# Values with more words on average are texts. In a column whose name says that it has labels,
# values with few words may all differ.
LABEL_WORDS_MAX = 6
NAMED_WORDS_MAX = 3

_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b.*")

_FLAGS = {
    **dict.fromkeys(("1", "1.0", "true"), True),
    **dict.fromkeys(("", "0", "0.0", "false", "-1", "none"), False),
}

_NUMBERED = re.compile(r"(.*?)[ _.-]?\d{1,3}")


class _Sample(NamedTuple):
    """The first rows of a table: its delimiter, the line of its header, and cells by column."""

    delimiter: str
    line: int
    cells: dict[str, list[Any]]


class _Values(NamedTuple):
    """What the cells of a column look like, if they may be labels.

    is_divided  whether a mark divides many of them; blanks divide other texts than labels, too
    n_labels    how many distinct labels they have
    """

    is_divided: bool
    n_labels: int


def understood(file: DataFile, columns: TableColumns, *, with_labels: bool = True) -> TableColumns:
    """Return how a table is read: the columns that are named, and others guessed.

    with_labels  False: the rows are predicted, and there may be no labels

    A corpus of Annif in a .tsv file is no table: nothing is guessed for it.

    The delimiter is the one with which the most rows have as many cells as the header. Columns are
    found by their names. If no name matches, columns of 0 and 1 or with numbered names have the
    labels together; else the column does whose cells are divided, or have the most values that
    repeat. The column with the most words is the text. Raises BadData and BadParameter. It adds its
    doubts to the findings of the file.
    """
    if columns.is_guessed and file.kind == ".tsv" and is_corpus(file):
        return columns
    has_labels = bool(columns.labels or columns.label_columns)
    if columns.texts and columns.separator and columns.delimiter and has_labels:
        return columns
    sample = _sample(file, columns)
    columns = columns._replace(delimiter=sample.delimiter)
    is_named = bool(columns.texts) and has_labels
    if not has_labels and with_labels:
        columns = columns._replace(labels=_named_labels(sample, columns))
        if not columns.labels:
            columns = columns._replace(label_columns=_label_columns(sample, columns))
    if not columns.texts and any(name in sample.cells for name in columns.fields.names):
        columns = columns._replace(texts=columns.fields)
    if not columns.texts:
        columns = columns.with_texts(_texts(sample, columns))
    # one pattern is of numbered names, which say that they are labels; several are of 0 and 1
    if not has_labels and not columns.labels and len(columns.label_columns) != 1 and with_labels:
        columns = _labels_by_cells(file, sample, columns)
    cells = sample.cells.get(columns.labels, [])
    columns = columns._replace(separator=columns.separator or _separator(columns.labels, cells))
    if not is_named and _is_row(columns, cells):
        file.findings.append(
            NO_HEADER.about(file.place(sample.line), header=", ".join(sample.cells))
        )
    return columns


def options_of(file: DataFile, columns: TableColumns) -> list[str]:
    """Return the options of a command that reads a file so; without those that say what is usual.

    columns  as they are understood, with nothing left to guess
    """
    texts = columns.texts.options
    values = (
        *(("--text-column", text, "") for text in texts if texts != [DEFAULT_TEXT]),
        *(("--label-columns", pattern, "") for pattern in columns.label_columns),
        ("--label-column", columns.labels, DEFAULT_LABELS),
        ("--label-separator", columns.separator, DEFAULT_SEPARATOR),
        (
            "--delimiter",
            "tab" if columns.delimiter == "\t" else columns.delimiter,
            "tab" if file.kind == ".tsv" else DELIMITERS[".csv"],
        ),
        ("--encoding", columns.encoding, ""),
        ("--join-rows", columns.join, ""),
        ("--weight-column", columns.weight, ""),
        ("--vector-column", columns.vector, ""),
        ("--quote", "" if columns.has_quotes else "none", ""),
    )
    return [
        part
        for option, value, usual in values
        if value not in ("", usual)
        for part in (option, value)
    ]


def flags_of(cells: Iterable[Any]) -> list[bool] | None:
    """Return whether each cell says that a row has a label; None unless all are 0 or 1.

    -1 and an empty cell are 0, true is 1.
    """
    flags = [_FLAGS.get(str(cell).strip().lower()) for cell in cells]
    return None if None in flags else [bool(flag) for flag in flags]


def _sample(file: DataFile, columns: TableColumns) -> _Sample:
    if file.kind == ".parquet":
        with closing(ParquetTable(file.again(), with_digest=False)) as table:
            rows = [row for _, row in _first_rows(table.rows(table.columns))]
            return _Sample(
                "", 0, {name: [row[i] for row in rows] for i, name in enumerate(table.columns)}
            )
    usual_delimiter = DELIMITERS[file.kind]
    marks = [columns.delimiter] if columns.delimiter else [usual_delimiter, ",", "\t", ";", "|"]
    best_fit = -1.0
    best = _Sample(marks[0], 1, {})
    for mark in dict.fromkeys(marks):
        lines = delimited_rows(file.again(), mark, has_quotes=columns.has_quotes)
        try:
            rows_of_lines = list(_first_rows(lines))
        except BadData:
            # quotes may be wrong with this delimiter. If no other one fits, it is the one that is
            # read, and the fault is reported
            best_fit = max(best_fit, 0.0)
            continue
        rows = [cells for _, cells in rows_of_lines] or [[]]
        width = len(rows[0])
        fit = sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0
        if fit > best_fit or (fit == best_fit and width > max(1, len(best.cells))):
            best_fit = fit
            cells = {
                name: [row[i] for row in rows[1:] if len(row) == width]
                for i, name in enumerate(rows[0])
            }
            best = _Sample(mark, rows_of_lines[0][0] if rows_of_lines else 1, cells)
        if best_fit == 1.0 and mark == usual_delimiter:
            break
    return best


def _first_rows(rows: Iterator[tuple[int, list[Any]]]) -> Iterator[tuple[int, list[Any]]]:
    """Yield ROWS rows and a header; fewer if their cells are long."""
    n_characters = 0
    for row in islice(rows, ROWS + 1):
        yield row
        n_characters += sum(len(cell) for cell in row[1] if isinstance(cell, str | list))
        if n_characters > SAMPLE_CHARACTERS:
            return


def _named_labels(sample: _Sample, columns: TableColumns) -> str:
    """Return the column whose name and cells are those of labels; "" if there is none."""
    names = {name.lower(): name for name in sample.cells}
    for lowercase in LABELS:
        name = names.get(lowercase, "")
        if (
            name
            and name not in columns.names_without_labels
            and (
                lowercase in (DEFAULT_LABELS, URIS)
                or _values(name, sample.cells[name], NAMED_WORDS_MAX)
            )
        ):
            return name
    return ""


def _label_columns(sample: _Sample, columns: TableColumns) -> tuple[str, ...]:
    """Return patterns of several columns that have the labels together; empty: there are none.

    They have the name of labels and a number, as tag_1, or only 0 and 1 in their cells.
    """
    stems = Counter(
        match[1]
        for name in sample.cells
        if (match := _NUMBERED.fullmatch(name)) and match[1].lower() in LABELS
    )
    if stems and (stem := stems.most_common(1)[0])[1] > 1:
        return (f"{escape(stem[0])}*[0-9]",)
    flagged = [
        escape(name)
        for name, cells in sample.cells.items()
        if name
        and name not in columns.names_without_labels
        and len(set(map(str, cells))) > 1
        and flags_of(cells)
    ]
    return tuple(flagged) if len(flagged) > 1 else ()


def _texts(sample: _Sample, columns: TableColumns) -> list[str]:
    """Return the columns of texts: by their names, else the one with the most words."""
    excluded = {"", columns.labels, *columns.names_without_labels}
    candidates = [name for name in sample.cells if name not in excluded]
    if DEFAULT_TEXT in sample.cells or not candidates:
        return [DEFAULT_TEXT]
    return [name for name in candidates if name.lower() in TEXTS] or [
        max(candidates, key=lambda name: sum(len(str(cell).split()) for cell in sample.cells[name]))
    ]


def _labels_by_cells(file: DataFile, sample: _Sample, columns: TableColumns) -> TableColumns:
    """Return the column whose cells look most like labels; the default name if none does.

    Columns of 0 and 1 have the labels unless the cells of another column are divided.
    """
    flagged = [name for name in sample.cells if escape(name) in columns.label_columns]
    candidates = {
        name: values
        for name, cells in sample.cells.items()
        if name
        and name not in (*columns.names_without_labels, *flagged)
        and (values := _values(name, cells))
    }
    if not candidates:
        return columns if flagged else columns._replace(labels=DEFAULT_LABELS)
    chosen = max(candidates, key=lambda name: candidates[name])
    are_flags = bool(flagged) and not candidates[chosen].is_divided
    rivals = (
        list(candidates)
        if are_flags
        else flagged
        + [
            name
            for name, values in candidates.items()
            if name != chosen and values.is_divided == candidates[chosen].is_divided
        ]
    )
    if rivals:
        read = quoted(flagged if are_flags else [chosen])
        file.findings.append(AMBIGUOUS_LABELS.about(chosen=read, rivals=quoted(rivals)))
    return columns if are_flags else columns._replace(labels=chosen, label_columns=())


def _values(name: str, cells: Sequence[Any], n_words_distinct: int = 0) -> _Values | None:
    """Return the cells as labels, or None if they do not look like labels.

    n_words_distinct  cells that hardly repeat are labels if they have at most this many words on
                      average; 0: such cells are never labels

    Dates and texts are not labels.
    """
    if any(isinstance(cell, list) for cell in cells):
        return _Values(True, len({str(part) for cell in cells for part in cell or ()}))
    texts = [str(cell) for cell in cells if cell is not None and cell != ""]
    separator = _separator(name, texts)
    parts = [part.strip() for text in texts for part in text.split(separator)]
    n_labels = len(set(parts))
    if n_labels < 2 or all(map(_DATE.fullmatch, texts)):
        return None
    n_words = sum(len(part.split()) for part in parts) / len(parts)
    distinct_share = DISTINCT_SHARE if len(texts) >= FEW_ROWS else 1 - 1 / len(parts)
    is_repeated = n_labels <= distinct_share * len(parts) and n_words <= LABEL_WORDS_MAX
    return (
        _Values(separator != " " and any(separator in text for text in texts), n_labels)
        if is_repeated or n_words <= n_words_distinct
        else None
    )


def _separator(name: str, cells: Sequence[Any]) -> str:
    if name == URIS:
        return URI_SEPARATOR
    texts = [cell for cell in cells if isinstance(cell, str) and cell]
    least = SEPARATED_SHARE * len(texts)
    for mark in SEPARATORS:
        if texts and sum(mark in cell for cell in texts) >= least:
            return mark
    if any(cell[0] in "[({" for cell in texts):
        return DEFAULT_SEPARATOR  # a list as text is no list of labels: a finding says so
    separator = mark_between(texts)
    return separator if separator in LIST_MARKS else DEFAULT_SEPARATOR


def _is_row(columns: TableColumns, cells: Sequence[Any]) -> bool:
    """Return whether the header is a row: the name of its column of labels is labels of rows."""
    name = columns.labels
    labels = {
        part
        for cell in cells
        if isinstance(cell, str) and cell != name
        for part in cell.split(columns.separator)
    }
    return bool(name) and labels.issuperset(name.split(columns.separator))
