"""The online tree of LOMtree: it learns from one row after the other.

Each row trains the nodes on its way down the tree.

Source: Choromanska and Langford 2015, "Logarithmic Time Online Multiclass prediction", algorithm 1,
whose objective is equation 1 of Choromanska and Jain 2019: J(h) = 2 sum_i |pi_i P(h > 0) - P(h > 0,
i)|. Names of the paper are in brackets. Deviations:

* A row with several labels goes down once. It is counted for each of its labels, and its direction
  follows from the mean of their mean scores; for one label this is the paper's rule.
* The row that makes a leaf split goes on to one of the two children, and is counted there.
* A leaf splits only if its sibling has enough rows (WAIT). Otherwise splits that separate nothing
  would follow one another in a long chain.
* The parent of the leaf that is given up may be the root; then the leaf's sibling becomes the root.
* The paper does not specify the regressor. Here it takes normalised adaptive gradient steps on the
  logistic loss (Ross, Mineiro, Langford 2013, algorithm 1). Vowpal Wabbit uses the absolute loss
  |h(x) - c| / 2, c in {-1, 1}, which was not better on digits and worse on generated classes.

Cost of a row: at each node on its way, one pass to find the weights of its features, and two passes
over them; the depth of the tree is logarithmic if the splits are balanced. A tree of many labels
does not fit in the caches: therefore the values of a node, and those of a feature, are stored
together, and are prefetched while the node above is trained. No memory is allocated. Deterministic.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem.trainers.lomtree.tables import Integer, fetch, find, insert, reserve
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
    OnlineTree,
    child_of,
    fetch_children,
    may_split,
    refresh_least,
    split_leaf,
)
from xylem_store import F32, F64, I32, I64, nonallocating_inlined, nonallocating_kernel

# Feature values with a smaller absolute value count as 0: the weight of a feature is of the order
# of the inverse of its values, and would become too large.
_VALUE_MIN = 2.0**-100

# A row with a smaller gradient takes no step: in float32 the gradient's square would be lost.
GRADIENT_MIN = 1e-6

MOVE_MAX = 2.0  # a step changes the score of its row by at most this


class Row(NamedTuple):
    """A row: features[first:last], values[first:last] and labels[first_label:last_label]."""

    features: I32
    values: F32
    first: Integer
    last: Integer
    labels: I32
    first_label: Integer
    last_label: Integer


class Scratch(NamedTuple):
    """Workspace for the features of a row: their slots, scaled values (value / scale) and rates."""

    slot: I64
    scaled: F64
    rate: F64


def make_scratch(longest: int) -> Scratch:
    """Return the workspace for rows of at most `longest` features."""
    return Scratch(np.empty(longest, np.int64), np.empty(longest), np.empty(longest))


@nonallocating_inlined
def fetch_tables(tree: OnlineTree, node: Integer, row: Row) -> None:
    """Prefetch the slots of a node's tables for the features and labels of a row."""
    fetch(tree.weights, node, row.features, row.first, row.last)
    fetch(tree.classes, node, row.labels, row.first_label, row.last_label)


@nonallocating_inlined
def _look_up(
    tree: OnlineTree, node: Integer, row: Row, scratch: Scratch
) -> tuple[Any, float, float]:
    """Find the weights of a row's features, adding those that the node lacks; widen their scales.

    Source: Ross, Mineiro, Langford 2013, algorithm 1, with v = w * s, which does not change when a
    scale becomes wider, and H the sum of squares divided by s^2. Returns (number of weights found,
    h(x), sum of squared scaled values); slots and scaled values are in `scratch`. A feature for
    which the pool has no room counts as absent.
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
    # the table has moved while features were inserted: the first slots are no longer valid
    if tree.weights.start[node] != block:
        n = np.int64(0)
        for e in range(row.first, row.last):
            slot = find(tree.weights, node, np.int64(row.features[e]))
            if slot >= 0 and np.float64(abs(row.values[e])) >= _VALUE_MIN:
                scratch.slot[n] = slot
                n += 1
    return n, score, squares


@nonallocating_inlined
def train_node(
    tree: OnlineTree, node: Integer, row: Row, direction: float, step: float, scratch: Scratch
) -> Any:
    """Take a step of a node's regressor towards `direction`; return the score after it.

    Source: Ross, Mineiro, Langford 2013, algorithm 1, with the loss log(1 + exp(-direction *
    h(x))). A step changes the score by at most MOVE_MAX; there is no step if the gradient is below
    GRADIENT_MIN.

    The table entries of the next node are prefetched as soon as that node can be guessed, so that
    they arrive while the step is taken.
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


