"""Explanations of a label's score: the nodes on its path in each tree, and the features that
contributed most to each node.
"""

from typing import NamedTuple, TypeAlias

import numpy as np

from xylem.engine.kernels.search.explain import FEATURES_MAX, NO_FEATURE, keep_shares
from xylem_store import F32, I32


class FeatureShare(NamedTuple):
    """The contribution of a feature to a node's margin: value times weight."""

    feature: int
    contribution: np.float32


class PathNode(NamedTuple):
    """A node on a label's path.

    probability  the node's probability, given its parent
    score        the product of the probabilities from the root to this node
    features     at most FEATURES_MAX features that have a weight here, by absolute contribution,
                 equal ones by id
    """

    node: int
    probability: np.float32
    score: np.float32
    features: list[FeatureShare]


class Explanation(NamedTuple):
    """The label's path in each tree, from below the root to its leaf; empty if it has no leaf.

    The label's score, before calibration, is the mean over the trees of the last node's score, 0
    for an empty path. A beam search may answer less: it counts 0 for a tree in which it missed the
    leaf.
    """

    trees: list[list[PathNode]]


class RoutedStep(NamedTuple):
    """A node on a row's path down a decision tree.

    margin    the node's margin, by which the row was routed to it
    features  at most FEATURES_MAX features that have a weight here, by absolute contribution, equal
              ones by id
    """

    node: int
    margin: np.float32
    features: list[FeatureShare]


class ReachedLeaf(NamedTuple):
    """A leaf that a row reached and that has the label.

    tree    the tree's number
    leaf    the leaf's node
    value   the label's value in the leaf
    weight  the leaf's weight in the label's score: 1 / (leaves reached in its tree that are not
            empty) / (number of trees)
    path    the nodes from below the root to the leaf; empty when the root is the leaf
    """

    tree: int
    leaf: int
    value: np.float32
    weight: np.float32
    path: list[RoutedStep]


class RoutedExplanation(NamedTuple):
    """The leaves that a row reached and that have the label, by ascending leaf.

    The sum of weight * value is the label's score, before re-ranking and calibration if the model
    has them.
    """

    leaves: list[ReachedLeaf]


class MemberExplanation(NamedTuple):
    """A combined version's member, and how it scores a label.

    score, rank  the score and rank with which the member proposed the label, rank 1 the best; None
                 if it did not propose it
    why          the member's explanation; None if the member does not have the label
    """

    score: np.float32 | None
    rank: int | None
    why: Explanation | RoutedExplanation | None


class CombinedExplanation(NamedTuple):
    """How each member of a combined version scores a label.

    members   one explanation for each member
    is_named  whether a name of the label's concept was found in the text
    """

    members: list[MemberExplanation]
    is_named: bool


AnyExplanation: TypeAlias = Explanation | RoutedExplanation | CombinedExplanation


def empty_shares(n_nodes: int) -> tuple[I32, F32]:
    """Return empty arrays for the features that contribute most to n_nodes nodes, and their shares.

    Both are [n_nodes, FEATURES_MAX].
    """
    return np.empty((n_nodes, FEATURES_MAX), np.int32), np.empty(
        (n_nodes, FEATURES_MAX), np.float32
    )


def feature_shares(features: I32, shares: F32) -> list[list[FeatureShare]]:
    """Return each node's features, from arrays that `empty_shares` made and a kernel filled."""
    return [
        list(map(FeatureShare, row[: len(row) - row.count(NO_FEATURE)], of_row))
        for row, of_row in zip(features.tolist(), shares, strict=True)
    ]


def top_features(features: I32, added: F32, first_tail: int) -> list[FeatureShare]:
    """Return the features that contribute most, at most FEATURES_MAX.

    features    int32[n], ascending
    added       float32[n]: the contribution of each feature
    first_tail  as `explain_leaf` takes it
    """
    n_words = int(np.searchsorted(features, first_tail))
    features = np.append(features[:n_words], np.int32(first_tail))
    added = np.append(added[:n_words], added[n_words:].sum())
    largest = empty_shares(1)
    keep_shares(features, added, largest[0][0], largest[1][0])
    return feature_shares(*largest)[0]
