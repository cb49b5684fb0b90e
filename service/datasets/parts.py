"""A data file that is read a block at a time, as often as needed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from model_store.compiled.handles import I32
from service.base.columns import DEFAULT_COLUMNS, TableColumns
from service.base.errors import BadParameter
from service.base.rows import Dataset, inverse
from service.datasets.annif import CorpusDirectory
from service.datasets.dataset import renumber_labels
from service.datasets.files import open_data, source_of
from service.datasets.json_lines import RowCollector
from service.datasets.reader import NAMED, format_of, named_blocks, refuse_names_file
from service.datasets.sparse_text import parts_of, read_label_names
from service.datasets.stream import DataFile, Progress, StandardInput

STDIN = Path("-")
"""The data file that is standard input: JSON lines, which are read once."""

LABELS_MAX = 1 << 24
"""The most labels of standard input."""


class DataStream:
    """The rows that `read_dataset` reads, or those of standard input, in parts that fit in memory.

    The first pass must go to the end: it finds the sizes, the labels and the digest. Until then label ids of
    formats with names (NAMED) are provisional (`settle` says the final ones), and the sizes of .svm the
    largest that there are.
    Later passes check that the file is still the same.

    source, warning       as of Dataset, the warning after the first pass
    is_read_once          whether there is a first pass only
    label_names           as of Dataset; those of formats with names are known after `settle`
    n_labels, n_features  as of the rows that `read_dataset` gives; n_features is 0 for texts
    sha256                of the decompressed bytes, "" until the first pass has ended
    """

    def __init__(
        self,
        path: Path,
        label_names_file: Path | None = None,
        columns: TableColumns = DEFAULT_COLUMNS,
        known: Sequence[str] = (),
    ) -> None:
        """Read the names file, if any; raises BadData, and BadParameter for a format that has no order.

        known  labels that rows before had, in the order of their provisional ids; of formats with names
        """
        self.path = path
        self.is_read_once = self.path == STDIN
        self.source = str(StandardInput().path) if self.is_read_once else source_of(self.path)
        self._suffix = ".jsonl" if self.is_read_once else format_of(open_data(path))
        if self._suffix == ".npz":
            raise BadParameter(f"expected other data than .npz to stream, found {self.path.name!r}")
        if self._suffix in NAMED:
            refuse_names_file(label_names_file)
        self.label_names = read_label_names(label_names_file) if label_names_file is not None else None
        self.n_labels = 0 if self.label_names is None else len(self.label_names)
        self.n_features = 0
        self.sha256 = ""
        self.warning: str | None = None
        self._columns = columns
        self._ids = {name: number for number, name in enumerate(known)}
        self._final: I32 | None = None

    def settle(self) -> I32 | None:
        """Fix the ids of labels after the first pass; return the final id of each provisional one.

        None when they were final from the first. As in `read_dataset`, ids of named labels follow the names
        sorted by bytes.
        """
        if self._suffix in NAMED:
            self.label_names = sorted(self._ids)
            ids = np.array([self._ids[name] for name in self.label_names], np.int64)
            self._final = inverse(ids, len(ids))
        return self._final

    def parts(self, on_progress: Progress | None = None) -> Iterator[Dataset]:
        """Yield the rows from first to last; a part's `sha256` is empty, for it is of the whole file.

        Raises BadData for a file that cannot be used, or that is not the one that the first pass read.
        Memory: a block of the file and its rows, and names of labels.
        """
        file = StandardInput() if self.is_read_once else open_data(self.path, on_progress)
        yield from self._texts(file) if self._suffix in NAMED else self._numbers(file)
        if self.sha256 and file.sha256 != self.sha256:
            raise file.fault(None, "expected the bytes that were read at first, found others: it has changed")
        self.sha256 = file.sha256
        self.warning = file.warning if isinstance(file, CorpusDirectory) else None

    def _numbers(self, file: DataFile) -> Iterator[Dataset]:
        n_named = None if self.label_names is None else len(self.label_names)
        has_sizes = self._suffix == ".txt"
        for rows, labels in parts_of(file, n_named, has_header=has_sizes):
            known = has_sizes or n_named is not None
            n_labels = labels.n_labels if known else int(labels.indices.max(initial=-1)) + 1
            n_features = rows.n_features if has_sizes else int(rows.indices.max(initial=-1)) + 1
            self.n_labels, self.n_features = max(self.n_labels, n_labels), max(self.n_features, n_features)
            unknown = np.zeros(labels.n_rows, np.int32)
            yield Dataset(self.source, "", labels.n_rows, labels, unknown, rows=rows)

    def _texts(self, file: DataFile) -> Iterator[Dataset]:
        collector = RowCollector(file, self._ids)
        for _ in named_blocks(file, self._columns, collector):
            if not collector.counts:
                continue
            found = collector.taken()
            labels = found.labels
            self.n_labels = len(self._ids)
            if self.is_read_once and self.n_labels > LABELS_MAX:
                raise file.fault(None, f"expected at most {LABELS_MAX} labels, found {self.n_labels}")
            if self._final is not None:
                if self.n_labels != len(self._final):
                    raise file.fault(None, "expected the labels that were read at first, found others too")
                labels, _ = renumber_labels(labels, self._final, self.n_labels)
            yield replace(found, source=self.source, labels=labels)
        collector.refuse_empty()
