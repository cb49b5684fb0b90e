"""The rows of a data file or of standard input, in parts that fit in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from xylem.base import (
    DEFAULT_COLUMNS,
    BadParameter,
    DataReport,
    Dataset,
    TableColumns,
    inverse,
)
from xylem.datasets.annif import CorpusDirectory
from xylem.datasets.data_reports import refuse, report_of
from xylem.datasets.dataset import renumber_labels
from xylem.datasets.files import open_data, source_of
from xylem.datasets.json_lines import RowCollector
from xylem.datasets.reader import (
    NAMED_FORMATS,
    STDIN,
    format_of,
    named_blocks,
    refuse_names_file,
    refuse_weights,
)
from xylem.datasets.sparse_text import parts_of, read_label_names
from xylem.datasets.stream import DataFile, Progress, StandardInput
from xylem.datasets.survey import Survey
from xylem.datasets.vectors import parts_with_vectors, vector_blocks
from xylem_store import F32, I32

LABELS_MAX = 1 << 24  # the most labels that standard input may have


class DataStream:
    """The rows that `read_dataset` reads, or those of standard input, in parts that fit in memory.

    The first pass must go to the end: it finds the sizes, the labels and the digest. Until then,
    the label ids of NAMED_FORMATS are provisional (`settle` returns the final ones), and the sizes
    of a .svm file are the largest allowed. Later passes check that the file has not changed.

    source, warning       as in Dataset; the warning is set by the first pass, and so is the report
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
        if columns.join:
            raise BadParameter("join rows: expected rows in memory, found a stream")
        if columns.texts.unweighted is not None:
            raise BadParameter(
                f"text column {columns.texts.unweighted}: expected rows in memory, found a stream"
            ).with_path("text_column")
        self._suffix = (
            ".jsonl" if self.is_read_once else format_of(open_data(path, None, columns.encoding))
        )
        if self._suffix == ".npz":
            raise BadParameter(f"expected other data than .npz to stream, found {self.path.name!r}")
        self._columns = columns.for_file(path, self._suffix)
        if self.is_read_once and self._columns.vector:
            raise BadParameter(
                "vector column: expected a file, which is read for its vectors first, found "
                "standard input"
            ).with_path("vector_column")
        if self._suffix in NAMED_FORMATS:
            refuse_names_file(label_names_file)
        self.label_names = None if label_names_file is None else read_label_names(label_names_file)
        self.n_labels = 0 if self.label_names is None else len(self.label_names)
        self.n_features = 0
        self.sha256 = ""
        self.warning: str | None = None
        self.report: DataReport | None = None
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
        file = (
            StandardInput()
            if self.is_read_once
            else open_data(self.path, on_progress, self._columns.encoding)
        )
        for part in parts_with_vectors(
            self._texts(file) if self._suffix in NAMED_FORMATS else self._numbers(file),
            self.path,
            self._columns,
        ):
            weighed = part.with_weight()
            if weighed.n_rows:
                yield weighed
        if self.sha256 and file.sha256 != self.sha256:
            raise file.fault(
                None, "expected the bytes that were read at first, found others: it has changed"
            )
        if not self.sha256:
            refuse(file, self.report, strict=self._columns.strict)
        self.sha256 = file.sha256
        self.warning = file.warning if isinstance(file, CorpusDirectory) else None

    def vectors(self) -> Iterator[F32]:
        """Yield the vectors of the rows of `parts`, in blocks; nothing if there are none."""
        return (
            (part.vectors for part in self.parts() if part.vectors is not None)
            if self._columns.vector or self._columns.weight
            else vector_blocks(self.path, self._columns)  # the texts are not read
        )

    def _numbers(self, file: DataFile) -> Iterator[Dataset]:
        """Yield the rows of a .txt or .svm file in parts; update the sizes. Raises BadData."""
        n_named = None if self.label_names is None else len(self.label_names)
        has_sizes = self._suffix == ".txt"
        refuse_weights(file, self._columns)
        survey = Survey(file)
        is_first_pass = not self.sha256
        for rows, labels in parts_of(file, n_named, has_header=has_sizes):
            self.n_labels = max(
                self.n_labels,
                labels.n_labels
                if has_sizes or n_named is not None
                else int(labels.indices.max(initial=-1)) + 1,
            )
            self.n_features = max(
                self.n_features,
                rows.n_features if has_sizes else int(rows.indices.max(initial=-1)) + 1,
            )
            if is_first_pass:
                survey.add(labels)
            yield Dataset(
                self.source, "", labels.n_rows, labels, np.zeros(labels.n_rows, np.int32), rows=rows
            )
        if is_first_pass:
            self.report = report_of(survey, self.source, self.label_names)

    def _texts(self, file: DataFile) -> Iterator[Dataset]:
        """Yield the rows of a file with names in parts; update the labels. Raises BadData."""
        collector = RowCollector(file, self._ids, self._columns)
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
        if self._final is None:
            self.report = report_of(collector.survey, self.source, list(self._ids))
