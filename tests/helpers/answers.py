"""Answers of predictors, row by row, for the tests of predictors."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xylem.base.rows import SparseRows
from xylem.engine.answering import Predictions


def each_row(found: Predictions) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """Yield the labels of each row and their scores, in the order answered."""
    for first, last in zip(found.ptr[:-1].tolist(), found.ptr[1:].tolist(), strict=True):
        yield found.labels[first:last].tolist(), found.scores[first:last]


def dense_scores(found: Predictions, n_labels: int) -> NDArray[np.float32]:
    """Return the scores of all labels, float32[n_rows, n_labels]; 0 where one is not answered."""
    scores = np.zeros((len(found.ptr) - 1, n_labels), np.float32)
    for row, (labels, of_row) in zip(scores, each_row(found), strict=True):
        row[labels] = of_row
    return scores


def assert_same(found: Predictions, expected: Predictions) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def row_with(features: NDArray[np.int32], n_features: int, value: float = 1) -> SparseRows:
    """Return one row that has these features."""
    values = np.full(len(features), value, np.float32)
    return SparseRows(np.array([0, len(features)]), features.astype(np.int32), values, n_features)


def empty_rows(n_rows: int, n_features: int) -> SparseRows:
    nothing = np.empty(0, np.int32), np.empty(0, np.float32)
    return SparseRows(np.zeros(n_rows + 1, np.int64), *nothing, n_features)
