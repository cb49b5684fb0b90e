"""A file of texts as windows of words that a trainer reads again and again, made as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from model_store.manifest import DataInfo
from model_store.names import NameTable
from service.datasets.stream import DataFile
from service.datasets.texts import check_texts, text_blocks
from service.features.context import ContextFeaturizer, context_of, tokens_of
from service.features.parameters import ContextParameters
from service.trainers.source import Census, Reads, TrainingSet
from service.workflows.choose_features import FeatureChoice

OnProgress = Callable[[str, int, int], None]


class _Found(NamedTuple):
    """What the first pass finds."""

    featurizer: ContextFeaturizer
    census: Census
    sha256: str


class TextSource:
    """A RowSource over a file of texts: a row is a window of words, its label the next word.

    Its first pass, which counts the words, is made when the census is first asked for.

    Raises BadData as it reads. Memory: the words that occur, a block of the file and its windows.
    """

    reads: Reads = "passes"
    final_ids = None
    n_empty = 0
    warning: str | None = None
    choice: FeatureChoice | None = None

    def __init__(self, path: Path, parameters: ContextParameters, on_progress: OnProgress) -> None:
        check_texts(path)
        self._path = path
        self._parameters = parameters
        self._on_progress = on_progress
        self._found: _Found | None = None

    @property
    def census(self) -> Census:
        """Return the counts of all windows."""
        return self._first_pass().census

    @property
    def featurizer(self) -> ContextFeaturizer:
        """Return what makes the windows."""
        return self._first_pass().featurizer

    @property
    def names(self) -> NameTable:
        """Return the words, which are the labels."""
        return self.featurizer.words

    @property
    def data_info(self) -> DataInfo:
        """Return what a manifest says of the data."""
        return DataInfo(self._path.name, self.census.n_rows, self._first_pass().sha256)

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the windows of the file, from the first to the last. Raises BadData if it has changed."""
        found, file = self._first_pass(), DataFile(self._path)
        for texts in text_blocks(file):
            if texts:
                yield TrainingSet(*found.featurizer.windows_of(texts))
        if file.sha256 != found.sha256:
            raise file.fault(None, "expected the bytes that were read at first, found others: it has changed")

    def _first_pass(self) -> _Found:
        """Return what the first pass found, which is made when it is first asked for."""
        if self._found is None:
            self._found = self._read_words()
        return self._found

    def _read_words(self) -> _Found:
        """Read the file once: count its words, choose those of the vocabulary, and check every line."""
        counts: Counter[str] = Counter()
        n_texts = 0
        file = DataFile(self._path, lambda done, total: self._on_progress("read", done, total))
        for texts in text_blocks(file):
            n_texts += len(texts)
            for text in texts:
                counts.update(tokens_of(text))
        if not n_texts:
            raise file.fault(1, "expected at least one row, found none")
        featurizer = context_of(counts, self._parameters)
        return _Found(featurizer, _census(featurizer, counts, n_texts), file.sha256)


def _census(featurizer: ContextFeaturizer, counts: Counter[str], n_texts: int) -> Census:
    """Return the counts of the windows: one for each of these words, and one for each text's end."""
    words = featurizer.words
    label_rows = np.zeros(words.n_names, np.int64)
    for word, count in counts.items():
        label_rows[featurizer.id_of(word)] += count
    label_rows[featurizer.end] += n_texts
    n_rows, window = int(label_rows.sum()), featurizer.parameters.window
    return Census(n_rows, featurizer.n_features, window * n_rows, n_rows, label_rows, window * label_rows)
