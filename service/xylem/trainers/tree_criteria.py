"""Criteria of decision trees: the entropies of their leaves, and measures of a node's split.

Source: Choromanska and Jain 2019, "Extreme Multiclass Classification Criteria" (sections 3 and 4),
for trees of two children a node; the objective of wider nodes is that of Jernite et al. 2017
(equation 6), which for two children is the same. Pure functions of the labels that were counted at
nodes.

Conventions: there are n nodes, breadth-first from the root, with `child_ptr` as in
`xylem_store.ensemble.Tree`. The *share* of a label at a node is its count over the sum of the
node's counts, so a row with several labels counts once for each of them. The *weight* of a leaf is
its sum over that of all leaves: a row that reaches several leaves counts in each. A node without
counts weighs nothing.

`tree_labels` lists the labels below the nodes of a label tree, which shows what the tree has put
together (Learned trees, table 4).
"""

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store import F64, I32, I64, TreeEnsemble, levels_of

# The default constant of the modified Gini entropy; the paper requires more than 2.
MODIFIED_GINI_C = 3.0


# Bytes of a tree's weight in equation 20, as `xylem estimate` counts: feature, child and value.
WEIGHT_BYTES = 12

# Bytes of a weight of flat one-vs-rest: feature and value.
FLAT_WEIGHT_BYTES = 8


class NodeCounts(NamedTuple):
    """How often each label was counted at each node.

    ptr    int64[n + 1]   node i's entries are ptr[i] .. ptr[i + 1] - 1
    label  int32[..]      >= 0, without repeats within a node
    value  float64[..]    how often, > 0
    """

    ptr: I64
    label: I32
    value: F64

    @property
    def node(self) -> I64:
        """Return int64[..]: the node of each entry."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))

    @property
    def total(self) -> F64:
        """Return float64[n]: the sum of each node's counts."""
        return _sums(self.node, self.value, len(self.ptr) - 1)


class Criteria(NamedTuple):
    """The criteria of each node taken alone, float64[n]; 0 at a node without counts.

    shannon        sum over labels of share * ln(1 / share), in [0, ln K]
    gini           sum of share * (1 - share), in [0, 1 - 1/K]
    modified_gini  sum of sqrt(share * (C - share)), in [sqrt(C - 1), sqrt(K C - 1)]
    error          1 - the greatest share: the share of labels that are wrong if the node answers
                   with its commonest label
    """

    shannon: F64
    gini: F64
    modified_gini: F64
    error: F64


class Splits(NamedTuple):
    """Measures of the split of each inner node.

    node       int64[m]    the inner nodes, ascending
    weight     float64[m]  the sum of the counts at their children
    objective  float64[m]  J, in [0, 1]: (2 / M) * sum over children j and labels i of |share_i P_j
               - P(j, i)|; for two children 2 * sum over i of |share_i P(h > 0) - P(h > 0, i)|
    balance    float64[m]  beta: the share of the counts that went to the last child; for two
               children it is from 0.5 * (1 - sqrt(1 - J)) to 0.5 * (1 + sqrt(1 - J))
    purity     float64[m]  alpha: the share of the counts that went to another child than most of
               their label did; 0 for a pure split
    """

    node: I64
    weight: F64
    objective: F64
    balance: F64
    purity: F64


def criteria_of(counts: NodeCounts, c: float = MODIFIED_GINI_C) -> Criteria:
    """Return the criteria of every node. c > 2. Cost: one pass over the entries."""
    n = len(counts.ptr) - 1
    node = counts.node
    share = counts.value / counts.total[node]
    greatest = np.zeros(n)
    np.maximum.at(greatest, node, share)
    return Criteria(
        shannon=_sums(node, -share * np.log(share), n),
        gini=_sums(node, share * (1 - share), n),
        modified_gini=_sums(node, np.sqrt(share * (c - share)), n),
        error=np.where(np.diff(counts.ptr) > 0, 1 - greatest, 0.0),
    )


def leaf_criteria(counts: NodeCounts) -> dict[str, float]:
    """Return the criteria of a set of leaves by name: sums of weight * criterion; 0 without counts.

    counts  of the leaves alone

    The error is at most the Shannon entropy * log2(e).
    """
    total = counts.total
    weight = total / max(total.sum(), np.finfo(np.float64).tiny)
    return {name: float(weight @ values) for name, values in criteria_of(counts)._asdict().items()}


