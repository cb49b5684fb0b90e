"""Labels and features of rows renumbered, or cut to those that a model knows."""

import numpy as np

from xylem.base import LabelRows, SparseRows, offsets
from xylem.engine import sort_labels
from xylem_store import I32, I64, Bools

N_IDS_MAX = 1 << 28
"""The most labels and the most features of a data set."""

N_ROWS_MAX = 1 << 31
"""The most rows of a data set."""


def renumber_labels(labels: LabelRows, ids: I32, n_labels: int) -> tuple[LabelRows, I32]:
    """Return the labels with id i replaced by ids[i], and how many of each row were dropped.

    ids int32[labels.n_labels]: new ids below n_labels, -1 for a label to drop. Rows stay sorted.
    """
    mapped = ids[labels.indices]
    indptr, indices = _select_entries(labels.indptr, mapped >= 0, mapped)
    unknown = np.diff(labels.indptr) - np.diff(indptr)
    indices = indices[: sort_labels(indptr, indices)]
    return LabelRows(indptr, indices, n_labels), unknown.astype(np.int32)


def first_labels(labels: LabelRows, n_labels: int) -> tuple[LabelRows, I32, list[str]]:
    """Return the labels below n_labels, of that many; how many of each
    row were dropped; and their numbers.

    The numbers are names, each once, ascending.
    """
    indptr, indices = _select_entries(labels.indptr, labels.indices < n_labels, labels.indices)
    unknown = np.diff(labels.indptr) - np.diff(indptr)
    dropped = np.unique(labels.indices[labels.indices >= n_labels]).tolist()
    return LabelRows(indptr, indices, n_labels), unknown.astype(np.int32), list(map(str, dropped))


def first_features(rows: SparseRows, n_features: int) -> SparseRows:
    """Return the rows with the features below n_features, of that many."""
    is_selected = rows.indices < n_features
    indptr, indices = _select_entries(rows.indptr, is_selected, rows.indices)
    return SparseRows(indptr, indices, rows.values[is_selected], n_features)


def _select_entries(indptr: I64, is_selected: Bools, values: I32) -> tuple[I64, I32]:
    """Return the offsets and values of rows of which only some values are kept."""
    return offsets(is_selected)[indptr], values[is_selected]
