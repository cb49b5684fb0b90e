"""Explanations: for a label of an answer, the nodes on its path in each tree and what counted there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEATURES_MAX = 5
"""So many features a node are told, those that added or took away most."""


class FeatureShare(NamedTuple):
    """What a feature added to a node's margin, value times weight."""

    feature: int
    contribution: np.float32


class PathNode(NamedTuple):
    """A node on a label's path.

    probability  of the node given its parent
    score        the product of the probabilities down to here
    features     at most FEATURES_MAX that have a weight here, by absolute contribution; of equals by id
    """

    node: int
    probability: np.float32
    score: np.float32
    features: list[FeatureShare]


class Explanation(NamedTuple):
    """For each tree the label's path from below the root to its leaf; empty where the tree lacks the label.

    The label's score is the mean over the trees of the last node's, 0 for an empty path, except that a beam
    may have missed the leaf in a tree, and then counted 0 for it.
    """

    trees: list[list[PathNode]]


class RoutedStep(NamedTuple):
    """A node on a row's way down a decision tree.

    margin    of the node, by which the row was sent there
    features  at most FEATURES_MAX that have a weight here, by absolute contribution; of equals by id
    """

    node: int
    margin: np.float32
    features: list[FeatureShare]


class ReachedLeaf(NamedTuple):
    """A leaf with the label that a row reached.

    value   of the label in the leaf
    weight  of the leaf in the label's score: 1 over the leaves reached in its tree that are not empty, over
            the number of trees
    path    from below the root to the leaf; empty when the root is the leaf
    """

    tree: int
    leaf: int
    value: np.float32
    weight: np.float32
    path: list[RoutedStep]


class RoutedExplanation(NamedTuple):
    """The leaves with the label that a row reached, ascending.

    The sum of weight * value is the label's score, before re-ranking if the model re-ranks.
    """

    leaves: list[ReachedLeaf]


Walk = Callable[
    [
        int,
        NDArray[np.int32],
        NDArray[np.float32],
        NDArray[np.float32],
        NDArray[np.float32],
    ],
    None,
]
"""Fill the outputs of service.kernels.search.explain.explain_leaf for a leaf."""


def explain_path(walk: Walk, leaf: int, depth: int, features: NDArray[np.int32]) -> list[PathNode]:
    """Return the path of a leaf that is `depth` nodes below its root, for a row of the given features."""
    nodes = np.empty(depth, np.int32)
    probabilities, scores = np.empty((2, depth), np.float32)
    added = np.empty((depth, len(features)), np.float32)
    walk(leaf, nodes, probabilities, scores, added)
    return [
        PathNode(node, probability, score, top_features(features, shares))
        for node, probability, score, shares in zip(nodes.tolist(), probabilities, scores, added, strict=True)
    ]


def top_features(features: NDArray[np.int32], added: NDArray[np.float32]) -> list[FeatureShare]:
    """Return the features that added most. Products beyond a float32 count as its largest number."""
    added = np.nan_to_num(added)
    order = np.argsort(-np.abs(added), kind="stable")[:FEATURES_MAX]
    return [FeatureShare(int(features[i]), added[i]) for i in order if added[i] != 0]