def counts_of(n_nodes: int, node: I64, label: I32, count: F64) -> NodeCounts:
    """Return NodeCounts of (node, label, count) in any order; repeats are added."""
    n_labels = int(label.max(initial=-1)) + 1
    cells, cell_of_entry = np.unique(node * np.int64(max(1, n_labels)) + label, return_inverse=True)

    ptr = np.searchsorted(cells // max(1, n_labels), np.arange(n_nodes + 1)).astype(np.int64)
    return NodeCounts(
        ptr, (cells % max(1, n_labels)).astype(np.int32), _sums(cell_of_entry, count, len(cells))
    )


def criteria_by_splits(child_ptr: I32, counts: NodeCounts) -> dict[str, NDArray[Any]]:
    """Return the criteria while the tree is grown again from its root, the heaviest leaf first.

    The keys are "splits", int64[..]: 0, 1, 2 ...; and each of Criteria, float64[..]: the sum over
    the leaves so far of weight * criterion.

    counts  of every node

    Source: section 4.1, where "the leaf node with the highest weight" is split next; among equal
    weights it is the smaller node. Cost: O(entries + n log n).
    """
    points = _means_by_splits(
        child_ptr, counts.total, counts.total, np.stack(list(criteria_of(counts))) * counts.total
    )
    return {
        "splits": np.arange(points.shape[1]),
        **dict(zip(Criteria._fields, points, strict=True)),
    }


def errors_by_splits(child_ptr: I32, counts: NodeCounts, test: NodeCounts) -> F64:
    """Return the test error while the tree is grown again, at the splits of `criteria_by_splits`.

    A leaf answers with the commonest of its training labels (the smallest among equals); the error
    is the share of the test rows' labels that it gets wrong. For a leaf that no training row
    reached, all labels are wrong.
    """
    answer = np.full(len(counts.ptr) - 1, -1)
    order = np.lexsort((-counts.label, counts.value, counts.node))
    answer[counts.node[order]] = counts.label[order]  # the last entry of a node wins
    correct = _sums(
        test.node, np.where(answer[test.node] == test.label, test.value, 0.0), len(answer)
    )
    (errors,) = _means_by_splits(child_ptr, counts.total, test.total, (test.total - correct)[None])
    return np.asarray(errors)


def _means_by_splits(child_ptr: I32, size: F64, weight: F64, sums: F64) -> F64:
    """Return sums over weights of the leaves while the largest leaf is split next.

    The result is float64[m, splits + 1].

    size, weight  float64[n] of each node
    sums          float64[m, n]
    """
    n_children = np.diff(child_ptr)
    total = weight[0]
    of_leaves = sums[:, 0].copy()
    points = [of_leaves / max(total, np.finfo(np.float64).tiny)]
    heap = [(-size[0], 0)] if n_children[0] else []
    while heap:
        _, node = heapq.heappop(heap)
        children = slice(int(child_ptr[node]), int(child_ptr[node + 1]))
        total += weight[children].sum() - weight[node]
        of_leaves = of_leaves + sums[:, children].sum(axis=1) - sums[:, node]
        points.append(np.maximum(of_leaves, 0) / max(total, np.finfo(np.float64).tiny))
        for child in range(children.start, children.stop):
            if n_children[child]:
                heapq.heappush(heap, (-size[child], child))
    return np.array(points).T


def splits_of(child_ptr: I32, counts: NodeCounts) -> Splits:
    """Return objective, balance and purity of every inner node whose children have counts.

    counts  of every node; only those of children are used

    Cost: O(entries log entries).
    """
    n = len(child_ptr) - 1
    parent = parents_of(child_ptr).astype(np.int64)
    below = parent[counts.node] >= 0
    child = counts.node[below]
    label = counts.label[below]
    count = counts.value[below]
    node = parent[child]
    weight = _sums(node, count, n)
    labels = counts_of(n, node, label, count)  # the sums over a node's children
    n_labels = int(label.max(initial=-1)) + 1
    cell = labels.node * max(1, n_labels) + labels.label
    position = np.searchsorted(cell, node * max(1, n_labels) + label)
    share = labels.value[position] / weight[node]
    to_child = counts.total / np.where(weight[parent] > 0, weight[parent], 1)
    entry_gap = np.abs(share * to_child[child] - count / weight[node])
    # labels without a count at a child add share_i * P_j each
    missing = to_child * (1 - _sums(child, share, n))
    gap = _sums(node, entry_gap, n) + _sums(parent[1:], missing[1:], n)
    largest = np.zeros(len(labels.value))
    np.maximum.at(largest, position, count)

    inner = np.flatnonzero(weight > 0)
    return Splits(
        node=inner,
        weight=weight[inner],
        objective=np.clip(2 / np.diff(child_ptr)[inner] * gap[inner], 0.0, 1.0),
        balance=to_child[child_ptr[inner + 1] - 1],
        purity=np.maximum(1 - _sums(labels.node, largest, n)[inner] / weight[inner], 0.0),
    )


def depths(child_ptr: I32, n_roots: int = 1) -> I64:
    """Return int64[n]: the number of edges from its root to each node."""
    levels = list(levels_of(child_ptr, n_roots))
    return np.repeat(np.arange(len(levels)), list(map(len, levels)))


def shares_by_depth(child_ptr: I32, used: NDArray[Any], weight: NDArray[Any]) -> F64:
    """Return sums of weight * share, and of weight, over the inner nodes of each depth from 1.

    The sums are float64[d, 2]. A node's share is its `used` divided by that of its parent.
    """
    inner = np.flatnonzero(np.diff(child_ptr))[1:]
    depth = depths(child_ptr)[inner] - 1
    share = used[inner] / np.maximum(1, used[parents_of(child_ptr)[inner]])
    n = int(depth.max(initial=-1)) + 1
    return np.stack(
        [_sums(depth, weight[inner] * share, n), _sums(depth, weight[inner], n)], axis=1
    )


def splits_by_depth(child_ptr: I32, counts: NodeCounts) -> list[dict[str, float]]:
    """Return a line for each depth with inner nodes: their number, and means weighted by counts.

    `smaller_side` is the mean of min(beta, 1 - beta): 0.5 if all splits are balanced (two
    children).
    """
    splits = splits_of(child_ptr, counts)
    depth = depths(child_ptr)
    lines = []
    for d in range(int(depth[splits.node].max(initial=-1)) + 1):
        at_depth = depth[splits.node] == d
        weight = splits.weight[at_depth] / splits.weight[at_depth].sum()
        smaller = np.minimum(splits.balance[at_depth], 1 - splits.balance[at_depth])
        lines.append(
            {
                "depth": d,
                "nodes": int(np.count_nonzero(at_depth)),
                "objective": float(weight @ splits.objective[at_depth]),
                "smaller_side": float(weight @ smaller),
                "purity": float(weight @ splits.purity[at_depth]),
            }
        )
    return lines


def _sums(group: NDArray[Any], values: F64, n: int) -> F64:
    """Return float64[n]: the sum of the values of each group."""
    return np.bincount(group, values, n).astype(np.float64, copy=False)


def parents_of(child_ptr: I32) -> I32:
    """Return int32[n]: the parent of each node, -1 at the root."""
    parents = np.repeat(np.arange(len(child_ptr) - 1, dtype=np.int32), np.diff(child_ptr))
    return np.concatenate([np.array([-1], np.int32), parents])


class TreeNodeLabels(NamedTuple):
    """A node, and the labels below it.

    place     the positions of the nodes from the root's child down to it, counted from 1; () is the
              root
    n_labels  number of labels below it
    n_rows    number of training rows with these labels; a row counts once for each of its labels
    labels    int64[<= n]  the labels with the most rows, in descending order
    """

    place: tuple[int, ...]
    n_labels: int
    n_rows: int
    labels: I64


def tree_labels(
    ensemble: TreeEnsemble, counts: I64, *, tree: int, depth: int, n_labels: int
) -> list[TreeNodeLabels]:
    """Return the inner nodes of a label tree down to a depth, parents before children.

    counts    int64[K]  rows of each label
    tree      its number, from 0
    depth     0: the root alone
    n_labels  the number of labels listed for each node, at most

    Cost: a sort of the labels, and for each level the ways of the labels up to it.
    """
    leaves = ensemble.label_leaf[tree]
    by_rows = np.argsort(-counts, kind="stable")

    def walk(node: int, place: tuple[int, ...], below: I64) -> Iterator[TreeNodeLabels]:
        yield TreeNodeLabels(place, len(below), int(counts[below].sum()), below[:n_labels])
        if len(place) == depth:
            return
        first, end = ensemble.child_ptr[node : node + 2].tolist()
        ancestor = leaves[below]
        while (ancestor >= end).any():  # nodes of deeper levels have greater numbers
            ancestor = np.where(ancestor >= end, ensemble.parent[ancestor], ancestor)
        for child in np.unique(ancestor).tolist():
            if ensemble.node_chunk[child] >= 0:
                yield from walk(child, (*place, child - first + 1), below[ancestor == child])

    return list(walk(tree, (), by_rows[leaves[by_rows] >= 0]))
