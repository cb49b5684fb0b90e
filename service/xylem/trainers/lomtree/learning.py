"""The online tree of LOMtree: rows come one after the other, and
each trains the nodes on its way down.

Source: Choromanska and Langford 2015, "Logarithmic Time Online Multiclass prediction", algorithm 1,
whose objective is equation 1 of Choromanska and Jain 2019: J(h) = 2 sum_i |pi_i P(h > 0) - P(h > 0,
i)|. Names of the paper are in brackets. Deviations:

* A row with several labels goes down once. It counts for each of them, and is steered by the mean
  of their mean scores; for one label this is the paper's rule.
* The row that makes a leaf split goes on to one of the two children, and counts there.
* A leaf splits only when its sibling has rows enough (WAIT), so that splits which separate nothing
  do not make a chain.
* The parent of the leaf that is given up may be the root: its sibling is the root then.
* The paper leaves the regressor open. Here it takes normalised adaptive gradient steps on the
  logistic loss (Ross, Mineiro, Langford 2013, algorithm 1). Vowpal Wabbit's has the absolute loss
  |h(x) - c| / 2, c in {-1, 1}, which did no better on digits and worse on generated classes.

Cost of a row: for each node on its way one pass to find the weights of its features, and two over
them; depth of the tree is logarithmic when the splits are balanced. A tree of many labels does not
fit in the caches: the values of a node, and those of a feature, lie together, and are asked for
while the node above is learnt. No memory is allocated. Deterministic.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem.trainers.lomtree.tables import fetch, find, insert, reserve
from xylem.trainers.lomtree.tree import (
    COUNT,
    LEAF,
    N_ROWS,
    N_SCORED,
    ROOT,
    SCALE,
    SCORES,
    SQUARES,
    WEIGHT,
    Budget,
    Integer,
    OnlineTree,
    child_of,
    fetch_children,
    may_split,
    refresh_least,
    split_leaf,
)
from xylem_store import F32, F64, I32, I64
from xylem_store import nonallocating_inlined as inlined
from xylem_store import nonallocating_kernel as kernel

_VALUE_MIN = 2.0**-100
"""Feature values nearer to 0 are taken for 0: the weight of a value is of the order
of its inverse.
"""

GRADIENT_MIN = 1e-6
"""A row whose score is this right is not stepped on: squares of
smaller gradients vanish in 32 bits.
"""

MOVE_MAX = 2.0  # a step moves the score of its row by no more


class Row(NamedTuple):
    """A row to learn: features[first:last] with their values, and
    labels[first_label:last_label].
    """

    features: I32
    values: F32
    first: Integer
    last: Integer
    labels: I32
    first_label: Integer
    last_label: Integer


class Scratch(NamedTuple):
    """Workspace for the features of a row: slots, values over scales, and their rates."""

    slot: I64
    scaled: F64
    rate: F64


def make_scratch(longest: int) -> Scratch:
    """Return workspace for rows of at most so many features."""
    return Scratch(np.empty(longest, np.int64), np.empty(longest), np.empty(longest))


@inlined
def fetch_tables(tree: OnlineTree, node: Integer, row: Row) -> None:
    """Ask for what a node knows of a row's features and labels."""
    fetch(tree.weights, node, row.features, row.first, row.last)
    fetch(tree.classes, node, row.labels, row.first_label, row.last_label)


