"""Read a data file of any format, whole or a block at a time, with labels or only its texts.

The suffix of the file's name tells the format.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from xylem.base import (
    DEFAULT_COLUMNS,
    JSON_LINES,
    TABLES,
    BadData,
    BadParameter,
    Dataset,
    TableColumns,
)
from xylem.datasets.annif import DIRECTORY, CorpusDirectory, fasttext_lines
from xylem.datasets.column_guess import options_of, understood
from xylem.datasets.data_reports import refuse, report_of
from xylem.datasets.dataset import N_ROWS_MAX, first_features, first_labels, renumber_labels
from xylem.datasets.files import open_data, source_of
from xylem.datasets.json_lines import RowCollector, json_blocks, json_object, text_blocks
from xylem.datasets.npz_pair import partner, read_npz
from xylem.datasets.parquet import check_installed
from xylem.datasets.sparse_text import read_label_names, read_rows
from xylem.datasets.stream import DataFile, Progress
from xylem.datasets.survey import Survey
from xylem.datasets.tables import table_rows
from xylem.datasets.vectors import with_vectors
from xylem_store import NameTable, find_all

FASTTEXT = "fasttext"  # what `format_of` returns for a .txt file of texts and labels
# Formats in which labels have names, not ids.
NAMED_FORMATS = (*JSON_LINES, *TABLES, DIRECTORY, FASTTEXT)


def read_dataset(
    path: Path,
    *,
    labels: NameTable | None = None,
    label_names_file: Path | None = None,
    n_features: int | None = None,
    columns: TableColumns = DEFAULT_COLUMNS,
    on_progress: Progress | None = None,
) -> Dataset:
    """Read the rows of a data file, or of several files one after the other.

    Formats: .txt, .svm, .jsonl (or .ndjson), .X.npz with its .Y.npz, .csv, .tsv, each also with
    .gz or .zst, and .parquet. A .txt file may be one of fastText. A path may also be a directory or
    a pattern that names several files, or a directory of documents as a corpus of Annif.

    labels            the label names of an existing model: the label ids of the result are the
                      model's; a name that the model does not know is counted for its row
                      (`Dataset.unknown_labels`) and listed (`unknown_names`). Numeric data without
                      names has the model's ids
    label_names_file  numeric formats only: line i + 1 is the name of label i
    n_features        numeric formats only: the number of features of an existing model
    columns           how the file is read: the columns of a table, the encoding

    A label id beyond the model's is a label that it does not know, in every format. The number of
    features in a file's header or shape may not exceed the model's. A .svm file has no header: its
    features beyond the model's are left out.

    Raises BadData, whose message begins with `file:line:`, for a file that cannot be used;
    BadParameter for arguments that contradict the format or each other. Deterministic. Memory: the
    result and about a block of the file.
    """
    file = open_data(path, on_progress, columns.encoding)
    suffix = format_of(file)
    columns = columns.for_file(path, file.kind)
    if suffix in NAMED_FORMATS:
        refuse_names_file(label_names_file)
        collector = RowCollector(file, columns=columns)
        for _ in named_blocks(file, columns, collector):
            pass
        collected = collector.finish(labels, source_of(file.path))
        refuse(file, collected.report, strict=columns.strict)
        return with_vectors(
            replace(
                collected,
                sha256=file.sha256,
                warning=file.warning if isinstance(file, CorpusDirectory) else None,
            ),
            path,
            columns,
        ).with_weight()
    refuse_weights(file, columns)
    names = None if label_names_file is None else read_label_names(label_names_file)
    n_named = None if names is None else len(names)
    if suffix == ".npz":
        rows, row_labels, sha256 = read_npz(file.path, n_named, n_features, on_progress)
    else:
        if suffix == ".txt":
            rows, row_labels = read_rows(file, n_named, n_features, has_header=True)
        else:
            rows, row_labels = read_rows(file, n_named, None, has_header=False)
            rows = rows if n_features is None else first_features(rows, n_features)
        sha256 = file.sha256
    survey = Survey(file)
    survey.add(row_labels)
    unknown = np.zeros(row_labels.n_rows, np.int32)
    unknown_names = []
    if labels is not None:
        if names is not None:
            used_labels = np.unique(row_labels.indices).tolist()
            model_ids = find_all(labels, names)
            row_labels, unknown = renumber_labels(row_labels, model_ids, labels.n_names)
            unknown_names = [names[i] for i in used_labels if model_ids[i] < 0]
        else:
            row_labels, unknown, unknown_names = first_labels(row_labels, labels.n_names)
    report = report_of(survey, source_of(path), names)
    refuse(file, report, strict=columns.strict)
    return with_vectors(
        Dataset(
            source=report.source,
            sha256=sha256,
            n_rows=rows.n_rows,
            labels=row_labels,
            unknown_labels=unknown,
            rows=rows,
            label_names=names if labels is None else None,
            unknown_names=unknown_names,
            report=report,
        ),
        path,
        columns,
    )


def check_readable(path: Path) -> None:
    """Raise BadData unless each file of a path has a known format and its first block can be read.

    Raises BadParameter for a Parquet file if pyarrow is not installed.
    """
    data_file = open_data(path)
    suffix = data_file.kind
    if suffix == ".parquet":
        check_installed()
    if suffix == DIRECTORY:
        return
    for file in data_file.files():
        next(file.blocks(), None)
        if suffix == ".npz":
            next(DataFile(partner(file.path)).blocks(), None)


def format_of(file: DataFile) -> str:
    """Return the kind of a data file; FASTTEXT for a .txt file whose first line has its labels.

    Raises BadData.
    """
    return FASTTEXT if file.kind == ".txt" and file.is_fasttext else file.kind


def refuse_names_file(label_names_file: Path | None) -> None:
    """Raise BadParameter if there is a file of label names; call it for formats that have names."""
    if label_names_file is not None:
        raise BadParameter(
            "expected a names file with numeric formats only, found one with data that have names"
        )


def refuse_weights(file: DataFile, columns: TableColumns) -> None:
    """Raise BadParameter if rows shall have weights; call it for formats that have none."""
    if columns.weight:
        raise BadParameter(
            f"weight column: expected a table or lines of JSON, found {file.path.name!r}"
        ).with_path("weight_column")


def named_blocks(file: DataFile, columns: TableColumns, collector: RowCollector) -> Iterator[None]:
    """Collect the rows of a file whose format is one of NAMED_FORMATS; yield after each block.

    Raises BadData.
    """
    file.options = options_of(file, columns)
    collector.are_named = bool(columns.texts)
    if file.kind not in (*JSON_LINES, *TABLES):
        refuse_weights(file, columns)
    if isinstance(file, CorpusDirectory):
        return text_blocks(collector, file.documents())
    if file.kind == ".txt":
        return text_blocks(collector, fasttext_lines(file))
    if file.kind in TABLES:
        first = next(open_data(file.path, None, columns.encoding).files())
        first.findings = file.findings
        columns = understood(first, columns)
        file.options = options_of(file, columns)
        collector.fields = columns.texts
        return text_blocks(
            collector,
            (row for table in file.files() for row in table_rows(table, columns, collector.join)),
        )
    collector.fields = columns.texts or columns.fields
    return json_blocks(collector)


def read_texts(path: Path, on_progress: Progress | None = None) -> list[str]:
    """Return the `text` of each line of a .jsonl or .ndjson file (also .gz).

    Other keys and empty lines are ignored. Raises BadData, which names the line.
    """
    file = open_texts(path, on_progress)
    texts = [text for block in blocks_of_texts(file) for text in block]
    if not 0 < len(texts) < N_ROWS_MAX:
        raise file.fault(1, f"expected from 1 to {N_ROWS_MAX} rows, found {len(texts)}")
    return texts


def open_texts(path: Path, on_progress: Progress | None = None) -> DataFile:
    """Open a .jsonl or .ndjson file of texts, or several.

    Raises BadData for a name with another suffix.
    """
    file = open_data(path, on_progress)
    if file.kind not in JSON_LINES:
        raise BadData(f"{path}: expected a .jsonl file of texts, found {path.name!r}")
    return file


def blocks_of_texts(file: DataFile) -> Iterator[list[str]]:
    """Yield lists of the texts that `read_texts` reads, one for each block of the file."""
    for block in file.lines():
        yield [
            _text_of(file, number, line)
            for number, line in enumerate(block.split(b"\n"), file.line)
            if line and line != b"\r"
        ]


def _text_of(file: DataFile, number: int, line: bytes) -> str:
    text = json_object(file, number, line).get("text")
    if not isinstance(text, str):
        raise file.fault(number, "expected an object with a string `text`, found none")
    return text


# The path that means standard input: lines of JSON, which can be read only once.
STDIN = Path("-")
