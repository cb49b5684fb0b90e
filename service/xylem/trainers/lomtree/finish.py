"""The results of a grown LOMtree: counts of its leaves, chunks, histograms, the report, and its
state as arrays.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from xylem.base import offsets, ranges
from xylem.trainers.lomtree.learning import route_rows
from xylem.trainers.lomtree.tables import (
    contents,
    n_refused,
)
from xylem.trainers.lomtree.tree import (
    COUNT,
    LEAF,
    N_ROWS,
    N_SPLITS,
    N_SWAPS,
    ROOT,
    SCALE,
    WEIGHT,
    OnlineTree,
)
from xylem.trainers.representations import pieces_of
from xylem.trainers.source import TrainingSet
from xylem.trainers.tree_criteria import (
    NodeCounts,
    counts_of,
    criteria_by_splits,
    depths,
    splits_by_depth,
)
from xylem_store import F32, I32, I64, Chunk

_GROWTH_POINTS = 100  # most points of the criteria against the number of splits in a report


_PIECE = 1 << 16  # the weights of about this many keys are converted at once, or those of one node


class LeafCounts(NamedTuple):
    """The counts of the leaves of a tree, by position.

    rows    int64[leaves]  number of rows
    labels  number of rows with each label
    """

    rows: I64
    labels: NodeCounts


def breadth_first(tree: OnlineTree) -> tuple[I64, I32]:
    """Return (the nodes breadth-first, child_ptr of xylem_store.ensemble.Tree)."""
    left = tree.left
    right = tree.right
    level = np.array([tree.state[ROOT]])
    levels = []
    while len(level):
        levels.append(level)
        inner = level[left[level] != LEAF]
        level = np.stack([left[inner], right[inner]], axis=1).ravel().astype(np.int64)
    order = np.concatenate(levels)
    child_ptr = np.concatenate([[1], 1 + np.cumsum(2 * (left[order] != LEAF))])
    return order, child_ptr.astype(np.int32)


def count_leaves(tree: OnlineTree, leaves: I64) -> LeafCounts:
    """Return the counts that the leaves collected while the tree grew."""
    leaf, slots = contents(tree.classes, leaves)
    label = tree.classes.key[slots]
    count = tree.classes.value[slots, COUNT]
    return LeafCounts(tree.n_rows[leaves], counts_of(len(leaves), leaf, label, count))


def recount_leaves(tree: OnlineTree, leaves: I64, data: TrainingSet) -> LeafCounts:
    """Return the counts of these rows at the leaves that they reach in the final tree."""
    rows, labels = data
    row_leaf = np.empty(rows.n_rows, np.int32)
    waiting = np.empty((len(tree.left) + 1, 2), np.int64)
    route_rows(tree, rows, np.arange(rows.n_rows, dtype=np.int32), waiting, row_leaf)
    place = np.zeros(len(tree.left), np.int64)
    place[leaves] = np.arange(len(leaves))
    leaf = place[row_leaf]
    n_labels = np.diff(labels.indptr)
    n_rows = np.bincount(leaf[n_labels > 0], minlength=len(leaves))
    ones = np.ones(len(labels.indices))
    return LeafCounts(
        n_rows, counts_of(len(leaves), np.repeat(leaf, n_labels), labels.indices, ones)
    )


def chunks_of(tree: OnlineTree, order: I64) -> list[Chunk | None]:
    """Return the chunk of each node, None for a leaf.

    The left child has no weights; those of the right child are the regressor h.
    """
    places = np.flatnonzero(tree.left[order] != LEAF)
    pool = tree.weights
    inner = order[places]
    n_max = int(pool.used[order].max())
    row_ptr = np.arange(n_max + 1, dtype=np.int64)
    child = np.ones(n_max, np.int32)
    bias = np.zeros((len(inner), 2), np.float32)
    bias[:, 1] = tree.bias[inner, WEIGHT]
    chunks: list[Chunk | None] = [None] * len(order)
    for begin, end in pairwise(pieces_of(offsets(pool.used[inner]), _PIECE)):
        table, slots = contents(pool, inner[begin:end])
        weight = pool.value[slots, WEIGHT] / pool.value[slots, SCALE]
        nonzero = np.flatnonzero(weight)
        features = pool.key[slots[nonzero]]
        weight = weight[nonzero]
        ends = np.searchsorted(table[nonzero], np.arange(end - begin + 1)).tolist()
        for node, (first, last) in enumerate(pairwise(ends), begin):
            n = last - first
            entries = features[first:last], row_ptr[: n + 1], child[:n], weight[first:last]
            chunks[places[node]] = Chunk(*entries, bias[node])
    return chunks


def report_of(tree: OnlineTree, child_ptr: I32, counts: NodeCounts, rows: I64) -> dict[str, Any]:
    """Return the report of a training.

    counts  the counts of labels of each node
    rows    int64[n]  the number of rows of each node
    """
    growth = criteria_by_splits(child_ptr, counts)
    last = len(growth["splits"]) - 1
    points = np.unique(np.linspace(0, last, min(last + 1, _GROWTH_POINTS)).astype(np.int64))
    depth = depths(child_ptr)
    is_leaf = np.diff(child_ptr) == 0
    return {
        "rows": int(tree.state[N_ROWS]),
        "splits": int(tree.state[N_SPLITS]),
        "swaps": int(tree.state[N_SWAPS]),
        "depth": int(depth.max()),
        "mean_depth": float((depth * rows)[is_leaf].sum() / max(1, rows[is_leaf].sum())),
        "weights_left_out": n_refused(tree.weights),
        "labels_left_out": n_refused(tree.classes),
        "criteria_by_splits": {name: values[points].tolist() for name, values in growth.items()},
        "splits_by_depth": splits_by_depth(child_ptr, counts),
    }


def rows_of_nodes(child_ptr: I32, at_leaves: I64) -> I64:
    """Return int64[n]: the number of rows of each node.

    at_leaves  int64[leaves]  the rows of the leaves, by position
    """
    rows = np.zeros(len(child_ptr) - 1, np.int64)
    rows[np.diff(child_ptr) == 0] = at_leaves
    for node in np.flatnonzero(np.diff(child_ptr))[::-1].tolist():
        rows[node] = rows[child_ptr[node] : child_ptr[node + 1]].sum()
    return rows


def histograms_of(
    child_ptr: I32, counts: NodeCounts, rows: I64, n_kept: int
) -> list[tuple[I32, F32] | None]:
    """Return (labels, their shares of the rows) of each leaf, None for inner nodes.

    A leaf has its n_kept most frequent labels, of equal ones those with the smallest ids. A leaf
    that no row reached has the labels of the nearest node above it with rows.
    """
    source = np.arange(len(rows))
    for node in np.flatnonzero(np.diff(child_ptr)).tolist():
        for child in range(child_ptr[node], child_ptr[node + 1]):
            if not rows[child]:
                source[child] = source[node]
    leaves = np.flatnonzero(np.diff(child_ptr) == 0)
    source_nodes = source[leaves]
    n_entries = np.diff(counts.ptr)[source_nodes]
    leaf = np.repeat(np.arange(len(leaves)), n_entries)
    begins = offsets(n_entries)
    entry = ranges(counts.ptr[source_nodes], n_entries)
    label = counts.label[entry]
    count = counts.value[entry]
    best = np.lexsort((label, -count, leaf))
    best = best[np.arange(len(leaf)) - begins[leaf] < n_kept]
    best = best[np.lexsort((label[best], leaf[best]))]
    share = (count[best] / np.maximum(1, rows[source_nodes])[leaf[best]]).astype(np.float32)
    ends = np.cumsum(np.minimum(n_entries, n_kept)).tolist()
    histograms: list[tuple[I32, F32] | None] = [None] * len(rows)
    for node, first, last in zip(leaves.tolist(), [0, *ends], ends, strict=False):
        histograms[node] = label[best[first:last]], share[first:last]
    return histograms