@inlined
def _look_up(
    tree: OnlineTree, node: Integer, row: Row, scratch: Scratch
) -> tuple[Any, float, float]:
    """Find the weights of a row's features, making those that the node lacks; widen their scales.

    Source: Ross, Mineiro, Langford 2013, algorithm 1, with v = w * s, which a wider scale leaves
    alone, and H the squares over s^2. Returns (weights found, h(x), sum of squared scaled values);
    slots and scaled values are in `scratch`. A feature that the pool has no room for counts as
    absent.
    """
    n = np.int64(0)
    score = np.float64(tree.bias[node, WEIGHT])
    squares = 1.0
    if tree.weights.bits[node] < 0:
        reserve(tree.weights, node, row.last - row.first)
    block = tree.weights.start[node]
    for e in range(row.first, row.last):
        value = np.float64(row.values[e])
        size = abs(value)
        if size < _VALUE_MIN:
            continue
        slot = insert(tree.weights, node, np.int64(row.features[e]))
        if slot < 0:
            continue
        scale = np.float64(tree.weights.value[slot, SCALE])
        if size > scale:
            narrower = scale / size
            tree.weights.value[slot, SQUARES] *= np.float32(narrower * narrower)
            tree.weights.value[slot, SCALE] = np.float32(size)
            scale = size
        scaled = value / scale
        score += np.float64(tree.weights.value[slot, WEIGHT]) * scaled
        squares += scaled * scaled
        scratch.slot[n] = slot
        scratch.scaled[n] = scaled
        n += 1
    # the table has moved under the slots that were found first
    if tree.weights.start[node] != block:
        n = np.int64(0)
        for e in range(row.first, row.last):
            slot = find(tree.weights, node, np.int64(row.features[e]))
            if slot >= 0 and np.float64(abs(row.values[e])) >= _VALUE_MIN:
                scratch.slot[n] = slot
                n += 1
    return n, score, squares


@inlined
def train_node(
    tree: OnlineTree, node: Integer, row: Row, direction: float, step: float, scratch: Scratch
) -> Any:
    """Take a step of a node's regressor towards `direction`; return the score after it.

    Source: Ross, Mineiro, Langford 2013, algorithm 1, the loss being log(1 + exp(-direction *
    h(x))). A step moves the score by no more than MOVE_MAX; there is none where the gradient is
    below GRADIENT_MIN.

    What the next node knows of the row is asked for as soon as that node can be told, so that it
    comes while the step is taken.
    """
    n, score, squares = _look_up(tree, node, row, scratch)
    fetch_tables(tree, child_of(tree, node, score), row)
    if direction * score <= 0.0:  # the step may take the row to the other child
        fetch_tables(tree, child_of(tree, node, direction), row)
    gradient = 1.0 / (1.0 + np.exp(direction * score))
    if gradient < GRADIENT_MIN:
        return score
    square = gradient * gradient
    tree.norm[node] += squares
    tree.n_trained[node] += 1
    tree.bias[node, SQUARES] += np.float32(square)
    bias_rate = 1.0 / np.sqrt(np.float64(tree.bias[node, SQUARES]))
    gain = bias_rate
    for i in range(n):
        slot = scratch.slot[i]
        scaled = scratch.scaled[i]
        total = tree.weights.value[slot, SQUARES] + np.float32(square * scaled * scaled)
        tree.weights.value[slot, SQUARES] = total
        scratch.rate[i] = scaled / np.sqrt(np.float64(total)) if total > 0.0 else 0.0
        gain += scaled * scratch.rate[i]
    common = np.sqrt(np.float64(tree.n_trained[node]) / tree.norm[node])
    gain *= common
    move = direction * min(step * gradient, MOVE_MAX / gain)
    new_score = score + move * gain
    tree.bias[node, WEIGHT] += np.float32(move * common * bias_rate)
    for i in range(n):
        tree.weights.value[scratch.slot[i], WEIGHT] += np.float32(move * common * scratch.rate[i])
    return new_score


@inlined
def score_of(tree: OnlineTree, node: Integer, rows: SparseRows, row: Integer) -> Any:
    """Return h(x) of a node."""
    score = np.float64(tree.bias[node, WEIGHT])
    for e in range(rows.indptr[row], rows.indptr[row + 1]):
        slot = find(tree.weights, node, np.int64(rows.indices[e]))
        if slot >= 0:
            weight = tree.weights.value[slot, WEIGHT] / tree.weights.value[slot, SCALE]
            score += np.float64(weight) * np.float64(rows.values[e])
    return score


TIE = 1e-9  # mean scores that differ by no more are equal: sums in another order would differ so


@inlined
def _count_labels(tree: OnlineTree, node: Integer, row: Row) -> None:
    """Count a row's labels at a node."""
    tree.n_rows[node] += 1
    for k in range(row.first_label, row.last_label):
        slot = insert(tree.classes, node, np.int64(row.labels[k]))
        if slot >= 0:
            tree.n_counted[node] += 1
            tree.classes.value[slot, COUNT] += 1.0
            tree.most[node] = max(tree.most[node], np.int64(tree.classes.value[slot, COUNT]))


