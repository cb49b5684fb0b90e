"""The tree of LOMtree: its nodes, the rule for splitting a leaf, and the split itself."""

from typing import Any, NamedTuple

import numpy as np

from xylem.trainers.lomtree.tables import (
    LINE_BYTES,
    TABLE,
    Integer,
    Pool,
    aligned,
    make_pool,
    release,
)
from xylem_store import (
    F32,
    F64,
    I32,
    I64,
    nonallocating_inlined,
    nonallocating_kernel,
    prefetch,
)

LEAF = -1

# Positions in `OnlineTree.state`.
ROOT, N_NODES, N_SPLITS, N_SWAPS, N_ROWS = range(5)

# Positions of the values of a weight: v, H, s. A feature with value x adds v * x / s to the
# score.
WEIGHT, SQUARES, SCALE = range(3)

# Positions of the values of a class at a node: number of rows counted [l], number of rows scored
# [n], sum of their scores [m].
COUNT, N_SCORED, SCORES = range(3)

# The fields of a node without the contents of its tables, in two cache lines.
_NODE = np.dtype(
    [
        *((name, np.int32) for name in ("parent", "left", "right", "unused_word")),
        *((name, TABLE) for name in ("weights", "classes")),
        ("bias", np.float32, 2),
        *(
            (name, np.int64)
            for name in ("n_trained", "least", "n_rows", "n_counted", "most", "n_scored")
        ),
        *((name, np.float64) for name in ("score", "norm", "unused")),
    ]
)

NODE_BYTES = _NODE.itemsize

_NODE_WORDS = NODE_BYTES // 8
_LINE_WORDS = LINE_BYTES // 8

# A leaf splits only if its sibling has at least WAIT rows, or 1 / WAIT of the leaf's rows.
#
# Otherwise the split above them has separated nothing yet, and a split of the leaf would not
# separate more. On debtags-src, whose rows have several labels, the mean depth of 2,400 leaves was
# 139 without this rule.
WAIT = 16


class OnlineTree(NamedTuple):
    """A tree that learns, with at most N nodes in no particular order.

    The arrays of length N are views of `nodes`. Letters in brackets are names of the paper.

    parent      int32[N]    -1 at the root
    left        int32[N]    child for h(x) <= 0; LEAF at a leaf
    right       int32[N]    child for h(x) > 0
    least       int64[N]    [C] at a leaf: rows that reached it, and those that it got from its
                            parent when it was made; at an inner node: the least of its leaves
    n_rows      int64[N]    rows counted since the node was made
    n_counted   int64[N]    labels of these rows, with repeats
    most        int64[N]    rows of the most frequent label
    score       float64[N]  sum of scores over rows and their labels, since the node has children
    n_scored    int64[N]    number of these scores: score / n_scored is the mean score [E]
    bias        float32[N, 2]  v and H of the constant feature
    norm        float64[N]  sum of the squares of scaled values, over the rows trained on
    n_trained   int64[N]    number of rows trained on
    nodes       int64[N * 16]  _NODE, node by node, so that the values of a node share cache lines
    state       int64[6]    root, number of nodes, splits, swaps and rows learnt; the last one is
                            not used
    weights     the weights of the nodes' regressors, float32 (v, H, s) by feature
    classes     the figures of each class at each node, float64 (l, n, m) by label
    """

    parent: I32
    left: I32
    right: I32
    least: I64
    n_rows: I64
    n_counted: I64
    most: I64
    score: F64
    n_scored: I64
    bias: F32
    norm: F64
    n_trained: I64
    nodes: I64
    state: I64
    weights: Pool
    classes: Pool


class Budget(NamedTuple):
    """The limits and options of learning.

    splits           most inner nodes
    swap_resistance  [R_S] a leaf takes the nodes of the least-used leaf if the number of its rows
                     without its most frequent label is more than this many times the rows of the
                     least-used leaf
    step             learning rate of the regressors
    """

    splits: int
    swap_resistance: float
    step: float


def make_tree(n_nodes: int, weight_slots: int, class_slots: int) -> OnlineTree:
    """Return a tree that is one leaf without rows, with space for n_nodes nodes."""
    nodes = aligned(n_nodes * NODE_BYTES).view(_NODE)
    nodes[:] = np.zeros(1, _NODE)
    nodes["parent"] = -1
    nodes["left"] = LEAF
    nodes["right"] = LEAF
    tree = OnlineTree(
        **{name: nodes[name] for name in OnlineTree._fields[:-4]},
        nodes=nodes.view(np.int64),
        state=np.zeros(6, np.int64),
        weights=make_pool(nodes["weights"], weight_slots, np.float32),
        classes=make_pool(nodes["classes"], class_slots, np.float64),
    )
    tree.state[N_NODES] = 1
    return tree


