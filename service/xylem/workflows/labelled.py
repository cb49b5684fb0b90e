"""Read a labelled file in the form a version needs."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadInstance,
    Finding,
    OnProgress,
    SparseRows,
    TableColumns,
)
from xylem.datasets import REPEATED_ROWS, read_dataset, read_texts
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


REPEATED_SHARE = 0.1
"""The share of validation rows that are training rows from which it is a finding: short texts may
be equal by chance.
"""


def repeated_rows_of(train: SparseRows, valid: SparseRows) -> Finding | None:
    """Return the finding that many validation rows have the features of a training row; or None.

    Rows without features are left out.
    """
    train_digests = set(_digests(train))
    n_repeated = sum(digest in train_digests for digest in _digests(valid))
    if n_repeated <= REPEATED_SHARE * valid.n_rows:
        return None
    return REPEATED_ROWS.about(n=n_repeated, n_rows=valid.n_rows)


def _digests(rows: SparseRows) -> Iterator[int]:
    """Yield a number for each row with features; equal rows have the same one."""
    features, values = rows.indices.tobytes(), rows.values.tobytes()
    for start, end in pairwise((rows.indptr * 4).tolist()):
        if start < end:
            yield hash((features[start:end], values[start:end]))
