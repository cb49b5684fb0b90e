"""The labels below the nodes of a tree, against a walk from the root."""

from __future__ import annotations

import numpy as np
import pytest

from model_store.ensemble import TreeEnsemble
from service.evaluation.tree_labels import tree_labels
from tests.small_models import small_draft


def walk(
    ensemble: TreeEnsemble, node: int, place: tuple[int, ...]
) -> list[tuple[tuple[int, ...], list[int]]]:
    """The nodes below a node, and itself, that have children, with the labels below each."""
    first, end = ensemble.child_ptr[node], ensemble.child_ptr[node + 1]
    if ensemble.node_label[node] >= 0:
        return []
    below = [walk(ensemble, child, (*place, child - first + 1)) for child in range(first, end)]
    own = [int(ensemble.node_label[child]) for child in range(first, end) if ensemble.node_label[child] >= 0]
    for nodes, child in zip(below, range(first, end), strict=True):
        own += nodes[0][1] if ensemble.node_label[child] < 0 else []
    return [(place, own), *(each for nodes in below for each in nodes)]


@pytest.mark.parametrize("depth", [0, 1, 2, 9])
@pytest.mark.parametrize("n_trees", [1, 3])
def test_nodes_have_the_labels_that_a_walk_finds(depth: int, n_trees: int) -> None:
    ensemble = small_draft(7, n_labels=40, n_features=30, n_trees=n_trees).ensemble
    counts = np.random.default_rng(0).integers(0, 5, 40)
    for tree in range(n_trees):
        expected = {place: labels for place, labels in walk(ensemble, tree, ()) if len(place) <= depth}
        found = tree_labels(ensemble, counts, tree=tree, depth=depth, n_labels=6)
        assert [each.place for each in found] == sorted(expected)
        for each in found:
            labels = sorted(expected[each.place], key=lambda label: (-counts[label], label))
            assert each.labels.tolist() == labels[:6]
            assert (each.n_labels, each.n_rows) == (len(labels), counts[labels].sum())
