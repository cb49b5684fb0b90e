"""What a tree that has learnt leaves behind: its weights, the leaves of rows, and what its leaves counted."""

import numpy as np

from model_store.compiled.decorators import kernel, nonallocating_kernel
from model_store.compiled.handles import F32, F64, I32, I64
from service.trainers.lomtree.learning import score_of
from service.trainers.lomtree.tree import COUNT, LEAF, ROOT, SCALE, WEIGHT, OnlineTree


@nonallocating_kernel
def route_rows(
    tree: OnlineTree, indptr: I64, features: I32, values: F32, rows: I32, waiting: I64, leaf_out: I32
) -> None:
    """Write the leaf of every row: right where h(x) > 0.

    All rows of a node are scored one after the other, so that its weights come to the cache once.

    rows     int32[n]: the rows to send, each once; they are put in another order
    waiting  int64[N + 1, 2]: workspace, for a tree that may have N nodes
    """
    waiting[0, 0], waiting[0, 1] = tree.state[ROOT], len(rows)
    n_waiting, begin = 1, 0
    while n_waiting:
        n_waiting -= 1
        node, end = waiting[n_waiting, 0], waiting[n_waiting, 1]
        if tree.left[node] == LEAF:
            for i in range(begin, end):
                leaf_out[rows[i]] = node
            begin = end
            continue
        at, right = begin, end
        while at < right:
            row = rows[at]
            if score_of(tree, node, features, values, indptr[row], indptr[row + 1]) > 0.0:
                right -= 1
                rows[at], rows[right] = rows[right], row
            else:
                at += 1
        waiting[n_waiting, 0], waiting[n_waiting, 1] = tree.right[node], end
        waiting[n_waiting + 1, 0], waiting[n_waiting + 1, 1] = tree.left[node], right
        n_waiting += 2


@kernel
def pack_weights(
    tree: OnlineTree, nodes: I64, room: I64, n_out: I64, feature_out: I32, weight_out: F32
) -> None:
    """Write the weights of nodes that are not 0, by ascending feature.

    nodes        int64[m]
    room         int64[m]: where each node's weights begin; it has tree.weights.used[node] places
    n_out        int64[m]: how many weights each node has
    feature_out  int32[..]
    weight_out   float32[..]

    Cost: O(n log n) of a node of n weights.
    """
    pool = tree.weights
    for i in range(len(nodes)):
        node = nodes[i]
        n_out[i] = 0
        if pool.used[node] == 0:
            continue
        found = np.empty(pool.used[node], np.int64)
        n = 0
        start = pool.start[node]
        for slot in range(start, start + (np.int64(1) << np.int64(pool.bits[node]))):
            if pool.key[slot] >= 0:
                found[n] = (np.int64(pool.key[slot]) << 32) | (slot - start)
                n += 1
        for entry in np.sort(found):
            slot = start + (entry & 0xFFFFFFFF)
            weight = pool.value[slot, WEIGHT] / pool.value[slot, SCALE]
            if weight != 0:
                feature_out[room[i] + n_out[i]] = entry >> 32
                weight_out[room[i] + n_out[i]] = weight
                n_out[i] += 1


@nonallocating_kernel
def count_leaves(tree: OnlineTree, leaves: I64, leaf_out: I64, label_out: I32, count_out: F64) -> None:
    """Write what the nodes `leaves` have counted: entries (position in `leaves`, label, rows), in no order.

    The outputs have room for the sum of tree.classes.used over the leaves.
    """
    n = 0
    for i in range(len(leaves)):
        bits = np.int64(tree.classes.bits[leaves[i]])
        if bits < 0:
            continue
        start = tree.classes.start[leaves[i]]
        for slot in range(start, start + (np.int64(1) << bits)):
            if tree.classes.key[slot] >= 0:
                leaf_out[n] = i
                label_out[n] = tree.classes.key[slot]
                count_out[n] = tree.classes.value[slot, COUNT]
                n += 1
