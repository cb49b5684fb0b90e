"""Trees for probabilistic label trees that are made of the labels' counts alone."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from service.trainers.shape import Shape


def random_shape(labels: NDArray[np.int32], arity: int, seed: int) -> Shape:
    """Return a complete tree whose leaves are the labels in random order.

    Source: Jasinska et al. 2016, section 6. Every inner node has `arity` children, but the last one, which
    may have fewer, and leaves are on two levels at most.

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


def huffman_shape(labels: NDArray[np.int32], counts: NDArray[np.int64], arity: int) -> Shape:
    """Return the tree with the least sum over labels of count * depth.

    Source: Huffman 1952, "generalization of the method": the first merger takes as many nodes as let all
    others be full. Of equal counts the label that comes first is merged first, and labels before mergers.
    One label alone is the root's only child.

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
    order, child_ptr = [heap[0][1]], []
    for node in order:
        child_ptr.append(len(order))
        order.extend(children[node - n] if node >= n else [])
    child_ptr.append(len(order))
    of_node = np.array(order)
    leaf_label = np.full(len(order), -1, np.int32)
    leaf_label[of_node < n] = labels[of_node[of_node < n]]
    return shape_of(np.array(child_ptr, np.int32), leaf_label)


def shape_of(child_ptr: NDArray[np.int32], leaf_label: NDArray[np.int32]) -> Shape:
    """Return the shape of a tree from its children and the labels of its leaves.

    child_ptr   int32[n + 1]  nodes numbered breadth-first, as in Shape
    leaf_label  int32[n]      -1 at inner nodes
    """
    n_nodes = len(leaf_label)
    parents = parents_of(child_ptr).tolist()
    size = (leaf_label >= 0).astype(np.int64).tolist()
    for node in range(n_nodes - 1, 0, -1):
        size[parents[node]] += size[node]
    first = [0] * n_nodes
    taken = [0] * n_nodes
    for node in range(1, n_nodes):
        above = parents[node]
        first[node] = first[above] + taken[above]
        taken[above] += size[node]
    starts = np.array(first)
    is_leaf = leaf_label >= 0
    labels = np.empty(np.count_nonzero(is_leaf), np.int32)
    labels[starts[is_leaf]] = leaf_label[is_leaf]
    return Shape(labels, child_ptr, starts, starts + np.array(size))


def parents_of(child_ptr: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return int32[n]: the parent of each node, -1 at the root."""
    n_nodes = len(child_ptr) - 1
    parents = np.repeat(np.arange(n_nodes, dtype=np.int32), np.diff(child_ptr))
    return np.concatenate([np.array([-1], np.int32), parents])
