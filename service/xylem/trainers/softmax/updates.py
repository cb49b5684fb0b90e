"""Updates of a tree that is learnt: the statistics of its labels, the quality of its nodes, and the
reassignment of labels.
"""

import numpy as np

from xylem.trainers.softmax.assignment import assign_labels
from xylem.trainers.softmax.dealing import Rule
from xylem.trainers.softmax.known import GREATEST, MASS, OBJECTIVE, PURITY, measure_nodes
from xylem.trainers.softmax.parameters import TreeLearning
from xylem.trainers.softmax.shapes import empty_topology
from xylem.trainers.softmax.tree import (
    LabelStatistics,
    LearningState,
    SoftmaxTree,
    add_representations,
)
from xylem.trainers.source import RowSource
from xylem_store import F32, I32, I64, Bools

# Most levels in a report, from the root.
LEVELS_MAX = 16


def no_statistics(tree: SoftmaxTree, learning: TreeLearning | None, dim: int) -> LabelStatistics:
    """Return the statistics before the first step; arrays that are not needed have length 0."""
    n_labels = len(tree.leaf_node)
    arity = tree.child.shape[1]
    by_means = learning is not None and learning.updates > 0 and learning.by_means
    by_sums = learning is not None and learning.updates > 0 and not learning.by_means
    depth = int(tree.level.max()) + 1
    return LabelStatistics(
        np.full((n_labels if by_sums else 0, depth, arity), 1 / arity, np.float32),
        np.ones((n_labels if by_sums else 0, depth), np.float32),
        np.zeros((n_labels if by_means else 0, dim), np.float32),
        np.zeros(n_labels if by_means else 0, np.int64),
    )


def update_means(state: LearningState, source: RowSource, is_mean: bool) -> None:
    """Compute the labels' mean representations from the current embeddings, if they are needed.

    Reads the rows once. Deviation from algorithm 1, whose statistics are collected over all steps
    so far: the embeddings have changed since the first steps.
    """
    means = state.statistics.means
    if not len(means):
        return
    sums = np.zeros(means.shape)
    for part in source.parts():
        add_representations(*part, state.network, is_mean, sums)
    state.statistics.n_rows[:] = source.census.label_rows
    means[:] = sums / np.maximum(state.statistics.n_rows, 1)[:, None]


def levels_of(state: LearningState, counts: I64) -> list[dict[str, float]]:
    """Return figures for each level of a tree: means over its nodes.

    The nodes are weighted by their mass, the rows of labels with statistics.

    objective  J (equation 6)
    share      J / J*, where J* is the largest J of a node with as many children
    purity     alpha of definition 2: 0 is pure
    """
    measures = measure_nodes(np.flatnonzero(counts).astype(np.int32), counts / counts.sum(), state)
    is_known = measures[:, GREATEST] > 0  # not where there is a single child
    figures = []
    for level in range(min(LEVELS_MAX, int(state.tree.level.max()) + 1)):
        level_nodes = measures[is_known & (state.tree.level == level)]
        if not len(level_nodes):
            break
        weight = level_nodes[:, MASS] / level_nodes[:, MASS].sum()
        means = {
            "objective": weight @ level_nodes[:, OBJECTIVE],
            "share": weight @ (level_nodes[:, OBJECTIVE] / level_nodes[:, GREATEST]),
            "purity": weight @ level_nodes[:, PURITY],
        }
        figures.append(
            {"level": level, **{name: round(float(mean), 5) for name, mean in means.items()}}
        )
    return figures


def reassign_labels(state: LearningState, counts: I64, rule: Rule) -> tuple[LearningState, int]:
    """Reassign the labels to the nodes; return (the state on the new tree, how many labels moved).

    counts  int64[K]  rows of each label
    """
    tree, network, squares, statistics = state
    used_labels = np.flatnonzero(counts)
    labels = used_labels[np.argsort(-counts[used_labels], kind="stable")].astype(np.int32)
    if len(labels) < 2:
        return state, 0
    new_tree = empty_topology(max(len(labels), len(tree.child)), tree.child.shape[1], len(counts))
    n_nodes, new_slots = assign_labels(labels, counts / counts.sum(), rule, state, new_tree)
    child, parent, branch, level = (part[:n_nodes] for part in new_tree[:4])
    new_tree = new_tree._replace(child=child, parent=parent, branch=branch, level=level)
    is_new = new_slots[:n_nodes].astype(np.bool_)
    network = network._replace(
        weights=_keep_old_rows(network.weights, is_new), bias=_keep_old_rows(network.bias, is_new)
    )
    if len(squares.bias):
        squares = squares._replace(
            weights=_keep_old_rows(squares.weights, is_new),
            bias=_keep_old_rows(squares.bias, is_new),
        )
    has_moved = (new_tree.leaf_node != tree.leaf_node) | (new_tree.leaf_branch != tree.leaf_branch)
    if len(statistics.sums):
        statistics = _keep_path_sums(statistics, tree, new_tree, is_new)
    return LearningState(new_tree, network, squares, statistics), int(has_moved.sum())


def _keep_old_rows(old: F32, is_new: Bools) -> F32:
    """Return the parameters of the new tree's nodes: the old ones, and 0 for new nodes."""
    new_values = np.zeros((len(is_new), *old.shape[1:]), np.float32)
    n = min(len(old), len(is_new))
    new_values[:n] = old[:n]
    new_values[is_new] = 0.0
    return new_values


def _keep_path_sums(
    statistics: LabelStatistics, old: SoftmaxTree, new: SoftmaxTree, is_new: Bools
) -> LabelStatistics:
    """Return the statistics for the new tree.

    A label keeps the sums at the nodes of its path from the root down to the first one that has
    changed; below, the sums start again.
    """
    arity = new.child.shape[1]
    depth = int(new.level.max()) + 1
    sums = np.full((len(new.leaf_node), depth, arity), 1 / arity, np.float32)
    counts = np.ones((len(new.leaf_node), depth), np.float32)
    new_paths = _paths(new, depth)
    same = (_paths(old, depth) == new_paths) & (new_paths >= 0)
    same &= ~is_new[np.maximum(new_paths, 0)]
    same = np.logical_and.accumulate(same, axis=1)
    n = min(depth, statistics.counts.shape[1])
    sums[:, :n][same[:, :n]] = statistics.sums[:, :n][same[:, :n]]
    counts[:, :n][same[:, :n]] = statistics.counts[:, :n][same[:, :n]]
    return statistics._replace(sums=sums, counts=counts)


def _paths(tree: SoftmaxTree, depth: int) -> I32:
    """Return int32[K, depth]: the node on each label's path at each level, -1 below its leaf."""
    paths = np.full((len(tree.leaf_node), depth), -1, np.int32)
    node = tree.leaf_node.copy()
    while (node >= 0).any():
        labels = np.flatnonzero(node >= 0)
        levels = tree.level[node[labels]]
        within = levels < depth
        paths[labels[within], levels[within]] = node[labels[within]]
        node[labels] = tree.parent[node[labels]]
    return paths


def settle(state: LearningState) -> None:
    """Set the parameters of all nodes to their initial values.

    Their sums of squared gradients, and the labels' sums of probabilities, are reset too.
    Embeddings, and their sums of squared gradients, do not change.
    """
    for part in (
        state.network.weights,
        state.network.bias,
        state.squares.weights,
        state.squares.bias,
    ):
        part[...] = 0.0
    state.statistics.sums[...] = 1 / state.tree.child.shape[1]
    state.statistics.counts[...] = 1.0