@nonallocating_inlined
def score_of(tree: OnlineTree, node: Integer, rows: SparseRows, row: Integer) -> Any:
    """Return h(x) of a node."""
    score = np.float64(tree.bias[node, WEIGHT])
    for e in range(rows.indptr[row], rows.indptr[row + 1]):
        slot = find(tree.weights, node, np.int64(rows.indices[e]))
        if slot >= 0:
            weight = tree.weights.value[slot, WEIGHT] / tree.weights.value[slot, SCALE]
            score += np.float64(weight) * np.float64(rows.values[e])
    return score


TIE = 1e-9  # mean scores that differ by less count as equal: it may come from the order of a sum


@nonallocating_inlined
def _count_labels(tree: OnlineTree, node: Integer, row: Row) -> None:

    tree.n_rows[node] += 1
    for k in range(row.first_label, row.last_label):
        slot = insert(tree.classes, node, np.int64(row.labels[k]))
        if slot >= 0:
            tree.n_counted[node] += 1
            tree.classes.value[slot, COUNT] += 1.0
            tree.most[node] = max(tree.most[node], np.int64(tree.classes.value[slot, COUNT]))


@nonallocating_inlined
def _direction(tree: OnlineTree, node: Integer, row: Row) -> Any:
    """Return the direction of a row: -1.0 if its labels' mean score is below the node's, or 1.0."""
    total = 0.0
    for k in range(row.first_label, row.last_label):
        slot = find(tree.classes, node, np.int64(row.labels[k]))
        if slot >= 0 and tree.classes.value[slot, N_SCORED] > 0.0:
            total += tree.classes.value[slot, SCORES] / tree.classes.value[slot, N_SCORED]
    mean = tree.score[node] / np.float64(tree.n_scored[node]) if tree.n_scored[node] > 0 else 0.0
    return -1.0 if mean - total / np.float64(row.last_label - row.first_label) > TIE else 1.0


@nonallocating_inlined
def _note_score(tree: OnlineTree, node: Integer, row: Row, score: float) -> None:
    """Add a row's score to the sums of its labels and of the node."""
    for k in range(row.first_label, row.last_label):
        slot = find(tree.classes, node, np.int64(row.labels[k]))
        if slot >= 0:
            tree.classes.value[slot, N_SCORED] += 1.0
            tree.classes.value[slot, SCORES] += score
    tree.score[node] += score * np.float64(row.last_label - row.first_label)
    tree.n_scored[node] += row.last_label - row.first_label


@nonallocating_inlined
def _learn(tree: OnlineTree, budget: Budget, row: Row, scratch: Scratch) -> None:

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


@nonallocating_kernel
def learn_rows(
    tree: OnlineTree,
    budget: Budget,
    rows: SparseRows,
    labels: LabelRows,
    order: I32,
    scratch: Scratch,
) -> None:
    """Learn from the rows in `order`, one after the other; rows without labels are skipped.

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


@nonallocating_kernel
def route_rows(tree: OnlineTree, rows: SparseRows, order: I32, waiting: I64, leaf_out: I32) -> None:
    """Write the leaf that each row reaches; a row goes to the right child if h(x) > 0.

    All rows of a node are scored one after the other, so that its weights are loaded into the cache
    once.

    order    int32[n]: the rows, each once; on return in another order
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
