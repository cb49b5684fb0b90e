"""Renumber the labels of rows, and remove labels and features that a model does not know."""

from dataclasses import replace

import numpy as np

from xylem.base import Dataset, LabelRows, SparseRows, offsets
from xylem.engine import sort_labels
from xylem_store import I32, NameTable, find_all

# The most labels and the most features of a data set.
N_IDS_MAX = 1 << 28

N_ROWS_MAX = 1 << 31  # the most rows of a data set


def renumber_labels(labels: LabelRows, ids: I32, n_labels: int) -> tuple[LabelRows, I32]:
    """Replace each label id i by ids[i].

    ids  int32[labels.n_labels], new ids below n_labels, -1 for a label to drop

    Returns the labels, sorted within each row, and how many labels of each row were dropped.
    """
    selected = labels.select(ids[labels.indices] >= 0)
    n_unknown = (np.diff(labels.indptr) - np.diff(selected.indptr)).astype(np.int32)
    return (
        sorted_labels(selected._replace(indices=ids[selected.indices], n_labels=n_labels)),
        n_unknown,
    )


def sorted_labels(labels: LabelRows) -> LabelRows:
    """Return labels sorted within each row, each once, with the largest of its weights.

    The arrays of `labels` are overwritten.
    """
    weights = labels.weights
    if weights is not None:
        row = np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr))
        order = np.lexsort((weights.labels, labels.indices, row))
        is_last = np.diff(row[order] * labels.n_labels + labels.indices[order], append=-1) != 0
        weights = weights._replace(labels=weights.labels[order[is_last]])
    return labels._replace(
        indices=labels.indices[: sort_labels(labels.indptr, labels.indices)], weights=weights
    )


def renumbered(dataset: Dataset, table: NameTable) -> Dataset:
    """Return labelled rows whose labels have the ids of a table.

    Labels that the table lacks become unknown ones.
    """
    names = dataset.names
    ids = find_all(table, names)
    labels, unknown = renumber_labels(dataset.labels, ids, table.n_names)
    return replace(
        dataset,
        labels=labels,
        unknown_labels=unknown,
        unknown_names=[names[i] for i in np.flatnonzero(ids < 0).tolist()],
        label_names=None,
    )


def first_labels(labels: LabelRows, n_labels: int) -> tuple[LabelRows, I32, list[str]]:
    """Drop the labels whose ids are not below n_labels.

    Returns the other labels, how many labels of each row were dropped, and the dropped ids as
    names: each id once, in ascending order.
    """
    selected = labels.select(labels.indices < n_labels)._replace(n_labels=n_labels)
    return (
        selected,
        (np.diff(labels.indptr) - np.diff(selected.indptr)).astype(np.int32),
        list(map(str, np.unique(labels.indices[labels.indices >= n_labels]).tolist())),
    )


def first_features(rows: SparseRows, n_features: int) -> SparseRows:
    """Return the rows without the features whose ids are not below n_features."""
    is_selected = rows.indices < n_features
    return SparseRows(
        offsets(is_selected)[rows.indptr],
        rows.indices[is_selected],
        rows.values[is_selected],
        n_features,
    )
