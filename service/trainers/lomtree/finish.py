"""What a grown LOMtree becomes: counts of its leaves, chunks, histograms and figures for the report."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from model_store.compiled.handles import F32, I32, I64
from model_store.ensemble import Chunk
from service.base.rows import offsets, ranges
from service.evaluation.tree_criteria import (
    NodeCounts,
    counts_of,
    criteria_by_splits,
    depths,
    splits_by_depth,
)
from service.trainers.lomtree.learning import route_rows
from service.trainers.lomtree.tables import contents, n_refused
from service.trainers.lomtree.tree import (
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
from service.trainers.representations import pieces_of
from service.trainers.source import TrainingSet

_GROWTH_POINTS = 100
"""Points of the criteria against the number of splits that a report keeps."""


_PIECE = 1 << 16
"""The weights of so many keys are looked at together, or those of one node."""


class LeafCounts(NamedTuple):
    """What was counted at the leaves of a tree, by position: int64[leaves] rows, and those of each label."""

    rows: I64
    labels: NodeCounts


def breadth_first(tree: OnlineTree) -> tuple[I64, I32]:
    """Return (the nodes breadth-first, child_ptr of model_store.ensemble.Tree)."""
    left, right = tree.left, tree.right
    level = np.array([tree.state[ROOT]])
    levels = []
    while len(level):
        levels.append(level)
        inner = level[left[level] != LEAF]
        level = np.stack([left[inner], right[inner]], axis=1).ravel().astype(np.int64)
    order = np.concatenate(levels)
    child_ptr = np.concatenate([[1], 1 + np.cumsum(2 * (left[order] != LEAF))])
    return order, child_ptr.astype(np.int32)


def counted_at(tree: OnlineTree, leaves: I64) -> LeafCounts:
    """Return what the leaves have counted while the tree grew."""
    leaf, slots = contents(tree.classes, leaves)
    label, count = tree.classes.key[slots], tree.classes.value[slots, COUNT]
    return LeafCounts(tree.n_rows[leaves], counts_of(len(leaves), leaf, label, count))


def recounted_at(tree: OnlineTree, leaves: I64, data: TrainingSet) -> LeafCounts:
    """Return what the leaves count of these rows, which go down the tree as it is now."""
    rows, labels = data
    reached = np.empty(rows.n_rows, np.int32)
    waiting = np.empty((len(tree.left) + 1, 2), np.int64)
    route_rows(tree, rows, np.arange(rows.n_rows, dtype=np.int32), waiting, reached)
    place = np.zeros(len(tree.left), np.int64)
    place[leaves] = np.arange(len(leaves))
    leaf, n_labels = place[reached], np.diff(labels.indptr)
    n_rows = np.bincount(leaf[n_labels > 0], minlength=len(leaves))
    ones = np.ones(len(labels.indices))
    return LeafCounts(n_rows, counts_of(len(leaves), np.repeat(leaf, n_labels), labels.indices, ones))


def chunks_of(tree: OnlineTree, order: I64) -> list[Chunk | None]:
    """Return the scorers of each node's children (none of the left, h of the right), None for a leaf."""
    places, pool = np.flatnonzero(tree.left[order] != LEAF), tree.weights
    inner, most = order[places], int(pool.used[order].max())
    row_ptr, child = np.arange(most + 1, dtype=np.int64), np.ones(most, np.int32)
    bias = np.zeros((len(inner), 2), np.float32)
    bias[:, 1] = tree.bias[inner, WEIGHT]
    chunks: list[Chunk | None] = [None] * len(order)
    for begin, end in pairwise(pieces_of(offsets(pool.used[inner]), _PIECE)):
        table, slots = contents(pool, inner[begin:end])
        weight = pool.value[slots, WEIGHT] / pool.value[slots, SCALE]
        kept = np.flatnonzero(weight)
        features, weight = pool.key[slots[kept]], weight[kept]
        ends = np.searchsorted(table[kept], np.arange(end - begin + 1)).tolist()
        for node, (first, last) in enumerate(pairwise(ends), begin):
            n = last - first
            entries = features[first:last], row_ptr[: n + 1], child[:n], weight[first:last]
            chunks[places[node]] = Chunk(*entries, bias[node])
    return chunks


def report_of(tree: OnlineTree, child_ptr: I32, counts: NodeCounts, rows: I64) -> dict[str, Any]:
    """Return what a training tells of the tree; rows int64[n] by node."""
    growth = criteria_by_splits(child_ptr, counts)
    last = len(growth["splits"]) - 1
    kept = np.unique(np.linspace(0, last, min(last + 1, _GROWTH_POINTS)).astype(np.int64))
    depth, is_leaf = depths(child_ptr), np.diff(child_ptr) == 0
    return {
        "rows": int(tree.state[N_ROWS]),
        "splits": int(tree.state[N_SPLITS]),
        "swaps": int(tree.state[N_SWAPS]),
        "depth": int(depth.max()),
        "mean_depth": float((depth * rows)[is_leaf].sum() / max(1, rows[is_leaf].sum())),
        "weights_left_out": n_refused(tree.weights),
        "labels_left_out": n_refused(tree.classes),
        "criteria_by_splits": {name: values[kept].tolist() for name, values in growth.items()},
        "splits_by_depth": splits_by_depth(child_ptr, counts),
    }


def rows_of_nodes(child_ptr: I32, at_leaves: I64) -> I64:
    """Return int64[n]: the rows of each node, from those of the leaves by position."""
    rows = np.zeros(len(child_ptr) - 1, np.int64)
    rows[np.diff(child_ptr) == 0] = at_leaves
    for node in np.flatnonzero(np.diff(child_ptr))[::-1].tolist():
        rows[node] = rows[child_ptr[node] : child_ptr[node + 1]].sum()
    return rows


def histograms_of(child_ptr: I32, counts: NodeCounts, rows: I64, n_kept: int) -> list[tuple[I32, F32] | None]:
    """Return the label shares of each leaf, None for others: the commonest n_kept labels, equal ones by id.

    A leaf that no row reached answers as the nearest node above it that some did.
    """
    source = np.arange(len(rows))
    for node in np.flatnonzero(np.diff(child_ptr)).tolist():
        for child in range(child_ptr[node], child_ptr[node + 1]):
            if not rows[child]:
                source[child] = source[node]
    leaves = np.flatnonzero(np.diff(child_ptr) == 0)
    of = source[leaves]
    n_entries = np.diff(counts.ptr)[of]
    leaf = np.repeat(np.arange(len(leaves)), n_entries)
    begins = offsets(n_entries)
    entry = ranges(counts.ptr[of], n_entries)
    label, count = counts.label[entry], counts.value[entry]
    best = np.lexsort((label, -count, leaf))
    best = best[np.arange(len(leaf)) - begins[leaf] < n_kept]
    best = best[np.lexsort((label[best], leaf[best]))]
    share = (count[best] / np.maximum(1, rows[of])[leaf[best]]).astype(np.float32)
    ends = np.cumsum(np.minimum(n_entries, n_kept)).tolist()
    found: list[tuple[I32, F32] | None] = [None] * len(rows)
    for node, first, last in zip(leaves.tolist(), [0, *ends], ends, strict=False):
        found[node] = label[best[first:last]], share[first:last]
    return found
