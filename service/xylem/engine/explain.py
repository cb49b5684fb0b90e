"""Explanations: for a label of an answer, the nodes on its path
in each tree and what counted there.
"""

from typing import NamedTuple, TypeAlias

import numpy as np

from xylem.engine.kernels.search.explain import FEATURES_MAX, NO_FEATURE, keep_shares
from xylem_store import F32, I32


class FeatureShare(NamedTuple):
    """What a feature added to a node's margin, value times weight."""

    feature: int
    contribution: np.float32


class PathNode(NamedTuple):
    """A node on a label's path.

    probability  of the node given its parent
    score        the product of the probabilities down to here
    features     at most FEATURES_MAX that have a weight here, by absolute contribution; of equals
                 by id
    """

    node: int
    probability: np.float32
    score: np.float32
    features: list[FeatureShare]


class Explanation(NamedTuple):
    """For each tree the label's path from below the root to its leaf;
    empty where the tree lacks the label.

    The label's score, not calibrated, is the mean over the trees of the last node's, 0 for an empty
    path, except that a beam may have missed the leaf in a tree, and then counted 0 for it.
    """

    trees: list[list[PathNode]]


class RoutedStep(NamedTuple):
    """A node on a row's way down a decision tree.

    margin    of the node, by which the row was sent there
    features  at most FEATURES_MAX that have a weight here, by absolute contribution; of equals by
              id
    """

    node: int
    margin: np.float32
    features: list[FeatureShare]


class ReachedLeaf(NamedTuple):
    """A leaf with the label that a row reached.

    value   of the label in the leaf
    weight  of the leaf in the label's score: 1 over the leaves reached in its tree that are not
            empty, over the number of trees
    path    from below the root to the leaf; empty when the root is the leaf
    """

    tree: int
    leaf: int
    value: np.float32
    weight: np.float32
    path: list[RoutedStep]


class RoutedExplanation(NamedTuple):
    """The leaves with the label that a row reached, ascending.

    The sum of weight * value is the label's score, before re-ranking and calibration if the model
    has them.
    """

    leaves: list[ReachedLeaf]


class MemberExplanation(NamedTuple):
    """What a member of a combined version says of a label.

    score, rank  by which the member proposed it, rank 1 the best; None: it did not
    why          None where the member does not have the label
    """

    score: np.float32 | None
    rank: int | None
    why: Explanation | RoutedExplanation | None


class CombinedExplanation(NamedTuple):
    """What each member of a combined version says of a label, and whether a name of
    it was found.
    """

    members: list[MemberExplanation]
    is_named: bool


AnyExplanation: TypeAlias = Explanation | RoutedExplanation | CombinedExplanation


def most_shares(n_nodes: int) -> tuple[I32, F32]:
    """Return room for the features that add most to so many nodes, and for their shares."""
    return np.empty((n_nodes, FEATURES_MAX), np.int32), np.empty(
        (n_nodes, FEATURES_MAX), np.float32
    )


def told_shares(features: I32, shares: F32) -> list[list[FeatureShare]]:
    """Return what `most_shares` was filled with, for each node."""
    return [
        list(map(FeatureShare, row[: len(row) - row.count(NO_FEATURE)], of_row))
        for row, of_row in zip(features.tolist(), shares, strict=True)
    ]


def top_features(features: I32, added: F32) -> list[FeatureShare]:
    """Return the features that added most, FEATURES_MAX at most."""
    most = most_shares(1)
    keep_shares(features, added, most[0][0], most[1][0])
    return told_shares(*most)[0]
