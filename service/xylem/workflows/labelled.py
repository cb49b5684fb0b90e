"""Read a labelled file in the form a version needs."""

from functools import partial
from pathlib import Path

import numpy as np

from xylem.base import DEFAULT_COLUMNS, BadData, BadInstance, OnProgress, TableColumns
from xylem.datasets import read_dataset, read_texts
from xylem.engine import ContextFeaturizer, Featurizer
from xylem.evaluation import Labelled, labelled_dataset
from xylem.vocabulary import featurizer_of
from xylem_store import Model, NameTable


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
