"""Growing a binary decision tree whose splits rank labels well: FastXML's, in one call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from service.trainers.ranking.separator import columns_of, solve_separator
from service.trainers.ranking.split import ROUNDS_MAX, gains_of, split_by_ranking, toss_sides

ATTEMPTS = 3
"""A node whose split leaves a side empty is tried so often, from new random sides; then it is a leaf."""


class TrainingRows(NamedTuple):
    """What a tree is grown on: compressed rows and labels, and tables over all labels.

    x_ptr, x_idx, x_val  features of each row
    y_ptr, y_idx         labels of each row, ascending
    label_weight         float32[K]      gain of each label
    discount             float64[K]      1 / log2(2 + place)
    ideal                float64[K + 1]  sum of the first k discounts
    n_features           all x_idx are below
    """

    x_ptr: NDArray[np.int64]
    x_idx: NDArray[np.int32]
    x_val: NDArray[np.float32]
    y_ptr: NDArray[np.int64]
    y_idx: NDArray[np.int32]
    label_weight: NDArray[np.float32]
    discount: NDArray[np.float64]
    ideal: NDArray[np.float64]
    n_features: int


class Growth(NamedTuple):
    """How a tree is grown.

    max_leaf      a node of no more rows is a leaf
    max_depth     a node so many splits below the root is a leaf
    leaf_labels   most labels that a leaf keeps
    cost          of the separators' loss; shared out so that both sides weigh alike
    eps, steps    of `solve_separator`
    prune         smaller weights are left out
    """

    max_leaf: int
    max_depth: int
    leaf_labels: int
    cost: float
    eps: float
    steps: int
    prune: float


class Grown(NamedTuple):
    """A tree of n nodes numbered breadth-first.

    child_ptr   int32[n + 1]  child_ptr[0] = 1; an inner node has two children
    n_rows      int32[n]      training rows
    n_used      int32[n]      features of the rows of an inner node; 0 at leaves
    weight_ptr  int64[n + 1]  the separator of an inner node, towards its second child
    feature     int32[..]     ascending within a node
    weight      float32[..]
    bias        float32[n]
    leaf_ptr    int64[n + 1]
    leaf_label  int32[..]     ascending within a leaf
    leaf_count  int32[..]     rows of the leaf that carry the label
    """

    child_ptr: NDArray[np.int32]
    n_rows: NDArray[np.int32]
    n_used: NDArray[np.int32]
    weight_ptr: NDArray[np.int64]
    feature: NDArray[np.int32]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    leaf_ptr: NDArray[np.int64]
    leaf_label: NDArray[np.int32]
    leaf_count: NDArray[np.int32]


class _Split(NamedTuple):
    """A separator: ascending features, their weights, constant term; side of each row; features looked at."""

    feature: NDArray[np.int32]
    weight: NDArray[np.float32]
    bias: np.float32
    side: NDArray[np.uint8]
    n_used: int


@inlined
def _alike(rows: TrainingRows, order: NDArray[np.int32]) -> bool:
    """Return whether all rows carry the same labels."""
    first, n = rows.y_ptr[order[0]], rows.y_ptr[order[0] + 1] - rows.y_ptr[order[0]]
    for row in order:
        start = rows.y_ptr[row]
        if rows.y_ptr[row + 1] - start != n:
            return False
        for e in range(n):
            if rows.y_idx[start + e] != rows.y_idx[first + e]:
                return False
    return True


@kernel
def _split(
    rows: TrainingRows,
    order: NDArray[np.int32],
    growth: Growth,
    random: NDArray[np.uint64],
    counts: NDArray[np.int32],
    seen: NDArray[np.int32],
    stop: NDArray[np.uint8],
) -> _Split:
    """Split the rows of a node; all on one side when no attempt could do better."""
    n_rows = len(order)
    gains = gains_of(rows.y_ptr, rows.y_idx, order, rows.label_weight, rows.ideal, seen)
    columns = columns_of(rows.x_ptr, rows.x_idx, rows.x_val, order, counts)
    totals = np.empty(ROUNDS_MAX)
    side = np.empty(n_rows, np.uint8)
    cost = np.empty(2)
    n_used = len(columns.feature) - 1
    for _ in range(ATTEMPTS):
        if stop[0]:
            break
        toss_sides(side, random)
        split_by_ranking(gains, rows.discount, side, totals)
        n_second = side.sum()
        if n_second == 0 or n_second == n_rows:
            continue
        cost[0] = growth.cost * n_rows / (n_rows - n_second)
        cost[1] = growth.cost * n_rows / n_second
        w, _steps = solve_separator(columns, side, cost, growth.eps, growth.steps, random, stop)
        weight = w.astype(np.float32)
        margin = np.zeros(n_rows, np.float32)
        for k in range(n_used + 1):
            if k < n_used and abs(weight[k]) < growth.prune:
                weight[k] = 0.0
            if weight[k] != 0.0:
                for e in range(columns.ptr[k], columns.ptr[k + 1]):
                    margin[columns.row[e]] += weight[k] * columns.value[e]
        side[:] = margin > 0.0
        n_second = side.sum()
        if 0 < n_second < n_rows:
            kept = np.flatnonzero(weight[:n_used])
            return _Split(columns.feature[kept], weight[kept], weight[n_used], side, n_used)
    side[:] = 0
    return _Split(columns.feature[:0], np.empty(0, np.float32), np.float32(0), side, n_used)


@inlined
def _part(order: NDArray[np.int32], side: NDArray[np.uint8]) -> int:
    """Put the rows of the first side before those of the second, in their order; return how many."""
    second = order[side == 1]
    n_first = 0
    for i in range(len(order)):
        if side[i] == 0:
            order[n_first] = order[i]
            n_first += 1
    order[n_first:] = second
    return n_first


@kernel
def _count_labels(
    rows: TrainingRows, order: NDArray[np.int32], n_most: int, seen: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the n_most labels that most rows carry (ties: smaller label first), ascending; how many."""
    nnz = 0
    for row in order:
        nnz += rows.y_ptr[row + 1] - rows.y_ptr[row]
    found = np.empty(min(nnz, len(seen)), np.int32)
    n_found = 0
    for row in order:
        for e in range(rows.y_ptr[row], rows.y_ptr[row + 1]):
            if seen[rows.y_idx[e]] == 0:
                found[n_found] = rows.y_idx[e]
                n_found += 1
            seen[rows.y_idx[e]] += 1
    label = np.sort(found[:n_found])
    count = seen[label]
    seen[label] = 0
    if n_found > n_most:
        kept = np.sort(np.argsort(-count, kind="mergesort")[:n_most])
        return label[kept], count[kept]
    return label, count


