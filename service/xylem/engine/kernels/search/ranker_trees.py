"""The trees of a ranker, evaluated for a vector of candidates at once.

A tree's leaves are bits, the leftmost leaf the lowest bit. Each inner node clears the bits of the
leaves below the child that a candidate does not go to. After all nodes, the lowest bit that is left
is the leaf where a walk from the root ends. So a node takes a comparison and an "and"; the order of
the nodes does not matter, and no branch depends on the data.

Source: Lucchese et al. 2015, "QuickScorer: a fast algorithm to rank documents with additive
ensembles of regression trees", section 3. Unlike there, all nodes are evaluated: they are so few
that vectors of candidates save more.
"""

from typing import NamedTuple

import numpy as np

from xylem.base import offsets
from xylem.engine.kernels.search.scorer import place
from xylem_store import (
    F32_1,
    F32_2,
    I32_1,
    LANES,
    Ranker,
    handle,
    nonallocating_inlined as inlined,
    vadd,
    vall,
    vfirst,
    vkeep,
    vload,
    vstore,
)

# Candidates whose features are made, and sent down a tree, at once, so that they stay in the
# caches.
BLOCK = 64


@handle
class RankerTrees(NamedTuple):
    """T trees with N inner nodes and L leaves.

    node_ptr   int32[T + 1]  tree t has the inner nodes node_ptr[t] .. node_ptr[t + 1] - 1
    leaf_ptr   int32[T + 1]  tree t has the leaves leaf_ptr[t] .. leaf_ptr[t + 1] - 1, from left to
               right
    column     int32[N]      where a node's feature begins in a matrix float32[F, BLOCK]
    threshold  float32[N]    the node's threshold
    leaf_mask  int32[N]      the bits of the leaves that remain possible if the feature is above the
               threshold
    value      float32[L]    the values of the leaves
    """

    node_ptr: I32_1
    leaf_ptr: I32_1
    column: I32_1
    threshold: F32_1
    leaf_mask: I32_1
    value: F32_1


def trees_of(ranker: Ranker) -> RankerTrees:
    """Return a ranker's trees.

    A tree has at most NODES_MAX nodes, so that 32 bits suffice for its leaves.
    """
    is_inner = ranker.child != np.arange(len(ranker.child))
    inner = np.flatnonzero(is_inner)
    leaf = np.flatnonzero(~is_inner)
    low = ranker.child[inner]
    child = ranker.child.tolist()
    n_below = [1] * len(child)  # the number of leaves below each node
    first = [0] * len(child)  # the leftmost leaf below each node
    for node in inner[::-1].tolist():
        n_below[node] = n_below[child[node]] + n_below[child[node] + 1]
    for node in inner.tolist():
        first[child[node]] = first[node]
        first[child[node] + 1] = first[node] + n_below[child[node]]
    leaf_ptr = offsets(~is_inner)[ranker.tree_ptr]
    value = np.empty(len(leaf), np.float32)
    value[np.repeat(leaf_ptr[:-1], np.diff(leaf_ptr)) + np.array(first, np.int64)[leaf]] = (
        ranker.value[leaf]
    )
    low_bits = np.left_shift(1, np.array(n_below, np.int64)[low]) - 1
    return RankerTrees(
        node_ptr=offsets(is_inner)[ranker.tree_ptr].astype(np.int32),
        leaf_ptr=leaf_ptr.astype(np.int32),
        column=ranker.feature[inner] * np.int32(BLOCK),
        threshold=ranker.threshold[inner],
        leaf_mask=(~np.left_shift(low_bits, np.array(first, np.int64)[inner]))
        .astype(np.uint32)
        .view(np.int32),
        value=value,
    )


@inlined
def add_trees(n: int, trees: RankerTrees, matrix: F32_2, margin: F32_1) -> None:
    """Add the trees' values for the first n columns of `matrix`, float32[F, BLOCK], to `margin`.

    Elements of `margin` behind the first n, up to whole pairs of vectors, get undefined values.
    """
    for tree in range(len(trees.leaf_ptr) - 1):
        first = trees.node_ptr[tree]
        last = trees.node_ptr[tree + 1]
        leaf = trees.leaf_ptr[tree]
        for i in range(0, n, 2 * LANES):
            first_masks = second_masks = vall()
            for node in range(first, last):
                index = place(node)
                column = trees.column[index] + i
                threshold = trees.threshold[index]
                bits = trees.leaf_mask[index]
                first_masks = vkeep(first_masks, vload(matrix, column), threshold, bits)
                second_masks = vkeep(second_masks, vload(matrix, column + LANES), threshold, bits)
            vstore(margin, i, vadd(vload(margin, i), vfirst(first_masks, trees.value, leaf)))
            j = i + LANES
            vstore(margin, j, vadd(vload(margin, j), vfirst(second_masks, trees.value, leaf)))
