"""What training a tree of labels takes at most: shared by the trainers whose trees divide the labels."""

from __future__ import annotations

from service.trainers.bounds import GROUP, Bound, Counts
from service.trainers.clustering import ROUNDS_MAX, levels_of
from service.trainers.size import WEIGHT_BYTES


def bound_label_trees(c: Counts, levels: list[int], passes: int, trees: int) -> Bound:
    """Bound trees of labels: at each level below the root a row is at no more nodes than it has labels.

    levels  how many children a node has at most, for each level from the root down
    passes  of the solver, for each node
    """
    below = sum(min(c.label_values * width, c.values * c.labels) for width in levels[1:])
    steps = trees * passes * (c.values * levels[0] + below)
    nodes_used = [min(c.labels * c.features, c.label_values * width) for width in levels[1:]]
    weights = trees * (min(c.features, c.values) * levels[0] + sum(nodes_used))
    vectors = min(c.label_values, c.labels * c.features)
    steps += trees * ROUNDS_MAX * max(levels[0], len(levels) * 16) * vectors
    node = 8 * c.values + 200 * c.rows + 72 * (c.features + 1) + 4 * c.groups * GROUP
    held = 40 * vectors + 32 * c.carried + WEIGHT_BYTES * weights + 8 * c.values
    return Bound(passes, steps, weights, trees, trees * (2 * c.labels + 1), held, node)


def balanced_levels(n_labels: int, leaf_size: int, arity: int) -> list[int]:
    """Return how many children a node of a balanced tree has at most, for each level from the root down."""
    halvings, n_levels = levels_of(n_labels, leaf_size, arity)
    above = [min(arity, n_labels)] * n_levels if halvings else []
    return [*above, n_labels if not halvings else min(leaf_size, n_labels)]
