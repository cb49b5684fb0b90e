"""Compute a row's answer from the leaves that it has reached.

A label's score is the mean over the trees of the mean of its values over the leaves reached, not
counting empty leaves (Majzoubi and Choromanska 2019, algorithm 2, the mean of normalised
histograms). The additions have a fixed order, tree by tree and by ascending leaf, whichever rows
went down the trees together.

Re-ranking is that of Jain et al. 2016 (PFastreXML) for tail labels; LdSM (Majzoubi and Choromanska
2019) uses the same. A label to which the trees give the score P is scored P^alpha * exp(-gamma / 2
* |x - mu|^2)^(1 - alpha), where x is the row scaled to length 1, and mu the mean of the label's
training rows.
"""

import numpy as np

from xylem.engine.kernels.search.call import ONE_F32, ZERO_F32, threshold_of
from xylem.engine.kernels.search.heaps import keep_best
from xylem.engine.kernels.search.scorer import place
from xylem.engine.kernels.search.scoring import CallParts
from xylem.engine.kernels.search.subtrees import log_of
from xylem.engine.kernels.search.workspace import RoutingWorkspace
from xylem_store import F32, I32, Rerank, TreeEnsemble, nonallocating_inlined as inlined, prefetch


@inlined
def spread_row(indices: I32, values: F32, dense_row: F32) -> np.float32:
    """Write a row, scaled to length 1, into `dense_row`, float32[D], which is all zeros before.

    Return |x|^2: 1, or 0 for a row of zeros. The length is computed in float64, so that no finite
    value overflows.
    """
    square = 0.0
    for i in range(len(values)):
        square += np.float64(values[i]) * np.float64(values[i])
    if square == 0.0:
        return ZERO_F32
    scale = 1.0 / np.sqrt(square)
    for i in range(len(indices)):
        dense_row[indices[i]] = np.float32(values[i] * scale)
    return np.float32(1.0)


@inlined
def nearness(rerank: Rerank, label: int, row_square: np.float32, dense_row: F32) -> np.float32:
    """Return exp(-gamma / 2 * |x - mu|^2)^(1 - alpha), in [0, 1], for the row x in `dense_row`.

    The products are added by ascending feature. Cost: the features of the mean row.

    row_square  |x|^2, as `spread_row` returns it
    """
    product = ZERO_F32
    for i in range(rerank.ptr[label], rerank.ptr[label + 1]):
        product += rerank.values[i] * dense_row[rerank.features[i]]
    distance = max(ZERO_F32, row_square - np.float32(2.0) * product + rerank.norm2[label])
    rate = np.float32(0.5) * (np.float32(1.0) - rerank.parameters[0]) * rerank.parameters[1]
    return np.float32(np.exp(-rate * distance))


_AHEAD = 8  # how many leaves ahead the labels of a leaf are prefetched


@inlined
def sort_leaves(n_leaves: int, first: int, n_rows: int, routing: RoutingWorkspace) -> None:
    """Fill sorted_node, sorted_tree and row_ptr: by row, then by tree, then by leaf.

    It is a counting sort. A single row's leaves are sorted by tree. Those of several rows are only
    sorted by row, because they were reached tree by tree.
    """
    if n_rows == 1:
        count_and_place(n_leaves, routing.leaf_tree, 0, routing.tree_ptr, routing)
        routing.row_ptr[0] = 0
        routing.row_ptr[1] = n_leaves
    else:
        count_and_place(n_leaves, routing.leaf_row, first, routing.row_ptr, routing)


@inlined
def count_and_place(
    n_leaves: int, keys: I32, least: int, starts: I32, routing: RoutingWorkspace
) -> None:
    """Fill sorted_node and sorted_tree by key, and `starts` with the place where each key begins.

    Leaves that have the same key keep their order.

    least   the least key; keys are in [least, least + len(starts) - 2)
    """
    starts[:] = 0
    for i in range(n_leaves):
        starts[keys[i] - least + 2] += 1
    for i in range(2, len(starts)):
        starts[i] += starts[i - 1]
    for i in range(n_leaves):
        next_key = keys[i] - least + 1
        position = starts[next_key]
        routing.sorted_node[position] = routing.leaf_node[i]
        routing.sorted_tree[position] = routing.leaf_tree[i]
        starts[next_key] += 1


@inlined
def add_leaves(ensemble: TreeEnsemble, routing: RoutingWorkspace, first: int, last: int) -> int:
    """Add the values of the sorted leaves first .. last - 1, which are a row's, to label_sum.

    The labels whose sums are not 0 are written to label_seen; return how many there are.
    """
    leaf_ptr = ensemble.leaf_ptr
    last_leaf = len(routing.sorted_node) - 1
    n_seen = 0
    end = first
    weight = ONE_F32
    for i in range(first, last):
        if i == end:
            while end < last and routing.sorted_tree[end] == routing.sorted_tree[i]:
                end += 1
            weight = ONE_F32 / np.float32(end - i)
        # the leaves of the next rows follow those of this one, and any node may be prefetched
        ahead = leaf_ptr[routing.sorted_node[place(min(i + _AHEAD, last_leaf))]]
        prefetch(leaf_ptr, routing.sorted_node[place(min(i + 2 * _AHEAD, last_leaf))])
        prefetch(ensemble.leaf_label, ahead)
        prefetch(ensemble.leaf_value, ahead)
        leaf = routing.sorted_node[i]
        for position in range(leaf_ptr[leaf], leaf_ptr[leaf + 1]):
            label = place(ensemble.leaf_label[place(position)])
            old_sum = routing.label_sum[label]
            new_sum = old_sum + weight * ensemble.leaf_value[place(position)]
            routing.label_sum[label] = new_sum
            # written in any case: a branch would be mispredicted at every other label
            routing.label_seen[place(n_seen)] = label
            n_seen += int(old_sum == ZERO_F32 and new_sum > ZERO_F32)
    return n_seen


@inlined
def rank_labels(parts: CallParts[RoutingWorkspace], n_seen: int, row: int, rerank: Rerank) -> int:
    """Put the best of label_seen into the heap best_*; return their number. Clears label_sum.

    If there are re-ranking arrays, the labels are re-ranked by the row, except those that could not
    enter the answer at any distance.
    """
    _, _, rows, search, _, _, routing = parts
    indices = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
    values = rows.values[rows.indptr[row] : rows.indptr[row + 1]]
    is_reranked = len(rerank.parameters) > 0
    row_square = spread_row(indices, values, routing.dense_row) if is_reranked else ZERO_F32
    n_best = 0
    for i in range(n_seen):
        label = int(routing.label_seen[i])
        score = min(ONE_F32, routing.label_sum[label] / np.float32(parts.ensemble.child_ptr[0]))
        routing.label_sum[label] = ZERO_F32
        if score == ZERO_F32 or (len(search.allowed) > 0 and search.allowed[label] == 0):
            continue
        if is_reranked:
            # the final score does not exceed this one
            score = np.float32(np.exp(rerank.parameters[0] * np.log(score)))
            if n_best == search.top_r and len(search.weight) == 0 and score < routing.best_score[0]:
                continue
            score *= nearness(rerank, label, row_square, routing.dense_row)
        if len(search.log_threshold) > 0 and log_of(score) < threshold_of(
            search.log_threshold, label
        ):
            continue
        if len(search.weight) > 0:
            score *= search.weight[label]
        n_best = keep_best(
            routing.best_score, routing.best_label, n_best, search.top_r, score, label
        )
    if is_reranked:
        for i in range(len(indices)):
            routing.dense_row[indices[i]] = ZERO_F32
    return n_best
