"""Read a data file of any format, whole or a block at a time, with labels or only its texts.

The suffix of the file's name tells the format.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson

from xylem.base import (
    DEFAULT_COLUMNS,
    TABLES,
    BadData,
    BadParameter,
    Dataset,
    TableColumns,
    inverse,
)
from xylem.datasets.annif import DIRECTORY, CorpusDirectory, fasttext_lines, is_fasttext
from xylem.datasets.dataset import N_ROWS_MAX, first_features, first_labels, renumber_labels
from xylem.datasets.files import JSON_LINES, open_data, source_of
from xylem.datasets.json_lines import RowCollector, json_blocks, text_blocks
from xylem.datasets.npz_pair import partner, read_npz
from xylem.datasets.sparse_text import parts_of, read_label_names, read_rows
from xylem.datasets.stream import DataFile, Progress, StandardInput
from xylem.datasets.tables import check_installed, table_rows
from xylem_store import I32, NameTable, find_all

FASTTEXT = "fasttext"  # what `format_of` returns for a .txt file of texts and labels
NAMED_FORMATS = (*JSON_LINES, *TABLES, DIRECTORY, FASTTEXT)
"""Formats in which labels have names, not ids."""


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
    columns           which columns of a table are read

    A label id beyond the model's is a label that it does not know, in every format. The number of
    features in a file's header or shape may not exceed the model's. A .svm file has no header: its
    features beyond the model's are left out.

    Raises BadData, whose message begins with `file:line:`, for a file that cannot be used;
    BadParameter for arguments that contradict the format or each other. Deterministic. Memory: the
    result and about a block of the file.
    """
    file = open_data(path, on_progress)
    suffix = format_of(file)
    if suffix in NAMED_FORMATS:
        refuse_names_file(label_names_file)
        collector = RowCollector(file)
        for _ in named_blocks(file, columns, collector):
            pass
        warning = file.warning if isinstance(file, CorpusDirectory) else None
        collected = collector.finish(labels)
        return replace(collected, source=source_of(file.path), sha256=file.sha256, warning=warning)
    names = read_label_names(label_names_file) if label_names_file is not None else None
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
    return Dataset(
        source=source_of(path),
        sha256=sha256,
        n_rows=rows.n_rows,
        labels=row_labels,
        unknown_labels=unknown,
        rows=rows,
        label_names=names if labels is None else None,
        unknown_names=unknown_names,
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
    return FASTTEXT if file.kind == ".txt" and is_fasttext(file.path) else file.kind


def refuse_names_file(label_names_file: Path | None) -> None:
    """Raise BadParameter if there is a file of label names; call it for formats that have names."""
    if label_names_file is not None:
        raise BadParameter(
            "expected a names file with numeric formats only, found one with data that have names"
        )


def named_blocks(file: DataFile, columns: TableColumns, collector: RowCollector) -> Iterator[None]:
    """Collect the rows of a file whose format is one of NAMED_FORMATS; yield after each block.

    Raises BadData.
    """
    if isinstance(file, CorpusDirectory):
        return text_blocks(collector, file.documents())
    if file.kind == ".txt":
        return text_blocks(collector, fasttext_lines(file))
    if file.kind in TABLES:
        rows = (row for table in file.files() for row in table_rows(table, columns))
        return text_blocks(collector, rows)
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
        lines = enumerate(block.split(b"\n"), file.line)
        yield [_text_of(file, number, line) for number, line in lines if line and line != b"\r"]


def _text_of(file: DataFile, number: int, line: bytes) -> str:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        message = f"expected a JSON object, found {error.msg} at byte {error.pos}"
        raise file.fault(number, message) from error
    text = row.get("text") if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise file.fault(number, "expected an object with a string `text`, found none")
    return text


STDIN = Path("-")
"""The path that means standard input: lines of JSON, which can be read only once."""

LABELS_MAX = 1 << 24
"""The most labels that standard input may have."""


class DataStream:
    """The rows that `read_dataset` reads, or those of standard input, in parts that fit in memory.

    The first pass must go to the end: it finds the sizes, the labels and the digest. Until then,
    the label ids of NAMED_FORMATS are provisional (`settle` returns the final ones), and the sizes
    of a .svm file are the largest allowed. Later passes check that the file has not changed.

    source, warning       as in Dataset; the warning is set by the first pass
    is_read_once          whether only one pass is possible: standard input
    label_names           as in Dataset; for formats with names they are set by `settle`
    n_labels, n_features  as in the rows that `read_dataset` returns; n_features is 0 for texts
    sha256                digest of the decompressed bytes, "" until the first pass has ended
    """

    def __init__(
        self,
        path: Path,
        label_names_file: Path | None = None,
        columns: TableColumns = DEFAULT_COLUMNS,
        earlier_labels: Sequence[str] = (),
    ) -> None:
        """Read the file of label names, if there is one.

        earlier_labels  for formats with names: labels of rows that were read before, in the order
                        of their provisional ids

        Raises BadData, and BadParameter for .npz, which cannot be read in parts, and for names of
        labels where the format has names itself.
        """
        self.path = path
        self.is_read_once = self.path == STDIN
        self.source = str(StandardInput().path) if self.is_read_once else source_of(self.path)
        self._suffix = ".jsonl" if self.is_read_once else format_of(open_data(path))
        if self._suffix == ".npz":
            raise BadParameter(f"expected other data than .npz to stream, found {self.path.name!r}")
        if self._suffix in NAMED_FORMATS:
            refuse_names_file(label_names_file)
        self.label_names = (
            read_label_names(label_names_file) if label_names_file is not None else None
        )
        self.n_labels = 0 if self.label_names is None else len(self.label_names)
        self.n_features = 0
        self.sha256 = ""
        self.warning: str | None = None
        self._columns = columns
        self._ids = {name: number for number, name in enumerate(earlier_labels)}
        self._final: I32 | None = None

    def settle(self) -> I32 | None:
        """Fix the label ids after the first pass; return the final id of each provisional one.

        Returns None if the ids were final from the start. As in `read_dataset`, the ids of labels
        with names follow the names sorted by bytes.
        """
        if self._suffix in NAMED_FORMATS:
            self.label_names = sorted(self._ids)
            ids = np.array([self._ids[name] for name in self.label_names], np.int64)
            self._final = inverse(ids, len(ids))
        return self._final

    def parts(self, on_progress: Progress | None = None) -> Iterator[Dataset]:
        """Yield all rows in parts; the `sha256` of a part is empty: it belongs to the whole file.

        Raises BadData for a file that cannot be used, or that has changed since the first pass.
        Memory: a block of the file and its rows, and the label names.
        """
        file = StandardInput() if self.is_read_once else open_data(self.path, on_progress)
        yield from self._texts(file) if self._suffix in NAMED_FORMATS else self._numbers(file)
        if self.sha256 and file.sha256 != self.sha256:
            raise file.fault(
                None, "expected the bytes that were read at first, found others: it has changed"
            )
        self.sha256 = file.sha256
        self.warning = file.warning if isinstance(file, CorpusDirectory) else None

    def _numbers(self, file: DataFile) -> Iterator[Dataset]:
        """Yield the rows of a .txt or .svm file in parts; update the sizes. Raises BadData."""
        n_named = None if self.label_names is None else len(self.label_names)
        has_sizes = self._suffix == ".txt"
        for rows, labels in parts_of(file, n_named, has_header=has_sizes):
            has_n_labels = has_sizes or n_named is not None
            n_labels = labels.n_labels if has_n_labels else int(labels.indices.max(initial=-1)) + 1
            n_features = rows.n_features if has_sizes else int(rows.indices.max(initial=-1)) + 1
            self.n_labels, self.n_features = (
                max(self.n_labels, n_labels),
                max(self.n_features, n_features),
            )
            unknown = np.zeros(labels.n_rows, np.int32)
            yield Dataset(self.source, "", labels.n_rows, labels, unknown, rows=rows)

    def _texts(self, file: DataFile) -> Iterator[Dataset]:
        """Yield the rows of a file with names in parts; update the labels. Raises BadData."""
        collector = RowCollector(file, self._ids)
        for _ in named_blocks(file, self._columns, collector):
            if not collector.counts:
                continue
            part = collector.take_rows()
            labels = part.labels
            self.n_labels = len(self._ids)
            if self.is_read_once and self.n_labels > LABELS_MAX:
                raise file.fault(
                    None, f"expected at most {LABELS_MAX} labels, found {self.n_labels}"
                )
            if self._final is not None:
                if self.n_labels != len(self._final):
                    raise file.fault(
                        None, "expected the labels that were read at first, found others too"
                    )
                labels, _ = renumber_labels(labels, self._final, self.n_labels)
            yield replace(part, source=self.source, labels=labels)
        collector.refuse_empty()
