"""The weights of a label's leaf, decoded: against the chunks that the ensemble was built from."""

from __future__ import annotations

import numpy as np
import pytest

from model_store.ensemble import Weights
from service.inference.label_weights import leaf_weights, mean_weights, strongest
from tests.oracles.trees import random_forest


def weights_of(tree, label):
    """The leaf of a label, its depth and siblings, its bias and what each feature weighs there."""
    leaf = tree.node_label.tolist().index(label)
    depth, node = 0, leaf
    first = above = None
    while node:
        node = next(n for n in range(node) if tree.child_ptr[n] <= node < tree.child_ptr[n + 1])
        first = node if first is None else first
        depth += 1
    above, position = tree.chunks[first], leaf - tree.child_ptr[first]
    rows = np.repeat(above.features, np.diff(above.row_ptr))
    mine = above.child == position
    weights = {f: float(w) for f, w in zip(rows[mine].tolist(), above.weight[mine], strict=True) if w != 0}
    return depth, len(above.bias) - 1, above.bias[position], weights


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(("seed", "n_features", "arity"), [(1, 5, 2), (2, 70, 40), (3, 2100, 17)])
def test_they_are_those_that_the_tree_was_built_from(
    weights: Weights, seed: int, n_features: int, arity: int
) -> None:
    n_labels = 24
    trees, ensemble = random_forest(
        seed, n_trees=2, n_labels=n_labels, n_features=n_features, arity=arity, weights=weights
    )
    for label in range(n_labels):
        leaves = leaf_weights(ensemble, label)
        assert [each.tree for each in leaves] == [i for i in (0, 1) if label in trees[i].node_label]
        for found in leaves:
            tree = trees[found.tree]
            depth, siblings, bias, expected = weights_of(tree, label)
            assert (found.depth, found.siblings) == (depth, siblings)
            assert found.bias == pytest.approx(bias)
            assert ensemble.node_label[found.leaf] == label
            assert (np.diff(found.features) > 0).all()
            got = dict(zip(found.features.tolist(), found.weights.tolist(), strict=True))
            most = float(max(map(abs, expected.values()), default=0))
            error = {"float32": 0, "bfloat16": 2**-8 * most, "int8": most / 127}[weights]
            for feature in expected.keys() | got.keys():
                assert got.get(feature, 0) == pytest.approx(expected.get(feature, 0), abs=error)
            if weights == "float32":
                assert got.keys() == expected.keys()


def test_means_count_a_tree_without_the_feature_as_zero() -> None:
    _, ensemble = random_forest(5, n_trees=3, n_labels=9, n_features=40, arity=3)
    leaves = leaf_weights(ensemble, 4)
    features, means = mean_weights(leaves)
    of_trees = np.zeros((3, 40))
    for row, leaf in zip(of_trees, leaves, strict=True):
        row[leaf.features] = leaf.weights
    np.testing.assert_allclose(means, of_trees.mean(axis=0)[features], rtol=1e-5, atol=1e-7)
    assert set(features.tolist()) == set(np.flatnonzero(of_trees.any(axis=0)).tolist())


def test_the_strongest_are_the_largest_in_size_and_of_equals_the_first() -> None:
    assert strongest(np.array([1, -3, 2, 3, 0.5], np.float32), 3).tolist() == [1, 3, 2]
    assert strongest(np.empty(0, np.float32), 3).tolist() == []
