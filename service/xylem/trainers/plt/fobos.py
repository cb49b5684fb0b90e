"""Logistic node classifiers of label trees by stochastic gradient descent, one row after the other.

Source: Jasinska et al. 2016, section 5.1 and appendix B; the step is FOBOS (Duchi and Singer 2009)
with the penalty lambda |w|^2 / 2 and Bottou's step size. A classifier's update t = 0, 1, ... is

    w <- (w - g_t * gradient) / (1 + lambda * g_t),   g_t = g / (1 + lambda * g * t)

which changes every weight. With Pi_t = product over i < t of (1 + lambda * g_i) and v = Pi_t * w it
becomes v <- v - Pi_t * g_t * gradient: only weights of the row's features change. For this step
size the product telescopes: Pi_t = 1 + lambda * g * t, and Pi_t * g_t = g. Therefore a classifier
only stores t, and no long product is rounded. (Deviation: the paper's Pi_t includes step t; with it
the factor would be g * (1 + lambda * g_t), which is not the update that the paper starts from.)

The classifiers of a node's children are updated together, on the rows that carry a label under the
node. At the root they are updated on all rows, so that they include the root's own classifier,
P(any label).
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem_store import F32, I32, I64, U8, U64, inlined, kernel, slot_next, slot_start

Integer = int | np.int64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE_U64 = np.uint64(1)

NEW = 0  # the key of an empty slot


class Topology(NamedTuple):
    """A tree over K labels, its N nodes numbered breadth-first from the root, 0.

    child_ptr  int32[N + 1]  children of node n are child_ptr[n] .. child_ptr[n + 1] - 1
    parent     int32[N]      -1 at the root
    leaf       int32[K]      the leaf of each label, -1 where it has none
    shard      int32[N]      the shard that has the weights of an inner node's children; -1 at
               leaves
    """

    child_ptr: I32
    parent: I32
    leaf: I32
    shard: I32


class Descent(NamedTuple):
    """The options of the training.

    rate     g of the module's docstring, > 0
    penalty  lambda of the module's docstring, >= 0
    epochs   number of passes over the rows
    prune    weights with a smaller absolute value are left out of the trees
    """

    rate: float
    penalty: float
    epochs: int
    prune: float


class Shard(NamedTuple):
    """The weights of some inner nodes: for a pair (node, feature) v = Pi_t * w of each child.

    number                   number of the shard in `Topology.shard`
    seed                     seed of the hash table `keys`, from `new_seed`
    keys   uint64[slots]     0: empty; else 1 + node * n_features + feature; a quarter stays empty
    place  int64[slots]      start of the pair's weights in `pool`
    pool   float32[words]
    bias   float32[N]        v of the constant feature, by child; all shards share `bias` and
                             `steps`
    steps  int64[N]          number of updates so far, t, by inner node
    used   int64[3]          number of pairs; of words used in `pool`; and how often a feature was
                             skipped because `pool` or `keys` was full
    """

    number: int
    seed: int
    keys: U64
    place: I64
    pool: F32
    bias: F32
    steps: I64
    used: I64


class Marks(NamedTuple):
    """Workspace: the nodes on the paths of a row.

    visit   int32[N]       1 + the position of the last row that marked the node
    path    int32[N]       the nodes that the current row has marked
    place   int64[..]      start of the weights of each of the row's features; -1: it has none
    step    float32[..]    margin, then step, of each child of a node
    """

    visit: I32
    path: I32
    place: I64
    step: F32


@inlined
def _find(shard: Shard, key: np.uint64, width: Integer) -> Any:
    """Return the start of the weights of a pair, which is added if it is new.

    Returns -1 if there is no room for it.
    """
    n_slots = len(shard.keys)
    slot = slot_start((key * np.uint64(shard.seed) * _GOLDEN) >> np.uint64(32), n_slots)
    while shard.keys[slot] != NEW:
        if shard.keys[slot] == key:
            return shard.place[slot]
        slot = slot_next(slot, n_slots)
    # a quarter of the slots stays empty: in an almost full table a search would read most slots
    if shard.used[1] + width > len(shard.pool) or 4 * (shard.used[0] + 1) > 3 * n_slots:
        shard.used[2] += 1
        return -1
    shard.keys[slot] = key
    shard.place[slot] = shard.used[1]
    shard.used[0] += 1
    shard.used[1] += width
    return shard.place[slot]


@inlined
def _mark(tree: Topology, labels: I32, now: int, marks: Marks) -> int:
    """Mark the root, the leaves of the labels and all nodes above these; return their number.

    now  1 + the position of the row
    """
    marks.visit[0] = now
    marks.path[0] = 0
    n = 1
    for label in labels:
        node = tree.leaf[label]
        while node >= 0 and marks.visit[node] != now:
            marks.visit[node] = now
            marks.path[n] = node
            n += 1
            node = tree.parent[node]
    return n


@inlined
def _update(
    tree: Topology,
    shard: Shard,
    node: int,
    indices: I32,
    values: F32,
    base: Any,
    descent: Descent,
    marks: Marks,
) -> None:
    """Take a step of the classifiers of a node's children on one row; marked children are positive.

    base  uint64: key of the pair of the node and feature 0
    """
    place = marks.place
    step = marks.step
    pool = shard.pool
    first = np.int64(tree.child_ptr[node])
    width = np.int64(tree.child_ptr[node + 1]) - first
    for c in range(width):
        step[c] = shard.bias[first + c]
    for e in range(len(indices)):
        offset = _find(shard, base + np.uint64(indices[e]), width)
        place[e] = offset
        if offset >= 0:
            for c in range(width):
                step[c] += values[e] * pool[offset + c]
    shrunk = np.float32(1.0 / (1.0 + descent.penalty * descent.rate * shard.steps[node]))
    for c in range(width):
        positive = 1.0 if marks.visit[first + c] == marks.visit[0] else 0.0
        probability = 1.0 / (1.0 + np.exp(-np.float64(step[c] * shrunk)))
        step[c] = np.float32(descent.rate * (positive - probability))
        shard.bias[first + c] += step[c]
    for e in range(len(indices)):
        offset = place[e]
        if offset >= 0:
            for c in range(width):
                pool[offset + c] += values[e] * step[c]
    shard.steps[node] += 1


@kernel
def train_shard(
    rows: SparseRows,
    labels: LabelRows,
    order: I32,
    tree: Topology,
    shard: Shard,
    descent: Descent,
    stop: U8,
) -> None:
    """Take the steps of all nodes of a shard on the rows, in their `order`.

    labels  labels of the rows; a row without any is a negative at the root, and nothing else
    order   int32[n]  positions of rows, fewer than 2^31 - 1
    stop    uint8[1]  set it to end early; the weights are then unfinished

    A pair (node, feature) gets weights when a row has it for the first time. If the shard is full,
    it gets none, its weights count as 0, and used[2] is increased. Cost: for each marked node of
    the shard, the row's non-zeros times the node's children, twice. Deterministic: nodes do not
    influence each other, so the bits of the weights do not depend on how nodes are dealt to shards
    (with enough room) and shards to threads.
    """
    longest = widest = np.int64(0)
    for row in range(len(rows.indptr) - 1):
        longest = max(longest, rows.indptr[row + 1] - rows.indptr[row])
    for node in range(len(tree.parent)):
        widest = max(widest, np.int64(tree.child_ptr[node + 1]) - np.int64(tree.child_ptr[node]))
    marks = Marks(
        visit=np.zeros(len(tree.parent), np.int32),
        path=np.empty(len(tree.parent), np.int32),
        place=np.empty(longest, np.int64),
        step=np.empty(widest, np.float32),
    )
    for k in range(len(order)):
        if stop[0]:
            return
        row = order[k]
        cut = slice(rows.indptr[row], rows.indptr[row + 1])
        indices = rows.indices[cut]
        values = rows.values[cut]
        row_labels = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        for m in range(_mark(tree, row_labels, k + 1, marks)):
            node = marks.path[m]
            if tree.shard[node] == shard.number:
                base = np.uint64(node) * np.uint64(rows.n_features) + _ONE_U64
                _update(tree, shard, node, indices, values, base, descent, marks)


@kernel
def add_pairs(tree: Topology, shard: Shard, keys: U64, n_features: int) -> None:
    """Add pairs to a shard, one after the other, as long as it has room.

    keys  of nodes that belong to the shard, each once
    """
    for key in keys:
        node = np.int64((key - _ONE_U64) // np.uint64(n_features))
        _find(shard, key, np.int64(tree.child_ptr[node + 1]) - np.int64(tree.child_ptr[node]))


def used_keys(keys: U64, place: I64) -> tuple[U64, I64]:
    """Return the keys of a shard, ascending, and the start of the weights of each."""
    slots = np.flatnonzero(keys != NEW)
    slots = slots[np.argsort(keys[slots])]
    return keys[slots], place[slots]