@inlined
def _direction(tree: OnlineTree, node: Integer, row: Row) -> Any:
    """Return where to steer a row: 1.0 unless the mean score of its labels is below the node's."""
    total = 0.0
    for k in range(row.first_label, row.last_label):
        slot = find(tree.classes, node, np.int64(row.labels[k]))
        if slot >= 0 and tree.classes.value[slot, N_SCORED] > 0.0:
            total += tree.classes.value[slot, SCORES] / tree.classes.value[slot, N_SCORED]
    mean = tree.score[node] / np.float64(tree.n_scored[node]) if tree.n_scored[node] > 0 else 0.0
    return -1.0 if mean - total / np.float64(row.last_label - row.first_label) > TIE else 1.0


@inlined
def _note_score(tree: OnlineTree, node: Integer, row: Row, score: float) -> None:
    """Add a row's score to the sums of its labels and of the node."""
    for k in range(row.first_label, row.last_label):
        slot = find(tree.classes, node, np.int64(row.labels[k]))
        if slot >= 0:
            tree.classes.value[slot, N_SCORED] += 1.0
            tree.classes.value[slot, SCORES] += score
    tree.score[node] += score * np.float64(row.last_label - row.first_label)
    tree.n_scored[node] += row.last_label - row.first_label


@inlined
def _learn(tree: OnlineTree, budget: Budget, row: Row, scratch: Scratch) -> None:
    """Learn a row on its way down the tree."""
    node = np.int64(tree.state[ROOT])
    fetch_tables(tree, node, row)
    while True:
        if tree.left[node] == LEAF:
            _count_labels(tree, node, row)
            if not may_split(tree, node, budget):
                break
            split_leaf(tree, node, budget)
        else:
            fetch_children(tree, node)
            _count_labels(tree, node, row)
        score = train_node(tree, node, row, _direction(tree, node, row), budget.step, scratch)
        _note_score(tree, node, row, score)
        node = child_of(tree, node, score)
    tree.least[node] += 1
    refresh_least(tree, np.int64(tree.parent[node]))


@kernel
def learn_rows(
    tree: OnlineTree,
    budget: Budget,
    rows: SparseRows,
    labels: LabelRows,
    order: I32,
    scratch: Scratch,
) -> None:
    """Learn from the rows in `order`, one after the other; rows without labels are passed over.

    The arrays of the tree must have room for 2 * budget.splits + 1 nodes, and `scratch` for the
    longest row.
    """
    for row in order:
        first = labels.indptr[row]
        last = labels.indptr[row + 1]
        if first < last:
            tree.state[N_ROWS] += 1
            entries = rows.indices, rows.values, rows.indptr[row], rows.indptr[row + 1]
            _learn(tree, budget, Row(*entries, labels.indices, first, last), scratch)


@kernel
def route_rows(tree: OnlineTree, rows: SparseRows, order: I32, waiting: I64, leaf_out: I32) -> None:
    """Write the leaf of every row: right where h(x) > 0.

    All rows of a node are scored one after the other, so that its weights come to the cache once.

    order    int32[n]: the rows to send, each once; they are put in another order
    waiting  int64[N + 1, 2]: workspace, for a tree that may have N nodes
    """
    waiting[0, 0], waiting[0, 1] = tree.state[ROOT], len(order)
    n_waiting = 1
    begin = 0
    while n_waiting:
        n_waiting -= 1
        node = waiting[n_waiting, 0]
        end = waiting[n_waiting, 1]
        if tree.left[node] == LEAF:
            for i in range(begin, end):
                leaf_out[order[i]] = node
            begin = end
            continue
        position = begin
        right = end
        while position < right:
            row = order[position]
            if score_of(tree, node, rows, row) > 0.0:
                right -= 1
                order[position] = order[right]
                order[right] = row
            else:
                position += 1
        waiting[n_waiting, 0] = tree.right[node]
        waiting[n_waiting, 1] = end
        waiting[n_waiting + 1, 0] = tree.left[node]
        waiting[n_waiting + 1, 1] = right
        n_waiting += 2
