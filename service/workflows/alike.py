"""Rows that are alike, which are held out together: one of them tells too much about another.

Held-out rows stand for rows that come later, often from other sources than the training rows. If a row is
held out while its like is not, a ranker learns to trust near rows more than it should.
"""

import numpy as np
from scipy.sparse import csr_array

from model_store.compiled.handles import I64
from service.base.rows import SparseRows
from service.workflows.near_rows import largest_features, largest_rows, places_in_groups

ALIKE = 0.6
"""Two rows are alike from this cosine on."""

GROUP_ROWS = 50
"""A larger group is divided."""

_COMPARED = 1000
"""So many rows are compared with all others at a time."""


def group_alike(rows: SparseRows, most: int = GROUP_ROWS) -> I64:
    """Return the group of each row, int64[n] from 0: a row is in the group of all rows that are alike to it.

    A group of more than `most` rows is divided in the order of its rows. Cosines are of the features that
    near rows keep (`largest_features`, `largest_rows`). Cost: for each row at most FEATURES_MAX *
    POSTINGS_MAX products.
    """
    of_row, features, values, lengths = largest_features(rows)
    weights = values / np.where(lengths > 0, lengths, 1)[of_row]
    shape = (rows.n_rows, rows.n_features)
    listed = largest_rows(of_row, features, weights)
    whole = csr_array((weights, (of_row, features)), shape)
    lists = csr_array((weights[listed], (features[listed], of_row[listed])), shape[::-1])
    row, other = [], []
    for first in range(0, rows.n_rows, _COMPARED):
        cosines = (whole[first : first + _COMPARED] @ lists).tocoo()
        is_alike = cosines.data >= ALIKE
        row.append(first + cosines.row[is_alike])
        other.append(cosines.col[is_alike])
    group = _smallest_connected(rows.n_rows, np.concatenate(row), np.concatenate(other))
    order = np.argsort(group, kind="stable")
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(places_in_groups(group[order]) % most == 0) - 1
    return found


def _smallest_connected(n: int, one: I64, other: I64) -> I64:
    """Return the smallest of n rows that each is connected with, by pairs of rows. Cost: some passes."""
    found = np.arange(n)
    while True:
        smaller = found.copy()
        np.minimum.at(smaller, one, found[other])
        np.minimum.at(smaller, other, found[one])
        smaller = smaller[smaller]
        if np.array_equal(smaller, found):
            return found
        found = smaller
