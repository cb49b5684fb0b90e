"""A labelled file in the form a version needs: rows of its features, and true labels by its ids."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadInstance,
    Dataset,
    LabelRows,
    SparseRows,
    TableColumns,
    offsets,
)
from xylem.datasets import read_dataset, read_texts
from xylem.engine import ContextFeaturizer, Featurizer
from xylem.evaluation import Truth
from xylem.trainers import Progress
from xylem.trainers import no_progress as no_progress
from xylem.vocabulary import featurizer_of
from xylem_store import COMBINED, I32, LABEL_COUNTS, Bools, DataInfo, Model, NameTable

OnProgress = Progress
"""Called with the name of a phase, how much of it is done, and how much it is in all."""


def learnt_labels(model: Model) -> Bools:
    """Return which labels a version has learnt, bool[K].

    A version has others if its names file or the header of its data listed them but no row had
    them: label trees have no leaf for these. A combined version finds every concept by its names.
    All labels count as learnt if nothing is known about them.
    """
    counts = model.arrays.get(LABEL_COUNTS)
    is_learnt = np.ones(model.labels.n_names, np.bool_)
    if model.manifest.kind == "label-tree":
        is_learnt = model.ensemble.label_leaf[0] >= 0
    elif counts is not None and model.manifest.kind != COMBINED:
        is_learnt = counts > 0
    return is_learnt


class Labelled(NamedTuple):
    """Rows with their true labels.

    labels         true labels of each row that the model knows
    unknown        int32[n], number of further labels of each row, which the model does not know
    source         the file; None for windows of words
    unknown_names  names of the labels that the model does not know, each once
    """

    rows: SparseRows
    labels: LabelRows
    unknown: I32
    source: DataInfo | None = None
    unknown_names: Sequence[str] = ()

    @property
    def truth(self) -> Truth:
        """Return the true labels of the rows."""
        return Truth(self.labels, self.unknown, len(self.unknown_names))

    @property
    def n_true(self) -> int:
        """Return how many labels are true in all rows, also those that the model does not know."""
        return len(self.labels.indices) + int(self.unknown.sum())

    def rows_learnt(self, model: Model) -> tuple[int, int]:
        """Return two numbers of rows: those with a label that a version has learnt, and the others.

        Rows without any label are in neither number.
        """
        n_learnt = np.diff(offsets(learnt_labels(model)[self.labels.indices])[self.labels.indptr])
        has_labels = np.diff(self.labels.indptr) + self.unknown > 0
        return int((n_learnt > 0).sum()), int((has_labels & (n_learnt == 0)).sum())

    @property
    def n_rows(self) -> int:
        """Return the number of rows that are measured: rows of a file, or windows of words."""
        return self.labels.n_rows


def read_labelled(
    model: Model, data: Path, on_progress: OnProgress, columns: TableColumns = DEFAULT_COLUMNS
) -> Labelled:
    """Read a labelled file for an opened version, as `read_labelled_with`. Raises BadInput."""
    return read_labelled_with(model.labels, featurizer_of(model), data, on_progress, columns)


def read_labelled_with(
    labels: NameTable,
    featurizer: Featurizer,
    data: Path,
    on_progress: OnProgress,
    columns: TableColumns = DEFAULT_COLUMNS,
) -> Labelled:
    """Read a labelled file as rows of a featurizer's features, with ids of labels. Raises BadInput.

    For windows of words only the texts of the file are read: their words are the labels.
    """
    if isinstance(featurizer, ContextFeaturizer):
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
        labelled = labelled_dataset(dataset, featurizer)
    except BadInstance as error:
        raise BadData(f"{data}: {error}") from None
    on_progress("features", 1, 1)
    return labelled


def labelled_dataset(dataset: Dataset, featurizer: Featurizer) -> Labelled:
    """Return the labelled rows of a data set. Raises BadInput."""
    rows = featurizer.transform_dataset(dataset)
    source = DataInfo(dataset.source, dataset.n_rows, dataset.sha256)
    return Labelled(rows, dataset.labels, dataset.unknown_labels, source, dataset.unknown_names)
