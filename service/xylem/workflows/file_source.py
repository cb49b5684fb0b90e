"""Sources of training rows that read a file again and again: features, or windows of words."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain, tee
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xylem.base import Crew, DataReport, Dataset, Growing, OnProgress, SparseRows
from xylem.datasets import DataStream, blocks_of_texts, open_texts, source_of
from xylem.engine import (
    ContextFeaturizer,
    ContextParameters,
    Featurizer,
    MakeRows,
    VectorParameters,
    context_of,
    streaming_featurizer,
    tokens_of,
)
from xylem.evaluation import digests_of
from xylem.trainers import Census, MemorySource, Reads, TrainingSet
from xylem.workflows.choose_features import FeatureChoice
from xylem.workflows.labelled import DIGESTS_MAX
from xylem_store import I32, I64, U64, DataInfo, NameTable, build_names


class FileSource:
    """A RowSource over a file, or over standard input, whose rows are read once.

    Texts and names of features are hashed; ids of features stay as they are. Label ids follow the
    names sorted by bytes.

    The first pass over a file is made when the census is first used. After it `n_empty` is the
    number of rows without a feature.

    Raises BadData and BadParameter as it reads. Memory: a block of the file and its rows.
    """

    choice: FeatureChoice | None = None
    weighting: FeatureChoice | None = None

    def __init__(
        self,
        stream: DataStream,
        features: Mapping[str, Any],
        on_progress: OnProgress,
        featurizer: Featurizer | None = None,
        label_rows: I64 | None = None,
        crew: Crew | None = None,
        vectors: VectorParameters | None = None,
        encode: Callable[[Dataset], Any] | None = None,
    ) -> None:
        """Take a stream whose rows are to be made.

        featurizer  of rows before; None: the first pass chooses one
        label_rows  rows of each label, by provisional id, that were read before
        crew        makes the rows of texts in a file; None: this thread does
        vectors     parameters of the vectors beside the texts; None: there are none
        encode      returns a part with vectors beside its texts, in each pass; None: the file has
                    them
        """
        self.stream = stream
        self.reads: Reads = "once" if stream.is_read_once else "passes"
        self.final_ids: I32 | None = None
        self.n_empty = 0
        self._digests = Growing(np.uint64)
        self._features = dict(features)
        self._vectors = vectors
        self._encode = encode
        self._on_progress = on_progress
        self._census: Census | None = None
        self._featurizer = featurizer
        self._crew = crew or Crew(1)
        self._label_rows = np.zeros(0, np.int64) if label_rows is None else label_rows

    @property
    def featurizer(self) -> Featurizer:
        """Return the featurizer, which the first pass has chosen."""
        assert self._featurizer is not None
        return self._featurizer

    @property
    def names(self) -> NameTable:
        """Return the names of the labels; numbers if they have no names."""
        return build_names(
            self.stream.label_names or [str(i) for i in range(len(self.census.label_rows))]
        )

    @property
    def data_info(self) -> DataInfo:
        """Return the description of the data for a manifest."""
        return DataInfo(self.stream.source, self.census.n_rows, self.stream.sha256)

    @property
    def warning(self) -> str | None:
        """Return the warning of the file's reader, if there is one."""
        return self.stream.warning

    @property
    def report(self) -> DataReport | None:
        """Return what the reader has understood of the rows, once they were read."""
        return self.stream.report

    @property
    def digests(self) -> U64:
        """Return the digests of the first rows, after the first pass."""
        return self._digests.finish()[:DIGESTS_MAX]

    @property
    def census(self) -> Census:
        """Return the counts of all rows."""
        if self._census is None:
            for _ in self._first_pass():
                pass
        assert self._census is not None
        return self._census

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the rows, from the first to the last."""
        if self.reads == "once":
            yield from self._first_pass()
            return
        n_labels = len(self.census.label_rows)
        for part, rows in self._pair_with_rows(self.stream.parts()):
            yield TrainingSet(rows, part.labels._replace(n_labels=n_labels))

    def _first_pass(self) -> Iterator[TrainingSet]:
        """Yield the rows and count them; find labels, choose the featurizer, check every line."""
        census = Census(
            n_rows=0,
            n_features=0,
            n_nonzeros=0,
            n_labelled=0,
            label_rows=self._label_rows,
            label_nonzeros=np.zeros(0, np.int64),
        )
        for part, rows in self._pair_with_rows(
            self.stream.parts(partial(self._on_progress, "read"))
        ):
            if census.n_rows < DIGESTS_MAX:
                self._digests.extend(digests_of(rows))
            # the labels that occur: until its end a .svm file has as many as are allowed
            n_labels = int(part.labels.indices.max(initial=-1)) + 1
            census += MemorySource(
                TrainingSet(rows, part.labels._replace(n_labels=n_labels))
            ).census
            self.n_empty += int((np.diff(rows.indptr) == 0).sum())
            yield TrainingSet(rows, part.labels)
        final = self.stream.settle()
        self.final_ids = final if self.reads == "once" else None
        ids = np.arange(self.stream.n_labels) if final is None else final
        # a file has a row at least, and so a featurizer
        self._census = census.with_ids(ids)._replace(
            n_features=self.featurizer.n_features, tail=self.featurizer.tail_features
        )

    def _pair_with_rows(self, parts: Iterator[Dataset]) -> Iterator[tuple[Dataset, SparseRows]]:
        """Yield each part with its rows.

        The crew makes those of texts in a file, some parts ahead.
        """
        if self._encode is not None:
            parts = map(self._encode, parts)
        first = next(parts)  # a file has at least one row
        if first.texts is None or self.reads == "once":
            for part in chain([first], parts):
                n_features = self.stream.n_features  # feature ids of later parts may be larger
                if self._featurizer is None or n_features > self._featurizer.n_features:
                    self._featurizer = self._fitted(part, n_features)
                yield part, self._featurizer.transform_dataset(part)
            return
        if self._featurizer is None:
            self._featurizer = self._fitted(first, 0)
        parts, parts_ahead = tee(chain([first], parts))
        yield from zip(
            parts,
            self._crew.mapped(
                MakeRows.from_featurizer(self._featurizer),
                ((part.texts or [], part.vectors) for part in parts_ahead),
            ),
            strict=True,
        )

    def _fitted(self, part: Dataset, n_features: int) -> Featurizer:
        """Return a featurizer for rows as in a part; all vectors are read once for it."""
        return streaming_featurizer(
            part,
            self._features,
            n_features,
            self._vectors,
            self.stream.vectors()
            if self._encode is None
            else (
                self._encode(part).vectors
                for part in self.stream.parts(partial(self._on_progress, "encode"))
            ),
        )


class _FirstPass(NamedTuple):
    featurizer: ContextFeaturizer
    census: Census
    sha256: str


class TextSource:
    """A RowSource over a file of texts: a row is a window of words, its label the next word.

    Its first pass, which counts the words, is made when the census is first used.

    Raises BadData as it reads. Memory: the words that occur, a block of the file and its windows.
    """

    reads: Reads = "passes"
    final_ids = None
    n_empty = 0
    warning: str | None = None
    choice: FeatureChoice | None = None
    weighting: FeatureChoice | None = None
    report: DataReport | None = None
    digests: U64 = np.zeros(0, np.uint64)

    def __init__(self, path: Path, parameters: ContextParameters, on_progress: OnProgress) -> None:
        open_texts(path)
        self._path = path
        self._parameters = parameters
        self._on_progress = on_progress

    @property
    def census(self) -> Census:
        """Return the counts of all windows."""
        return self._first_pass.census

    @property
    def featurizer(self) -> ContextFeaturizer:
        """Return the featurizer, which makes the windows."""
        return self._first_pass.featurizer

    @property
    def names(self) -> NameTable:
        """Return the words, which are the labels."""
        return self.featurizer.words

    @property
    def data_info(self) -> DataInfo:
        """Return the description of the data for a manifest."""
        return DataInfo(source_of(self._path), self.census.n_rows, self._first_pass.sha256)

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the windows of the file, from the first to the last.

        Raises BadData if the file has changed since the first pass.
        """
        first_pass = self._first_pass
        file = open_texts(self._path)
        for texts in blocks_of_texts(file):
            if texts:
                yield TrainingSet(*first_pass.featurizer.windows_of(texts))
        if file.sha256 != first_pass.sha256:
            raise file.fault(
                None, "expected the bytes that were read at first, found others: it has changed"
            )

    @cached_property
    def _first_pass(self) -> _FirstPass:
        """Read the file once: count its words, choose the vocabulary, and check every line."""
        counts: Counter[str] = Counter()
        n_texts = 0
        file = open_texts(self._path, partial(self._on_progress, "read"))
        for texts in blocks_of_texts(file):
            n_texts += len(texts)
            for text in texts:
                counts.update(tokens_of(text))
        if not n_texts:
            raise file.fault(1, "expected at least one row, found none")
        featurizer = context_of(counts, self._parameters)
        # a window for each word, and one for the end of each text
        label_rows = np.zeros(featurizer.words.n_names, np.int64)
        for word, count in counts.items():
            label_rows[featurizer.id_of(word)] += count
        label_rows[featurizer.end] += n_texts
        n = int(label_rows.sum())
        return _FirstPass(
            featurizer,
            Census(
                n_rows=n,
                n_features=featurizer.n_features,
                n_nonzeros=self._parameters.window * n,
                n_labelled=n,
                label_rows=label_rows,
                label_nonzeros=self._parameters.window * label_rows,
            ),
            file.sha256,
        )
