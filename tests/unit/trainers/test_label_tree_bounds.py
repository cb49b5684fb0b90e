"""Bounds of label trees, against the trees that are made."""

from __future__ import annotations

import numpy as np
import pytest

from service.trainers.bounds import Counts
from service.trainers.clustering import balanced_shape
from service.trainers.label_tree_bounds import balanced_levels, bound_label_trees
from service.trainers.representations import label_representations
from service.trainers.work import Crew, no_progress
from tests.oracles.problems import random_labels, random_rows, to_labels, to_rows


@pytest.mark.parametrize("arity", [2, 4, 16])
@pytest.mark.parametrize("leaf_size", [1, 2, 7, 100])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 14, 15, 28, 29, 64, 65, 201])
def test_no_level_of_a_balanced_tree_is_wider_or_deeper_than_said(n: int, leaf_size: int, arity: int) -> None:
    vectors = label_representations(to_rows(np.eye(n)), to_labels(np.eye(n, dtype=bool)))
    labels = np.arange(n, dtype=np.int32)
    shape = balanced_shape(vectors, labels, leaf_size, arity, 3, Crew(1), no_progress)
    depth = np.zeros(len(shape.first), int)
    for node in shape.inner:
        depth[shape.child_ptr[node] : shape.child_ptr[node + 1]] = depth[node] + 1
    widths = np.diff(shape.child_ptr)
    found = [int(widths[depth == level].max()) for level in range(depth.max())]
    levels = balanced_levels(n, leaf_size, arity)
    assert len(found) <= len(levels)
    assert all(width <= most for width, most in zip(found, levels, strict=False))


def test_more_of_anything_never_lowers_a_bound() -> None:
    rng = np.random.default_rng(2)
    rows, labels = random_rows(rng, 30, 20, 0.3), random_labels(rng, 30, 12, 0.2)
    few = Counts(30, 20, 12, len(rows.indices), len(labels.indices), 200, 9, 1)
    levels = [4, 4]
    least = bound_label_trees(few, levels, 10, 1)
    for more in (
        *(
            bound_label_trees(few._replace(**{name: 2 * value}), levels, 10, 1)
            for name, value in few._asdict().items()
        ),
        bound_label_trees(few, [4, 4, 4], 10, 1),
        bound_label_trees(few, levels, 20, 1),
        bound_label_trees(few, levels, 10, 2),
    ):
        assert all(a <= b for a, b in zip(least, more, strict=True))
