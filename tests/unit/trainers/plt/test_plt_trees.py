"""Random complete trees and Huffman trees: well formed, complete, of least weighted depth."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trainers.shape import huffman_shape, parents_of, random_shape
from tests.oracles.label_trees import depths, labels_below, least_weighted_depth

counts_of_labels = st.lists(st.integers(1, 30), min_size=1, max_size=6)


def _check(shape, labels, arity):
    """Every rule of Shape, and that each label has one leaf."""
    n_children = np.diff(shape.child_ptr)
    assert shape.child_ptr[0] == 1
    assert shape.child_ptr[-1] == len(n_children) == len(shape.first)
    assert n_children.max() <= arity
    assert sorted(shape.labels.tolist()) == labels.tolist()
    below, parents = labels_below(shape), parents_of(shape.child_ptr)
    assert below[0] == set(labels.tolist())
    for node in range(1, len(n_children)):
        assert parents[node] < node
        assert below[node] <= below[parents[node]]
    for node in shape.inner.tolist():
        bounds = shape.child_bounds(node)
        assert (bounds[0], bounds[-1]) == (shape.first[node], shape.last[node])
        assert (np.diff(bounds) > 0).all()


@settings(deadline=None)
@given(st.integers(1, 80), st.integers(2, 90), st.integers(0, 2**62))
def test_a_random_tree_is_complete(n_labels, arity, seed):
    labels = (3 * np.arange(n_labels)).astype(np.int32)
    shape = random_shape(labels, arity, seed)
    _check(shape, labels, arity)
    inner = np.diff(shape.child_ptr)[shape.inner]
    assert (inner[:-1] == arity).all()
    assert inner[-1] > 1 or n_labels == 1
    found = set(depths(shape).values())
    assert max(found) - min(found) <= 1


def test_random_trees_differ_by_seed():
    labels = np.arange(50, dtype=np.int32)
    one, same, other = (random_shape(labels, 4, seed).labels.tolist() for seed in (1, 1, 2))
    assert one == same
    assert one != other


@settings(deadline=None, max_examples=60)
@given(counts_of_labels, st.integers(2, 7))
def test_a_huffman_tree_has_the_least_weighted_depth(counts, arity):
    labels = (2 * np.arange(len(counts)) + 1).astype(np.int32)
    shape = huffman_shape(labels, np.array(counts), arity)
    _check(shape, labels, arity)
    depth = depths(shape)
    weighted = sum(count * depth[label] for count, label in zip(counts, labels.tolist(), strict=True))
    expected = least_weighted_depth(tuple(counts), arity) if len(counts) > 1 else counts[0]
    assert weighted == expected
