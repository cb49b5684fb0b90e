"""Growing a binary decision tree of FastXML, whose splits rank labels well."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import LabelRows, SparseRows
from xylem.trainers.kernels.problem import localise_labels
from xylem.trainers.kernels.random import next_random
from xylem.trainers.ranking.separator import columns_of, solve_separator
from xylem_store import F32, F64, I32, I64, U8, U64, inlined, kernel

# Most rounds of the alternation between rankings and sides; about ten rounds are usual.
ROUNDS_MAX = 100

# The alternation ends when a round raises the mean nDCG of a row by less than this.
GAIN_MIN = 1e-6


class TrainingRows(NamedTuple):
    """The rows on which a tree is grown, and tables over all labels.

    label_weight  float32[K]      gain of each label
    discount      float64[K]      1 / log2(2 + place), for the places from 0
    ideal         float64[K + 1]  sum of the first k discounts
    """

    rows: SparseRows
    labels: LabelRows
    label_weight: F32
    discount: F64
    ideal: F64


class Gains(NamedTuple):
    """The labels of a node's n rows, renumbered from 0, and their gains.

    ptr    int64[n + 1]
    label  int32[nnz]    ranks of labels, below len(used)
    gain   float64[nnz]  > 0: the label's weight / the ideal DCG of the row. It is the nDCG of the
                         label at the top of a ranking
    used   int32[k]      label of each rank, ascending
    """

    ptr: I64
    label: I32
    gain: F64
    used: I32


@kernel
def gains_of(data: TrainingRows, rows: I32, label_rank: I32) -> Gains:
    """Return the gains of the labels of some rows, ascending within each.

    Source: Prabhu, Varma 2014, equation 1 (label_weight 1), and Jain et al. 2016, section 4 (1 /
    propensity): the ideal DCG of a row of k labels is the sum of the first k discounts, whatever
    their weights.

    label_rank  int32[K], workspace: zero at the call and on return
    """
    ptr, label, used = localise_labels(data.labels.indptr, data.labels.indices, rows, label_rank)
    gain = np.empty(len(label), np.float64)
    for i in range(len(rows)):
        share = data.ideal[ptr[i + 1] - ptr[i]]
        for position in range(ptr[i], ptr[i + 1]):
            gain[position] = data.label_weight[used[label[position]]] / share
    return Gains(ptr, label, gain, used)


@inlined
def _rank(gains: Gains, side: U8, discount: F64, lead_out: F64) -> float:
    """Rank the labels of each side by falling sum of gains; return the sum of the DCGs of both.

    For equal sums the smaller label comes first.

    lead_out  float64[k]  discount of each label on the second side, minus that on the first
    """
    sums = np.zeros((2, len(gains.used)))
    for i in range(len(side)):
        for e in range(gains.ptr[i], gains.ptr[i + 1]):
            sums[side[i], gains.label[e]] += gains.gain[e]
    total = 0.0
    lead_out[:] = 0.0
    for s in range(2):
        order = np.argsort(-sums[s], kind="mergesort")
        sign = 2.0 * s - 1.0
        for place in range(len(order)):
            total += discount[place] * sums[s, order[place]]
            lead_out[order[place]] += sign * discount[place]
    return total


@kernel
def split_by_ranking(gains: Gains, discount: F64, side: U8, totals_out: F64) -> int:
    """Alternate between the best ranking of each side and the best side of each row.

    Returns the number of rounds.

    Source: Prabhu, Varma 2014, section 4.2, algorithm 2 with w = 0: equation 7 (the best ranking
    for a side sorts the labels by their sums of gains) and equations 8-10 (a row goes to the side
    whose ranking gives it the higher nDCG). A row with the same nDCG on both sides stays.

    discount    float64[>= k]  1 / log2(2 + place), falling
    side        uint8[n]       0 or 1 at the call; overwritten
    totals_out  float64[ROUNDS_MAX]  sum of nDCGs in each round, before rows change sides; it never
                falls

    Cost: a round reads the labels of the rows twice and sorts the node's labels twice.
    """
    n_rows = len(side)
    lead = np.empty(len(gains.used))
    for step in range(ROUNDS_MAX):
        totals_out[step] = _rank(gains, side, discount, lead)
        for i in range(n_rows):
            advantage = 0.0
            for e in range(gains.ptr[i], gains.ptr[i + 1]):
                advantage += gains.gain[e] * lead[gains.label[e]]
            if advantage != 0.0:
                side[i] = advantage > 0.0
        if step and totals_out[step] - totals_out[step - 1] < GAIN_MIN * n_rows:
            return step + 1
    return ROUNDS_MAX


# Most attempts to split a node. If a split leaves a side empty, the node is split again from new
# random sides; after the last attempt it is a leaf.
ATTEMPTS = 3


class Growth(NamedTuple):
    """The options of growing a tree.

    max_leaf      a node with at most this many rows is a leaf
    max_depth     a node this many splits below the root is a leaf
    leaf_labels   most labels of a leaf
    cost          weight of the separators' loss; divided so that both sides have the same weight
    eps, steps    options of `solve_separator`
    prune         weights with a smaller absolute value are left out
    """

    max_leaf: int
    max_depth: int
    leaf_labels: int
    cost: float
    eps: float
    steps: int
    prune: float


class GrownTree(NamedTuple):
    """A tree of n nodes numbered breadth-first.

    child_ptr   int32[n + 1]  child_ptr[0] = 1; an inner node has two children
    n_rows      int32[n]      number of training rows
    n_used      int32[n]      number of features in the rows of an inner node; 0 at leaves
    weight_ptr  int64[n + 1]  node i has feature and weight [weight_ptr[i] : weight_ptr[i + 1]]: its
                              separator, whose margin is > 0 for rows of the second child
    feature     int32[..]     ascending within a node
    weight      float32[..]
    bias        float32[n]    constant term of the separator, at the node's second child
    leaf_ptr    int64[n + 1]  node i has leaf_label and leaf_count [leaf_ptr[i] : leaf_ptr[i + 1]]
    leaf_label  int32[..]     ascending within a leaf
    leaf_count  int32[..]     number of rows of the leaf that carry the label
    """

    child_ptr: I32
    n_rows: I32
    n_used: I32
    weight_ptr: I64
    feature: I32
    weight: F32
    bias: F32
    leaf_ptr: I64
    leaf_label: I32
    leaf_count: I32


class _Split(NamedTuple):
    """A split of a node by a separator.

    feature  int32[..]    features of the separator, ascending
    weight   float32[..]  their weights
    bias     its constant term
    side     uint8[n]     side of each row, 0 or 1
    n_used   number of features in the rows of the node
    """

    feature: I32
    weight: F32
    bias: np.float32
    side: U8
    n_used: int


@inlined
def _alike(labels: LabelRows, order: I32) -> bool:
    """Return whether all rows carry the same labels."""
    first = labels.indptr[order[0]]
    n = labels.indptr[order[0] + 1] - labels.indptr[order[0]]
    for row in order:
        start = labels.indptr[row]
        if labels.indptr[row + 1] - start != n:
            return False
        for e in range(n):
            if labels.indices[start + e] != labels.indices[first + e]:
                return False
    return True


@kernel
def _split(
    data: TrainingRows,
    order: I32,
    growth: Growth,
    random: U64,
    counts: I32,
    label_rank: I32,
    stop: U8,
) -> _Split:
    """Split the rows of a node; if no attempt succeeds, all rows are on side 0."""
    n_rows = len(order)
    gains = gains_of(data, order, label_rank)
    columns = columns_of(data.rows, order, counts)
    totals = np.empty(ROUNDS_MAX)
    side = np.empty(n_rows, np.uint8)
    cost = np.empty(2)
    n_used = len(columns.feature) - 1
    for _ in range(ATTEMPTS):
        if stop[0]:
            break
        for i in range(n_rows):
            side[i] = next_random(random) >> np.uint64(63)
        split_by_ranking(gains, data.discount, side, totals)
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
            nonzero = np.flatnonzero(weight[:n_used])
            return _Split(columns.feature[nonzero], weight[nonzero], weight[n_used], side, n_used)
    side[:] = 0
    return _Split(columns.feature[:0], np.empty(0, np.float32), np.float32(0), side, n_used)


@inlined
def _part(order: I32, side: U8) -> int:
    """Move the rows of the first side before those of the second; return the number of the first.

    Rows of the same side keep their order.
    """
    second = order[side == 1]
    n_first = 0
    for i in range(len(order)):
        if side[i] == 0:
            order[n_first] = order[i]
            n_first += 1
    order[n_first:] = second
    return n_first


@kernel
def _count_labels(labels: LabelRows, order: I32, n_most: int, label_rank: I32) -> tuple[I32, I32]:
    """Return the n_most most frequent labels of some rows, ascending, and the rows of each.

    Of labels with equal counts the smaller ones come first.
    """
    _, ranks, label = localise_labels(labels.indptr, labels.indices, order, label_rank)
    count = np.zeros(len(label), np.int32)
    for rank in ranks:
        count[rank] += 1
    if len(label) > n_most:
        frequent = np.sort(np.argsort((-count).astype(np.float64), kind="mergesort")[:n_most])
        return label[frequent], count[frequent]
    return label, count


class _Pairs(NamedTuple):
    """Keys and their values, in arrays that may have unused elements at the end."""

    key: I32
    value: NDArray[Any]


@kernel
def _put(pairs: _Pairs, n: int, key: I32, value: NDArray[Any]) -> _Pairs:
    """Append pairs after the first n; return the arrays, or longer copies if they are too short."""
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
def grow_tree(data: TrainingRows, order: I32, growth: Growth, seed: int, stop: U8) -> GrownTree:
    """Grow a tree on the rows of `order`.

    Source: Prabhu, Varma 2014, algorithms 1 and 2 with one update of w for each node, as in the
    authors' code. Deviations: a row goes to the second child if the separator's margin is > 0, not
    >= 0; a node is split again if a side stays empty (ATTEMPTS); a node whose rows all carry the
    same labels is a leaf.

    order  int32[n], n >= 1: rows with labels, ascending; overwritten
    seed   seed of all random numbers of the tree
    stop   uint8[1]: set it to end soon; the tree is then unfinished

    Cost: at each depth, separators over the rows that are not yet in leaves; max_depth bounds the
    depth, and `steps` the time of a separator. Memory: the rows of the root by feature, 8 bytes a
    value, and 150 bytes a row. The result depends on the arguments alone.
    """
    n_most = 2 * len(order)
    start = np.zeros(n_most, np.int32)
    n_rows = np.zeros(n_most, np.int32)
    depth = np.zeros(n_most, np.int32)
    n_used = np.zeros(n_most, np.int32)
    child_ptr = np.ones(n_most + 1, np.int32)
    bias = np.zeros(n_most, np.float32)
    weight_ptr = np.zeros(n_most + 1, np.int64)
    leaf_ptr = np.zeros(n_most + 1, np.int64)
    weights = _Pairs(np.empty(0, np.int32), np.empty(0, np.float32))
    leaves = _Pairs(np.empty(0, np.int32), np.empty(0, np.int32))
    random = np.array([seed], np.uint64)
    counts = np.zeros(data.rows.n_features, np.int32)
    label_rank = np.zeros(len(data.label_weight), np.int32)
    n_rows[0] = len(order)
    n_nodes = 1
    node = 0
    while node < n_nodes:
        weight_ptr[node + 1] = weight_ptr[node]
        leaf_ptr[node + 1] = leaf_ptr[node]
        node_rows = order[start[node] : start[node] + n_rows[node]]
        n_first = 0
        if (
            len(node_rows) > growth.max_leaf
            and depth[node] < growth.max_depth
            and not _alike(data.labels, node_rows)
        ):
            split = _split(data, node_rows, growth, random, counts, label_rank, stop)
            n_first = _part(node_rows, split.side)
        if 0 < n_first < len(node_rows):
            weights = _put(weights, weight_ptr[node], split.feature, split.weight)
            weight_ptr[node + 1] += len(split.feature)
            n_used[node] = split.n_used
            start[n_nodes], start[n_nodes + 1] = start[node], start[node] + n_first
            n_rows[n_nodes], n_rows[n_nodes + 1] = n_first, len(node_rows) - n_first
            depth[n_nodes], depth[n_nodes + 1] = depth[node] + 1, depth[node] + 1
            bias[n_nodes + 1] = split.bias
            n_nodes += 2
        else:
            label, count = _count_labels(data.labels, node_rows, growth.leaf_labels, label_rank)
            leaves = _put(leaves, leaf_ptr[node], label, count)
            leaf_ptr[node + 1] += len(label)
        node += 1
        child_ptr[node] = n_nodes
    return GrownTree(
        child_ptr=child_ptr[: n_nodes + 1].copy(),
        n_rows=n_rows[:n_nodes].copy(),
        n_used=n_used[:n_nodes].copy(),
        weight_ptr=weight_ptr[: n_nodes + 1].copy(),
        feature=weights.key[: weight_ptr[n_nodes]].copy(),
        weight=weights.value[: weight_ptr[n_nodes]].copy(),
        bias=bias[:n_nodes].copy(),
        leaf_ptr=leaf_ptr[: n_nodes + 1].copy(),
        leaf_label=leaves.key[: leaf_ptr[n_nodes]].copy(),
        leaf_count=leaves.value[: leaf_ptr[n_nodes]].copy(),
    )