@nonallocating_inlined
def _set_leaf(tree: OnlineTree, node: Integer, parent: Integer) -> None:
    """Make a node a leaf without any rows [SetNode]."""
    release(tree.weights, node)
    release(tree.classes, node)
    tree.parent[node] = parent
    tree.left[node] = LEAF
    tree.right[node] = LEAF
    tree.n_rows[node] = 0
    tree.n_counted[node] = 0
    tree.most[node] = 0
    tree.score[node] = 0.0
    tree.n_scored[node] = 0
    tree.bias[node, WEIGHT] = 0.0
    tree.bias[node, SQUARES] = 0.0
    tree.norm[node] = 0.0
    tree.n_trained[node] = 0


@nonallocating_inlined
def refresh_least(tree: OnlineTree, node: Integer) -> None:
    """Update `least` of a node and of the nodes above it [UpdateC]."""
    while node >= 0:
        least = min(tree.least[tree.left[node]], tree.least[tree.right[node]])
        if least == tree.least[node]:
            return
        tree.least[node] = least
        node = np.int64(tree.parent[node])


@nonallocating_kernel
def _cut_out(tree: OnlineTree, leaf: Integer) -> Any:
    """Remove a leaf and its parent from the tree; the leaf's sibling takes the parent's place.

    Returns the parent. The leaf must not be the root.
    """
    parent = np.int64(tree.parent[leaf])
    above = np.int64(tree.parent[parent])
    sibling = np.int64(tree.right[parent] if tree.left[parent] == leaf else tree.left[parent])
    tree.parent[sibling] = above
    if above < 0:
        tree.state[ROOT] = sibling
    else:
        if tree.left[above] == parent:
            tree.left[above] = sibling
        else:
            tree.right[above] = sibling
        refresh_least(tree, above)
    return parent


@nonallocating_inlined
def may_split(tree: OnlineTree, leaf: Integer, budget: Budget) -> Any:
    """Return whether a leaf may be split.

    Its rows must have different labels, its sibling must have enough rows (WAIT), and there must be
    nodes for its children: new ones, or those of the least-used leaf.
    """
    if tree.n_counted[leaf] == tree.classes.used[leaf] * tree.n_rows[leaf]:
        return False  # all rows have the same labels
    parent = np.int64(tree.parent[leaf])
    if parent >= 0:
        sibling = np.int64(tree.left[parent]) + np.int64(tree.right[parent]) - leaf
        if WAIT * tree.n_rows[sibling] < min(tree.n_rows[leaf], WAIT * WAIT):
            return False
    if tree.state[N_SPLITS] < budget.splits:
        return True
    if tree.state[N_SPLITS] == 0:
        return False
    least = tree.least[tree.state[ROOT]]
    return tree.least[leaf] - tree.most[leaf] > budget.swap_resistance * (least + 1)


@nonallocating_kernel
def split_leaf(tree: OnlineTree, leaf: Integer, budget: Budget) -> None:
    """Give a leaf two children: new ones, or the least-used leaf and its parent [Swap]."""
    if tree.state[N_SPLITS] < budget.splits:
        left = np.int64(tree.state[N_NODES])
        right = left + 1
        tree.state[N_NODES] += 2
        tree.state[N_SPLITS] += 1
    else:
        left = np.int64(tree.state[ROOT])
        while tree.left[left] != LEAF:  # to a leaf with the fewest rows; of several, the leftmost
            left_child = np.int64(tree.left[left])
            right_child = np.int64(tree.right[left])
            left = left_child if tree.least[left_child] <= tree.least[right_child] else right_child
        right = np.int64(_cut_out(tree, left))
        tree.state[N_SWAPS] += 1
    _set_leaf(tree, left, leaf)
    _set_leaf(tree, right, leaf)
    tree.left[leaf] = left
    tree.right[leaf] = right
    tree.least[left] = tree.least[leaf] // 2
    tree.least[right] = tree.least[leaf] - tree.least[left]
    refresh_least(tree, np.int64(leaf))


@nonallocating_inlined
def child_of(tree: OnlineTree, node: Integer, score: float) -> Any:
    """Return the child to which a row of this score goes: the right one if h(x) > 0."""
    return np.int64(tree.right[node] if score > 0.0 else tree.left[node])


@nonallocating_inlined
def fetch_children(tree: OnlineTree, node: Integer) -> None:
    """Prefetch the fields of a node's children."""
    for child in (np.int64(tree.left[node]), np.int64(tree.right[node])):
        prefetch(tree.nodes, child * _NODE_WORDS)
        prefetch(tree.nodes, child * _NODE_WORDS + _LINE_WORDS)
