"""The results of a grown LOMtree: counts of its leaves, chunks, histograms and the report; its
state as arrays, and a tree restored from them.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import offsets, ranges
from xylem.trainers.lomtree.learning import route_rows
from xylem.trainers.lomtree.tables import (
    BITS_MIN,
    N_VALUES,
    SIZES,
    Pool,
    contents,
    fill,
    n_refused,
)
from xylem.trainers.lomtree.tree import (
    COUNT,
    LEAF,
    N_NODES,
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
from xylem.trainers.state import LearnerState, check_that
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
    level = np.array([tree.state[ROOT]])
    levels = []
    while len(level):
        levels.append(level)
        inner = level[left[level] != LEAF]
        level = np.stack([left[inner], tree.right[inner]], axis=1).ravel().astype(np.int64)
    order = np.concatenate(levels)
    return order, np.concatenate([[1], 1 + np.cumsum(2 * (left[order] != LEAF))]).astype(np.int32)


def count_leaves(tree: OnlineTree, leaves: I64) -> LeafCounts:
    """Return the counts that the leaves collected while the tree grew."""
    leaf, slots = contents(tree.classes, leaves)
    counts = counts_of(len(leaves), leaf, tree.classes.key[slots], tree.classes.value[slots, COUNT])
    return LeafCounts(tree.n_rows[leaves], counts)


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
    leaf_of_label = np.repeat(leaf, n_labels)
    counts = counts_of(len(leaves), leaf_of_label, labels.indices, np.ones(len(leaf_of_label)))
    return LeafCounts(n_rows, counts)


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
            chunks[places[node]] = Chunk(
                features=features[first:last],
                row_ptr=row_ptr[: n + 1],
                child=child[:n],
                weight=weight[first:last],
                bias=bias[node],
            )
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

    entry = ranges(counts.ptr[source_nodes], n_entries)
    label = counts.label[entry]
    count = counts.value[entry]
    best = np.lexsort((label, -count, leaf))
    best = best[np.arange(len(leaf)) - offsets(n_entries)[leaf] < n_kept]
    best = best[np.lexsort((label[best], leaf[best]))]
    share = (count[best] / np.maximum(1, rows[source_nodes])[leaf[best]]).astype(np.float32)
    ends = np.cumsum(np.minimum(n_entries, n_kept)).tolist()
    histograms: list[tuple[I32, F32] | None] = [None] * len(rows)
    for node, first, last in zip(leaves.tolist(), [0, *ends], ends, strict=False):
        histograms[node] = label[best[first:last]], share[first:last]
    return histograms


# The fields with an element for each node, which are stored in a state. The other fields are
# `nodes`, `state` and the pools of tables.
_OF_NODES = OnlineTree._fields[:-4]


def tree_arrays(tree: OnlineTree) -> dict[str, NDArray[Any]]:
    """Return the arrays of a tree's state.

    Equal trees have equal arrays, wherever their tables lie in the pools. The positions of blocks,
    and of keys in blocks, are not stored: neither the keys that are found nor the keys that have no
    room depend on them.
    """
    n = int(tree.state[N_NODES])
    arrays = {f"node/{name}": np.ascontiguousarray(getattr(tree, name)[:n]) for name in _OF_NODES}
    for part in ("weights", "classes"):
        pool: Pool = getattr(tree, part)
        _, slots = contents(pool, np.arange(n))
        free = np.zeros(SIZES, np.int64)  # number of free blocks of each size
        for size in range(SIZES):
            block = int(pool.free[size])
            while block >= 0:
                free[size], block = free[size] + 1, int(pool.key[block])
        arrays |= {
            f"{part}/bits": pool.bits[:n].copy(),
            f"{part}/used": pool.used[:n].copy(),
            f"{part}/keys": pool.key[slots],
            f"{part}/values": np.ascontiguousarray(pool.value[slots, :N_VALUES]),
            f"{part}/free": free,
            f"{part}/refused": np.array([n_refused(pool)]),
        }
    return {**arrays, "counts": tree.state}


def restore_tree(state: LearnerState, tree: OnlineTree, n_labels: int) -> None:
    """Write a stored state over a tree without rows.

    n_labels  every label of the state must be less than this

    Raises Corrupt, and the errors that `restoring` turns into it.
    """
    tree.state[:] = state.take("counts", "int64", len(tree.state))
    n = int(tree.state[N_NODES])
    check_that(
        1 <= n <= len(tree.left) and n == 2 * tree.state[N_SPLITS] + 1,
        "1 + 2 * splits nodes",
    )
    for name in _OF_NODES:
        array = getattr(tree, name)
        array[:n] = state.take(f"node/{name}", array.dtype.name, n, *array.shape[1:])
    left = tree.left[:n]

    parent = tree.parent[:n]
    root = int(tree.state[ROOT])
    inner = np.flatnonzero(left != LEAF)
    children = np.concatenate([left[inner], tree.right[inner]])
    non_roots = np.delete(np.arange(n), root) if 0 <= root < n else np.empty(0)
    # each node but the root is the child of one node, so there are no cycles below the root
    check_that(np.array_equal(np.sort(children), non_roots), "one tree")
    check_that(
        (parent[children] == np.tile(inner, 2)).all() and parent[root] == -1, "parents of children"
    )
    for part in ("weights", "classes"):
        _restore_pool(state, part, getattr(tree, part), n)
    check_that((state.arrays["classes/keys"] < n_labels).all(), "labels of the version")


def _restore_pool(state: LearnerState, part: str, pool: Pool, n: int) -> None:
    """Write the contents of n tables into an empty pool, with one block after the other."""
    bits = state.take(f"{part}/bits", "int32", n)
    used = state.take(f"{part}/used", "int32", n)
    keys = state.take(f"{part}/keys", "int32", None)
    free = state.take(f"{part}/free", "int64", SIZES)
    values = state.take(f"{part}/values", pool.value.dtype.name, len(keys), N_VALUES)
    has = np.flatnonzero(bits != -1)
    check_that(((bits[has] >= BITS_MIN) & (bits[has] < SIZES)).all(), "sizes of tables")
    n_free = sum(blocks << size for size, blocks in enumerate(free.tolist()))
    check_that((free >= 0).all() and n_free <= len(pool.key), "free blocks")
    block_bits: I64 = np.concatenate(
        [bits[has].astype(np.int64), np.repeat(np.arange(SIZES), free)]
    )
    starts = offsets(np.int64(1) << block_bits)
    check_that(starts[-1] <= len(pool.key), "tables within the memory of the parameters")
    room = np.where(bits < 0, 0, np.int64(3) << np.maximum(bits, 0).astype(np.int64))
    check_that(
        (used >= 0).all() and (4 * used.astype(np.int64) <= room).all(), "tables with room for keys"
    )
    ptr = offsets(used)
    check_that(ptr[-1] == len(keys) and (keys >= 0).all(), "keys of tables")
    same_table = np.diff(np.repeat(np.arange(n), used)) == 0
    check_that((np.diff(keys.astype(np.int64))[same_table] > 0).all(), "ascending keys")
    pool.start[has] = starts[: len(has)]
    pool.bits[:n] = bits
    pool.key[: starts[-1]] = -1
    for start, size in zip(
        starts[len(has) : -1].tolist(), block_bits[len(has) :].tolist(), strict=True
    ):
        pool.key[start] = pool.free[size]
        pool.free[size] = start
    pool.counts[:2] = starts[-1], state.take(f"{part}/refused", "int64", 1)[0]
    fill(pool, ptr, keys.copy(), values.copy())
