"""A labelled file as a version takes it: rows of its features, and true labels by its ids."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from model_store.compiled.handles import I32, I64
from model_store.manifest import DataInfo
from model_store.names import NameTable
from model_store.version import Model
from service.base.columns import DEFAULT_COLUMNS, TableColumns
from service.base.errors import BadData, BadInstance, BadParameter
from service.base.rows import Dataset, LabelRows, SparseRows
from service.datasets import read_dataset
from service.datasets.reader import read_texts
from service.evaluation import Truth
from service.features import Featurizer
from service.features.context import ContextFeaturizer
from service.inference.chunks import divide
from service.trainers.work import Progress
from service.trainers.work import no_progress as no_progress
from service.vocabulary.featurizers import featurizer_of

OnProgress = Progress
"""Called with a phase's name, how much of it is done, and how much it is in all."""


class Labelled(NamedTuple):
    """Rows and what is true of them.

    unknown  int32[n], how many more labels each row has that the model does not know
    source   the file; None of windows of words
    ptr      int64[n + 1]: of texts that are divided, text i has the rows ptr[i] to ptr[i + 1], a chunk each;
             None: each has one row
    unknown_names  of the labels that the model does not know, each once
    """

    rows: SparseRows
    labels: LabelRows
    unknown: I32
    source: DataInfo | None = None
    ptr: I64 | None = None
    unknown_names: Sequence[str] = ()

    @property
    def truth(self) -> Truth:
        """Return what is true of the rows."""
        return Truth(self.labels, self.unknown, len(self.unknown_names))

    @property
    def n_rows(self) -> int:
        """Return how many are measured: rows of a file, or windows of words."""
        return self.labels.n_rows


def read_labelled(
    model: Model,
    data: Path,
    on_progress: OnProgress,
    columns: TableColumns = DEFAULT_COLUMNS,
    chunk_characters: int | None = None,
) -> Labelled:
    """Read a labelled file for an opened version, as `read_labelled_with`. Raises BadInput."""
    featurizer = featurizer_of(model)
    return read_labelled_with(model.labels, featurizer, data, on_progress, columns, chunk_characters)


def read_labelled_with(
    labels: NameTable,
    featurizer: Featurizer,
    data: Path,
    on_progress: OnProgress,
    columns: TableColumns = DEFAULT_COLUMNS,
    chunk_characters: int | None = None,
) -> Labelled:
    """Read a labelled file as rows of a featurizer's features, labels with their ids. Raises BadInput.

    columns           of a table
    chunk_characters  of a chunk, into which longer texts are divided; None: none is

    For windows of words the texts of the file are all: their words are the labels.
    """
    if isinstance(featurizer, ContextFeaturizer):
        _refuse_chunks(chunk_characters)
        rows, words = featurizer.windows_of(read_texts(data, partial(on_progress, "read")))
        return Labelled(rows, words, np.zeros(rows.n_rows, np.int32))
    dataset = read_dataset(
        data,
        labels=labels,
        n_features=featurizer.n_features,
        columns=columns,
        on_progress=partial(on_progress, "read"),
    )
    on_progress("features", 0, 1)
    try:
        labelled = labelled_dataset(dataset, featurizer, chunk_characters)
    except BadInstance as error:
        raise BadData(f"{data}: {error}") from None
    on_progress("features", 1, 1)
    return labelled


def labelled_dataset(
    dataset: Dataset, featurizer: Featurizer, chunk_characters: int | None = None
) -> Labelled:
    """Return the labelled rows of a data set. Raises BadInput.

    chunk_characters  of a chunk, into which longer texts are divided; None: none is
    """
    ptr = None
    if isinstance(featurizer, ContextFeaturizer):
        _refuse_chunks(chunk_characters)
    if chunk_characters is None:
        rows = featurizer.transform_dataset(dataset)
    elif dataset.texts is None:
        raise BadData("chunk_characters: expected texts to divide into chunks, found none")
    else:
        chunks, ptr = divide(dataset.texts, chunk_characters)
        rows = featurizer.transform_texts(chunks)
    source = DataInfo(dataset.source, dataset.n_rows, dataset.sha256)
    return Labelled(rows, dataset.labels, dataset.unknown_labels, source, ptr, dataset.unknown_names)


def _refuse_chunks(chunk_characters: int | None) -> None:
    if chunk_characters is not None:
        expected = "expected none with a model that predicts the next word"
        raise BadParameter(f"chunk_characters: {expected}, found {chunk_characters}")