class _Pairs(NamedTuple):
    """Keys and their values, in arrays that may be longer."""

    key: NDArray[np.int32]
    value: NDArray[Any]


@kernel
def _put(pairs: _Pairs, n: int, key: NDArray[np.int32], value: NDArray[Any]) -> _Pairs:
    """Put more pairs after the first n; return the arrays, or longer copies that hold them all."""
    n_after = n + len(key)
    if n_after > len(pairs.key):
        longer = _Pairs(np.empty(2 * n_after, np.int32), np.empty(2 * n_after, pairs.value.dtype))
        longer.key[:n] = pairs.key[:n]
        longer.value[:n] = pairs.value[:n]
        pairs = longer
    pairs.key[n:n_after] = key
    pairs.value[n:n_after] = value
    return pairs


@kernel
def grow_tree(
    rows: TrainingRows, order: NDArray[np.int32], growth: Growth, seed: int, stop: NDArray[np.uint8]
) -> Grown:
    """Grow a tree on the rows of `order`.

    Source: Prabhu, Varma 2014, algorithms 1 and 2 with one update of w a node, as the authors' code does.
    Deviations: a row goes to the second child when the separator's margin is > 0, not >= 0; a node is tried
    again when a side stays empty; a node whose rows all carry the same labels is a leaf.

    order  int32[n], n >= 1: rows with labels, ascending; overwritten
    seed   of all randomness in the tree
    stop   uint8[1]: set it to end soon, with an unfinished tree

    Cost: at each depth separators over the rows that are not yet in leaves; max_depth bounds the depth,
    `steps` the time of a separator. Memory: the rows of the root by feature, 8 bytes a value, and 150 bytes a
    row. The result depends on the arguments alone.
    """
    n_most = 2 * len(order)
    start, n_rows = np.zeros(n_most, np.int32), np.zeros(n_most, np.int32)
    depth, n_used = np.zeros(n_most, np.int32), np.zeros(n_most, np.int32)
    child_ptr, bias = np.ones(n_most + 1, np.int32), np.zeros(n_most, np.float32)
    weight_ptr, leaf_ptr = np.zeros(n_most + 1, np.int64), np.zeros(n_most + 1, np.int64)
    weights = _Pairs(np.empty(0, np.int32), np.empty(0, np.float32))
    leaves = _Pairs(np.empty(0, np.int32), np.empty(0, np.int32))
    random = np.array([seed], np.uint64)
    counts, seen = np.zeros(rows.n_features, np.int32), np.zeros(len(rows.label_weight), np.int32)
    n_rows[0] = len(order)
    n_nodes = 1
    node = 0
    while node < n_nodes:
        weight_ptr[node + 1], leaf_ptr[node + 1] = weight_ptr[node], leaf_ptr[node]
        here = order[start[node] : start[node] + n_rows[node]]
        n_first = 0
        if len(here) > growth.max_leaf and depth[node] < growth.max_depth and not _alike(rows, here):
            split = _split(rows, here, growth, random, counts, seen, stop)
            n_first = _part(here, split.side)
        if 0 < n_first < len(here):
            weights = _put(weights, weight_ptr[node], split.feature, split.weight)
            weight_ptr[node + 1] += len(split.feature)
            n_used[node] = split.n_used
            start[n_nodes], start[n_nodes + 1] = start[node], start[node] + n_first
            n_rows[n_nodes], n_rows[n_nodes + 1] = n_first, len(here) - n_first
            depth[n_nodes], depth[n_nodes + 1] = depth[node] + 1, depth[node] + 1
            bias[n_nodes + 1] = split.bias
            n_nodes += 2
        else:
            label, count = _count_labels(rows, here, growth.leaf_labels, seen)
            leaves = _put(leaves, leaf_ptr[node], label, count)
            leaf_ptr[node + 1] += len(label)
        node += 1
        child_ptr[node] = n_nodes
    return Grown(
        child_ptr[: n_nodes + 1].copy(),
        n_rows[:n_nodes].copy(),
        n_used[:n_nodes].copy(),
        weight_ptr[: n_nodes + 1].copy(),
        weights.key[: weight_ptr[n_nodes]].copy(),
        weights.value[: weight_ptr[n_nodes]].copy(),
        bias[:n_nodes].copy(),
        leaf_ptr[: n_nodes + 1].copy(),
        leaves.key[: leaf_ptr[n_nodes]].copy(),
        leaves.value[: leaf_ptr[n_nodes]].copy(),
    )
