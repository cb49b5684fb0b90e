"""A labelled file as a version takes it: rows of its features, and true labels by its ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.manifest import DataInfo
from model_store.names import NameTable
from model_store.version import Model
from service.columns import DEFAULT_COLUMNS, TableColumns
from service.datasets import Dataset, read_dataset
from service.datasets.texts import read_texts
from service.errors import BadData, BadInstance
from service.features import Featurizer, load_featurizer
from service.features.context import ContextFeaturizer
from service.rows import LabelRows, SparseRows

OnProgress = Callable[[str, int, int], None]
"""Called with a phase's name, how much of it is done, and how much it is in all."""


def no_progress(phase: str, done: int, total: int) -> None:
    """Report nothing."""


class Labelled(NamedTuple):
    """Rows and what is true of them.

    unknown  int32[n], how many more labels each row has that the model lacks
    source   the file; None of windows of words
    """

    rows: SparseRows
    labels: LabelRows
    unknown: NDArray[np.int32]
    source: DataInfo | None = None


def read_labelled(
    model: Model, data: Path, on_progress: OnProgress, columns: TableColumns = DEFAULT_COLUMNS
) -> Labelled:
    """Read a labelled file for an opened version; `columns` of a table. Raises BadInput."""
    featurizer = load_featurizer(model.manifest.features, model.arrays, model.manifest.n_features)
    return read_labelled_with(model.labels, featurizer, data, on_progress, columns)


def read_labelled_with(
    labels: NameTable,
    featurizer: Featurizer,
    data: Path,
    on_progress: OnProgress,
    columns: TableColumns = DEFAULT_COLUMNS,
) -> Labelled:
    """Read a labelled file as rows of a featurizer's features, labels with their ids. Raises BadInput.

    For windows of words the texts of the file are all: their words are the labels.
    """
    if isinstance(featurizer, ContextFeaturizer):
        texts = read_texts(data, lambda done, total: on_progress("read", done, total)).texts
        windows = featurizer.windows_of(texts)
        return Labelled(*windows, np.zeros(windows.rows.n_rows, np.int32))
    dataset = read_dataset(
        data,
        labels=labels,
        n_features=featurizer.n_features,
        columns=columns,
        on_progress=lambda done, total: on_progress("read", done, total),
    )
    on_progress("features", 0, 1)
    try:
        rows = featurizer.transform_dataset(dataset)
    except BadInstance as error:
        raise BadData(f"{data}: {error}") from None
    on_progress("features", 1, 1)
    return labelled_dataset(dataset, rows)


def labelled_dataset(dataset: Dataset, rows: SparseRows) -> Labelled:
    """Return the labelled rows of a data set, of which rows of features have been made."""
    source = DataInfo(dataset.source, dataset.n_rows, dataset.sha256)
    return Labelled(rows, dataset.labels, dataset.unknown_labels, source)
