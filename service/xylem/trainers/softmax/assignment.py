"""Reassignment of all labels of a tree to its nodes, from the root down: see `dealing`."""

import numpy as np

from xylem.trainers.softmax.dealing import Dealing, Rule, deal
from xylem.trainers.softmax.tree import LearningState, SoftmaxTree
from xylem_store import F64, I32, I64, U8, inlined, kernel

# Columns of `nodes`, in which nodes are in the order in which they are made.
#
# _SLOT    number of the node in the tree; -1: it has none yet
# _LEVEL   its level
# _PADS    number of padding labels below it, which stand for no label
# _ABOVE   row of the node above it
# _BRANCH  its position among the children of that node
_SLOT, _LEVEL, _PADS, _ABOVE, _BRANCH = range(5)


@inlined
def _number(labels: I32, n_nodes: int, nodes: I64, new_tree: SoftmaxTree) -> tuple[int, U8]:
    """Give numbers to the nodes without one, and write the tree; return as `assign_labels` does."""
    is_used = np.zeros(len(new_tree.child), np.uint8)
    is_new = np.zeros(len(new_tree.child), np.uint8)
    slot = nodes[:, _SLOT]
    for t in range(n_nodes):
        if slot[t] >= 0:
            is_used[slot[t]] = 1
    free = 0
    for t in range(n_nodes):
        if slot[t] < 0:
            while is_used[free]:
                free += 1
            slot[t] = free
            is_used[free] = 1
            is_new[free] = 1
    end = 0
    for t in range(n_nodes):
        node = slot[t]
        end = max(end, node + 1)
        new_tree.level[node] = nodes[t, _LEVEL]
        if t > 0:
            above = slot[nodes[t, _ABOVE]]
            branch = nodes[t, _BRANCH]
            new_tree.parent[node] = above
            new_tree.branch[node] = branch
            new_tree.child[above, branch] = node
    for label in labels:
        node = slot[new_tree.leaf_node[label]]
        new_tree.leaf_node[label] = node
        new_tree.child[node, new_tree.leaf_branch[label]] = -2 - label
    return end, is_new


@kernel
def assign_labels(
    labels: I32, share: F64, rule: Rule, state: LearningState, new_tree: SoftmaxTree
) -> tuple[int, U8]:
    """Reassign all labels from the root down, and write the new tree.

    labels    int32[n], n >= 2: the labels with a leaf, the most frequent first
    share     float64[K]: share of the training rows of each label; > 0 for `labels`
    new_tree  as the old tree, but with max(n, N) nodes, filled with -1. A node at the place of an
              inner node of the old tree keeps its number, and so its parameters; other nodes take
              numbers that became free, then new ones

    Returns (n_nodes, is_new uint8[..]): 1 + the largest number of a node; and 1 for each number
    that belongs to a new node. Cost: O(n M) and O(n log n) a level, and O(n M D) with means of
    labels. Deterministic.
    """
    tree = state.tree
    n = len(labels)
    n_children = tree.child.shape[1]
    work = Dealing(
        p=np.zeros((n, n_children), np.float32),
        g=np.zeros((n, n_children), np.float32),
        d=np.zeros((n, n_children), np.float32),
        n_rows=np.zeros(n, np.int64),
        old_child=np.zeros(n, np.int64),
        best=np.zeros(n, np.int64),
        heap=np.zeros(n, np.int64),
        child=np.zeros(n, np.int64),
        size=np.zeros(n_children, np.int64),
        mass=np.zeros(n_children, np.float64),
        left=np.zeros(2, np.int64),
        room=np.zeros(1, np.float64),
    )
    members = labels.copy()
    sorted_members = labels.copy()
    nodes = np.zeros((n, 5), np.int64)
    span = np.zeros((n, 2), np.int64)
    span[0, 1] = n  # labels members[span[t, 0] : span[t, 1]] are below node t
    nodes[0, _ABOVE] = -1
    nodes[0, _PADS] = (1 - n) % (n_children - 1) if rule.depth == 0 and rule.slack == 0 else 0
    n_nodes = 1
    t = 0
    while t < n_nodes:
        low, high = span[t]
        node_labels = members[low:high]
        node = nodes[t, _SLOT]
        level = nodes[t, _LEVEL]
        deal(node_labels, share, nodes[t, _PADS], node, level, rule, state, work)
        position = low
        for j in range(n_children):
            begin = position
            for i in range(len(node_labels)):
                if work.child[i] == j:
                    sorted_members[position] = node_labels[i]
                    position += 1
            if position - begin == 1:
                new_tree.leaf_node[sorted_members[begin]] = t
                new_tree.leaf_branch[sorted_members[begin]] = j
            elif position - begin > 1:
                old = tree.child[node, j] if node >= 0 else -1
                span[n_nodes, 0] = begin
                span[n_nodes, 1] = position
                nodes[n_nodes, _SLOT] = old if old >= 0 else -1
                nodes[n_nodes, _LEVEL] = level + 1
                nodes[n_nodes, _PADS] = work.size[j] - (position - begin)
                nodes[n_nodes, _ABOVE] = t
                nodes[n_nodes, _BRANCH] = j
                n_nodes += 1
        members[low:high] = sorted_members[low:high]
        t += 1
    return _number(labels, n_nodes, nodes, new_tree)
