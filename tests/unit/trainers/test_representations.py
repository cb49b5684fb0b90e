"""Label representations, the shapes made of them, and the arrays of re-ranking."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.datasets_helpers import check_sparse
from tests.oracles import problems
from tests.oracles.label_trees import levels
from tests.oracles.problems import (
    dense_labels,
    dense_rows,
    random_labels,
    random_rows,
    to_labels,
    to_rows,
)

from xylem.base.executors.local import Crew
from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers import representations
from xylem.trainers.clustering import balanced_shape, kmeans_shape
from xylem.trainers.representations import label_representations, rerank_arrays
from xylem.trainers.shape import join
from xylem.trainers.source import Tools, derived_seed


def _vectors(n_labels: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, 300, 40, 0.2)
    return label_representations(rows, random_labels(rng, 300, n_labels, 0.1), Tools())


def test_representations_are_normalised_sums() -> None:
    rng = np.random.default_rng(1)
    rows, labels = random_rows(rng, 60, 25, 0.1), random_labels(rng, 60, 30, 0.1)
    found = label_representations(rows, labels, Tools())
    x, y = dense_rows(rows), dense_labels(labels)
    expected = np.array([problems.unit(x[y[:, label]].sum(axis=0)) for label in range(30)])
    np.testing.assert_allclose(dense_rows(type(rows)(*found)), expected, atol=1e-6)
    assert (np.diff(found.indptr) == 0).any(), "the data must have a label without a vector"


def test_representations_are_the_same_in_any_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _vectors(30)
    for piece in (1, 50):
        monkeypatch.setattr(representations, "_PIECE", piece)
        assert all(map(np.array_equal, _vectors(30), whole))


def _balanced(n: int, leaf_size: Any, arity: int) -> Any:
    """The balanced tree of labels 3 to n + 2."""
    labels = np.arange(3, 3 + n, dtype=np.int32)
    shape = balanced_shape(_vectors(3 + n), labels, leaf_size, arity, Tools(5, Crew(2)))
    assert sorted(shape.labels) == labels.tolist()
    return shape


@pytest.mark.parametrize(
    ("leaf_size", "arity"), [(1, 2), (3, 2), (10, 16), (7, 4), (1000, 16), (20, 256)]
)
def test_balanced_trees_are_balanced_and_no_wider_than_asked(leaf_size: Any, arity: int) -> None:
    shape = _balanced(157, leaf_size, arity)
    n_children, inner = np.diff(shape.child_ptr), shape.inner
    above = n_children[shape.child_ptr[inner]] > 0
    assert (n_children[inner[above]] <= arity).all()
    bottom = (shape.last - shape.first)[inner[~above]] if leaf_size > 1 else np.array([1])
    assert bottom.max() <= leaf_size
    assert bottom.max() - bottom.min() <= 1
    assert bottom.min() >= leaf_size // 2 or leaf_size > 157


# 160 labels in parts of at most 10: 4 halvings
@pytest.mark.parametrize(("arity", "inner_levels"), [(2, 4), (4, 2), (8, 2), (16, 1), (256, 1)])
def test_levels_are_as_few_as_the_arity_allows(arity: int, inner_levels: Any) -> None:
    assert levels(_balanced(160, 10, arity).child_ptr).max() == inner_levels + 1


@pytest.mark.parametrize(("n", "n_inner"), [(10, 1), (11, 1), (20, 1), (21, 5)])
def test_one_halving_is_not_made(n: int, n_inner: int) -> None:
    assert len(_balanced(n, 10, 16).inner) == n_inner


@pytest.mark.parametrize(
    ("leaf_size", "arity", "depth"), [(5, 4, 6), (5, 4, 2), (1, 3, 32), (500, 4, 6), (5, 4, 1)]
)
def test_kmeans_trees_respect_leaf_size_arity_and_depth(
    leaf_size: Any, arity: int, depth: int
) -> None:
    labels = np.arange(120, dtype=np.int32)
    shape = kmeans_shape(_vectors(120), labels, leaf_size, arity, depth, Tools(5, Crew(2)))
    assert sorted(shape.labels) == labels.tolist()
    n_children = np.diff(shape.child_ptr)
    for node in shape.inner:
        is_above_leaves = not n_children[shape.child_ptr[node] : shape.child_ptr[node + 1]].any()
        assert is_above_leaves or n_children[node] <= arity
    assert levels(shape.child_ptr).max() <= depth


def test_equal_labels_end_as_one_part() -> None:
    rows = to_rows(np.ones((10, 3)))
    vectors = label_representations(rows, to_labels(np.ones((10, 8), bool)), Tools())
    every = np.arange(8, dtype=np.int32)
    assert len(kmeans_shape(vectors, every, 2, 4, 6, Tools()).inner) == 1
    shape = balanced_shape(vectors, every, 2, 4, Tools())
    assert (np.diff(shape.child_ptr)[1:5] == 2).all()


def test_seeds_differ_by_every_word() -> None:
    seeds = {derived_seed(*words) for words in np.ndindex(5, 5, 5)}
    assert len(seeds) == 125
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derived_seed(2**63 - 1, 7) == derived_seed(2**63 - 1, 7)


def _nested(shape: Any, node: Any = 0) -> Any:
    children = range(shape.child_ptr[node], shape.child_ptr[node + 1])
    if not children:
        assert shape.last[node] - shape.first[node] == 1
        return int(shape.labels[shape.first[node]])
    assert shape.child_bounds(node).tolist() == [*shape.first[children], shape.last[node]]
    return [_nested(shape, child) for child in children]


@pytest.mark.parametrize(
    ("n", "cuts", "expected"),
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
def test_cuts_of_labels_level_by_level_make_a_tree(n: int, cuts: Any, expected: Any) -> None:
    shape = join(np.arange(100, 100 + n, dtype=np.int32), [np.array(level) for level in cuts])
    assert _nested(shape) == expected
    assert shape.child_ptr[0] == 1
    assert shape.child_ptr[-1] == len(shape.first) == len(shape.child_ptr) - 1
    assert shape.inner.tolist() == [
        i for i in range(len(shape.first)) if len(shape.child_bounds(i)) > 1
    ]


def dense_means(rows: SparseRows, labels: LabelRows) -> np.ndarray:
    """The mean of the rows of each label, each row at length 1: float64[K, D]."""
    x, y = dense_rows(rows), dense_labels(labels)
    means = np.zeros((labels.n_labels, rows.n_features))
    for label in np.flatnonzero(y.any(axis=0)):
        means[label] = np.mean([problems.unit(row) for row in x[y[:, label]]], axis=0)
    return means


@settings(max_examples=60)
@given(
    st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 20), st.sampled_from([0.0, 0.2, 0.9])
)
def test_means_and_norms_are_those_of_dense_rows(
    seed: int, n_rows: int, n_labels: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n_rows, 15, density)
    lengths = np.repeat(rng.uniform(0.1, 9, n_rows), np.diff(rows.indptr))
    rows = rows._replace(values=(rows.values * lengths).astype(np.float32))
    labels = random_labels(rng, n_rows, n_labels, 0.3)
    found = rerank_arrays(rows, labels, 0.8, 30.0)
    integers = {"tail/ptr": np.int64, "tail/features": np.int32}
    floats = dict.fromkeys(["tail/values", "tail/norm2", "tail/parameters"], np.float32)
    assert {name: array.dtype for name, array in found.items()} == {**integers, **floats}
    assert found["tail/parameters"].tolist() == [np.float32(0.8), 30.0]
    means = dense_means(rows, labels)
    assert len(found["tail/ptr"]) == n_labels + 1
    stored = SparseRows(found["tail/ptr"], found["tail/features"], found["tail/values"], 15)
    check_sparse(stored)
    assert dense_rows(stored) == pytest.approx(means, abs=1e-6)
    assert found["tail/norm2"] == pytest.approx((means**2).sum(axis=1), abs=1e-6)
