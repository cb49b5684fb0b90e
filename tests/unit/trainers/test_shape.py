"""Joining partitions to trees."""

from __future__ import annotations

import numpy as np
import pytest

from service.trainers.shape import join


def _nested(shape, node=0):
    children = range(shape.child_ptr[node], shape.child_ptr[node + 1])
    if not children:
        assert shape.last[node] - shape.first[node] == 1
        return int(shape.labels[shape.first[node]])
    return [_nested(shape, child) for child in children]


def _labels(n):
    return np.arange(100, 100 + n, dtype=np.int32)


@pytest.mark.parametrize(
    ("n", "levels", "expected"),
    [
        (1, [], [100]),
        (3, [], [100, 101, 102]),
        (4, [[0, 4]], [100, 101, 102, 103]),
        (4, [[0, 2, 4]], [[100, 101], [102, 103]]),
        # A part of one label is a leaf where it stands.
        (3, [[0, 1, 3]], [100, [101, 102]]),
        # A level that does not divide a part is skipped there.
        (5, [[0, 3, 5], [0, 2, 3, 5]], [[[100, 101], 102], [103, 104]]),
        (4, [[0, 4], [0, 2, 4], [0, 2, 4]], [[100, 101], [102, 103]]),
        # A part that a later level divides.
        (6, [[0, 2, 6], [0, 2, 4, 6]], [[100, 101], [[102, 103], [104, 105]]]),
    ],
)
def test_trees(n, levels, expected):
    shape = join(_labels(n), [np.array(level) for level in levels])
    assert _nested(shape) == expected
    assert shape.child_ptr[0] == 1
    assert shape.child_ptr[-1] == len(shape.first) == len(shape.child_ptr) - 1
    assert shape.inner.tolist() == [i for i in range(len(shape.first)) if len(shape.child_bounds(i)) > 1]


def test_child_bounds_are_the_labels_of_each_child():
    shape = join(_labels(6), [np.array([0, 2, 6]), np.array([0, 2, 4, 6])])
    assert shape.child_bounds(0).tolist() == [0, 2, 6]
    assert shape.child_bounds(2).tolist() == [2, 4, 6]
