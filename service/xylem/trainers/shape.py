"""The shape of a label tree: its nodes and the labels under each, without classifiers."""

import heapq
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import offsets
from xylem.trainers.tree_criteria import parents_of as parents_of
from xylem_store import I32, I64, levels_of


class Shape(NamedTuple):
    """A tree over labels.

    Nodes are numbered breadth-first; the labels under a node are consecutive in `labels`.

    labels     int32[K']      the labels that have a leaf, in the order of the leaves
    child_ptr  int32[n + 1]   children of node i are child_ptr[i] .. child_ptr[i + 1] - 1;
               child_ptr[0] = 1
    first      int64[n]       node i has labels[first[i]] .. labels[last[i] - 1]
    last       int64[n]
    """

    labels: I32
    child_ptr: I32
    first: I64
    last: I64

    @property
    def inner(self) -> I64:
        """Return the nodes that have children, ascending."""
        return np.flatnonzero(np.diff(self.child_ptr))

    @property
    def node_label(self) -> I32:
        """Return int32[n]: the label of each leaf, -1 at inner nodes."""
        is_leaf = np.diff(self.child_ptr) == 0
        return np.where(is_leaf, self.labels[np.where(is_leaf, self.first, 0)], -1).astype(np.int32)

    def below(self, leaf_values: NDArray[Any]) -> I64:
        """Return int64[n]: for each node the sum of a number over the leaves below it.

        leaf_values  the number of each leaf, in the order of the leaves
        """
        sums = offsets(leaf_values)
        return np.asarray(sums[self.last] - sums[self.first], np.int64)

    def child_bounds(self, node: int) -> I64:
        """Return int64[children + 1]: child c has the labels bounds[c] .. bounds[c + 1] - 1."""
        firsts = self.first[self.child_ptr[node] : self.child_ptr[node + 1]]
        return np.append(firsts, self.last[node])


def join(labels: I32, levels: list[I64]) -> Shape:
    """Join successive partitions of the labels into a tree whose leaves are the single labels.

    labels  int32[K'], K' >= 1, in the order of the leaves
    levels  the partition at each level: ascending bounds from 0 to K'. Each partition refines the
            one above it. A part that no level divides has its labels as children; a level that does
            not divide a part is skipped there.
    """
    n = len(labels)
    levels = [*levels, np.arange(n + 1)]
    nodes = [(0, n, 0)]  # the first label of each node, its end, and the level that divides it
    child_ptr = [1]
    for start, stop, depth in nodes:  # all nodes: the loop appends to the list
        for level in range(depth, len(levels)):
            if stop - start == 1 and len(child_ptr) > 1:
                break
            bounds = levels[level]
            inside = bounds[np.searchsorted(bounds, start) : np.searchsorted(bounds, stop, "right")]
            if len(inside) > 2 or (level == len(levels) - 1):
                nodes.extend((first, last, level + 1) for first, last in pairwise(inside.tolist()))
                break
        child_ptr.append(len(nodes))
    first, last, _ = np.ascontiguousarray(np.array(nodes).T)
    return Shape(labels, np.array(child_ptr, np.int32), first, last)


def shape_of(child_ptr: I32, leaf_label: I32) -> Shape:
    """Return the shape of a tree from its children and the labels of its leaves.

    child_ptr   int32[n + 1]  nodes numbered breadth-first, as in Shape
    leaf_label  int32[n]      -1 at inner nodes
    """
    parents = parents_of(child_ptr)
    is_leaf = leaf_label >= 0
    size = is_leaf.astype(np.int64)
    starts = np.zeros(len(leaf_label), np.int64)
    levels = [slice(level.start, level.stop) for level in levels_of(child_ptr, 1)][1:]
    for level in reversed(levels):
        np.add.at(size, parents[level], size[level])
    for level in levels:
        above = parents[level]
        preceding = offsets(size[level])[:-1]
        starts[level] = starts[above] + preceding - preceding[child_ptr[above] - level.start]
    labels = np.empty(np.count_nonzero(is_leaf), np.int32)
    labels[starts[is_leaf]] = leaf_label[is_leaf]
    return Shape(labels, child_ptr, starts, starts + size)


def random_shape(labels: I32, arity: int, seed: int) -> Shape:
    """Return a complete tree whose leaves are the labels in random order.

    Source: Jasinska et al. 2016, section 6. Every inner node has `arity` children, except the last
    one, which may have fewer; the leaves are on at most two levels.

    labels  int32[K'], K' >= 1: the labels that get a leaf
    arity   >= 2
    """
    n_leaves = len(labels)
    n_inner = max(1, -(-(n_leaves - 1) // (arity - 1)))
    n_nodes = n_inner + n_leaves
    child_ptr = np.minimum(1 + arity * np.arange(n_nodes + 1), n_nodes).astype(np.int32)
    leaf_label = np.full(n_nodes, -1, np.int32)
    leaf_label[n_inner:] = np.random.Generator(np.random.PCG64(seed)).permutation(labels)
    return shape_of(child_ptr, leaf_label)


def huffman_shape(labels: I32, counts: I64, arity: int) -> Shape:
    """Return the tree with the least sum over labels of count * depth.

    Source: Huffman 1952, "generalization of the method": the number of nodes that are merged first
    is chosen such that all other mergers take `arity` nodes. For equal counts the first label is
    merged first, and labels before merged nodes. A single label is the only child of the root.

    labels  int32[K'], K' >= 1
    counts  int64[K']  rows of each of these labels
    arity   >= 2
    """
    n = len(labels)
    heap = [(int(count), i) for i, count in enumerate(counts.tolist())]
    heapq.heapify(heap)
    children: list[list[int]] = []
    step = 1 + ((n - 1) % (arity - 1) or arity - 1)
    while len(heap) > 1 or not children:
        merged = [heapq.heappop(heap) for _ in range(min(step, len(heap)))]
        heapq.heappush(heap, (sum(count for count, _ in merged), n + len(children)))
        children.append([i for _, i in merged])
        step = arity
    order = [heap[0][1]]
    child_ptr = []
    for node in order:
        child_ptr.append(len(order))
        order.extend(children[node - n] if node >= n else [])
    child_ptr.append(len(order))
    node_ids = np.array(order)
    leaf_label = np.full(len(order), -1, np.int32)
    leaf_label[node_ids < n] = labels[node_ids[node_ids < n]]
    return shape_of(np.array(child_ptr, np.int32), leaf_label)
