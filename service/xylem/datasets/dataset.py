"""Renumber the labels of rows, and remove labels and features that a model does not know."""

from dataclasses import replace

import numpy as np

from xylem.base import Dataset, LabelRows, SparseRows, offsets
from xylem.engine import sort_labels
from xylem_store import I32, I64, Bools, NameTable, find_all

N_IDS_MAX = 1 << 28
"""The most labels and the most features of a data set."""

N_ROWS_MAX = 1 << 31
"""The most rows of a data set."""


def renumber_labels(labels: LabelRows, ids: I32, n_labels: int) -> tuple[LabelRows, I32]:
    """Replace each label id i by ids[i].

    ids  int32[labels.n_labels], new ids below n_labels, -1 for a label to drop

    Returns the labels, sorted within each row, and how many labels of each row were dropped.
    """
    mapped = ids[labels.indices]
    indptr, indices = _select_entries(labels.indptr, mapped >= 0, mapped)
    unknown = np.diff(labels.indptr) - np.diff(indptr)
    indices = indices[: sort_labels(indptr, indices)]
    return LabelRows(indptr, indices, n_labels), unknown.astype(np.int32)


def renumbered(dataset: Dataset, table: NameTable) -> Dataset:
    """Return labelled rows whose labels have the ids of a table.

    Labels that the table lacks become unknown ones.
    """
    names = dataset.names
    ids = find_all(table, names)
    labels, unknown = renumber_labels(dataset.labels, ids, table.n_names)
    unknown_names = [names[i] for i in np.flatnonzero(ids < 0).tolist()]
    return replace(
        dataset,
        labels=labels,
        unknown_labels=unknown,
        unknown_names=unknown_names,
        label_names=None,
    )


def first_labels(labels: LabelRows, n_labels: int) -> tuple[LabelRows, I32, list[str]]:
    """Drop the labels whose ids are not below n_labels.

    Returns the other labels, how many labels of each row were dropped, and the dropped ids as
    names: each id once, in ascending order.
    """
    indptr, indices = _select_entries(labels.indptr, labels.indices < n_labels, labels.indices)
    unknown = np.diff(labels.indptr) - np.diff(indptr)
    dropped = np.unique(labels.indices[labels.indices >= n_labels]).tolist()
    return LabelRows(indptr, indices, n_labels), unknown.astype(np.int32), list(map(str, dropped))


def first_features(rows: SparseRows, n_features: int) -> SparseRows:
    """Return the rows without the features whose ids are not below n_features."""
    is_selected = rows.indices < n_features
    indptr, indices = _select_entries(rows.indptr, is_selected, rows.indices)
    return SparseRows(indptr, indices, rows.values[is_selected], n_features)


def _select_entries(indptr: I64, is_selected: Bools, values: I32) -> tuple[I64, I32]:
    """Return the offsets and values of rows that have only the selected values."""
    return offsets(is_selected)[indptr], values[is_selected]
