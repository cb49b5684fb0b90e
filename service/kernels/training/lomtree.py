"""The online tree of LOMtree: rows come one after the other, and each trains the nodes on its way down.

Source: Choromanska and Langford 2015, "Logarithmic Time Online Multiclass prediction", algorithm 1, whose
objective is equation 1 of Choromanska and Jain 2019: J(h) = 2 sum_i |pi_i P(h > 0) - P(h > 0, i)|. Names of
the paper are in brackets. Deviations:

* A row with several labels goes down once. It counts for each of them, and is steered by the mean of their
  mean scores; for one label this is the paper's rule.
* The row that makes a leaf split goes on to one of the two children, and counts there.
* A leaf splits only when its sibling has rows enough (WAIT), so that splits which separate nothing do not
  make a chain.
* The parent of the leaf that is given up may be the root: its sibling is the root then.
* The paper leaves the regressor open. Here it takes normalised adaptive gradient steps on the logistic loss
  (Ross, Mineiro, Langford 2013, algorithm 1). Vowpal Wabbit's has the absolute loss |h(x) - c| / 2, c in
  {-1, 1}, which did no better on digits and worse on generated classes.

Cost of a row: for each node on its way one pass to find the weights of its features, and two over them; depth
of the tree is logarithmic when the splits are balanced. A tree of many labels does not fit in the caches: the
values of a node, and those of a feature, lie together, and are asked for while the node above is learnt. No
memory is allocated. Deterministic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.vectors import prefetch
from service.kernels.training.lomtree_tables import (
    LINE_BYTES,
    TABLE,
    Pool,
    aligned,
    fetch,
    find,
    insert,
    make_pool,
    release,
    reserve,
)

Integer = int | np.int64

LEAF = -1

ROOT, N_NODES, N_SPLITS, N_SWAPS, N_ROWS, N_WRONG = range(6)
"""What `OnlineTree.state` holds: see there."""

WEIGHT, SQUARES, SCALE = range(3)
"""Values of a weight: v, H, s. A feature of value x adds v * x / s to the score."""

COUNT, N_SCORED, SCORES = range(3)
"""Values of a class at a node: rows counted [l], rows scored [n], the sum of their scores [m]."""

_VALUE_MIN = 2.0**-100
"""Feature values nearer to 0 are taken for 0: the weight of a value is of the order of its inverse."""

GRADIENT_MIN = 1e-6
"""A row whose score is this right is not stepped on: squares of smaller gradients vanish in 32 bits."""

TIE = 1e-9
"""Mean scores that differ by no more are equal: sums in another order would differ so."""

MOVE_MAX = 2.0
"""A step moves the score of its row by no more."""


_NODE = np.dtype(
    [
        *((name, np.int32) for name in ("parent", "left", "right", "most_label")),
        *((name, TABLE) for name in ("weights", "classes")),
        ("bias", np.float32, 2),
        *((name, np.int64) for name in ("n_trained", "least", "n_rows", "n_counted", "most", "n_scored")),
        *((name, np.float64) for name in ("score", "norm", "unused")),
    ]
)
"""All that is known of a node but the contents of its tables, in two cache lines."""

NODE_BYTES = _NODE.itemsize
_NODE_WORDS, _LINE_WORDS = NODE_BYTES // 8, LINE_BYTES // 8


WAIT = 16
"""A leaf splits only when its sibling has one of so many of its rows, or so many: else the split above them
has separated nothing yet, and one below would separate no more. On debtags-src, whose rows have several
labels, the mean depth of 2,400 leaves was 139 without."""


class OnlineTree(NamedTuple):
    """A tree that learns; N nodes at most, in no order. What is of N nodes are views of `nodes`.

    parent      int32[N]    -1 at the root
    left        int32[N]    child for h(x) <= 0; LEAF at a leaf
    right       int32[N]    child for h(x) > 0
    least       int64[N]    [C] leaf: rows that reached it, with those that it was given when it was made;
                            inner node: the least of its leaves'
    n_rows      int64[N]    rows counted since the node was made
    n_counted   int64[N]    their labels
    most        int64[N]    rows of the commonest label
    most_label  int32[N]    that label; of a new leaf its parent's; -1 before any row
    score       float64[N]  sum of scores over rows and their labels, since the node has children
    n_scored    int64[N]    how many: score / n_scored is the node's mean score [E]
    bias        float32[N, 2]  v and H of the constant feature
    norm        float64[N]  sum over the rows trained on of the squares of their values, each over its scale
    n_trained   int64[N]    rows trained on
    nodes       int64[N * 16]  _NODE, node by node, so that a node's values share their cache lines
    state       int64[6]    root, nodes made, splits, swaps, rows learnt, rows whose label the tree did not
                            answer before it learnt them
    weights     the weights of the nodes' regressors, float32 (v, H, s) by feature
    classes     what is known of each class at each node, float64 (l, n, m) by label
    """

    parent: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    least: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    n_counted: NDArray[np.int64]
    most: NDArray[np.int64]
    most_label: NDArray[np.int32]
    score: NDArray[np.float64]
    n_scored: NDArray[np.int64]
    bias: NDArray[np.float32]
    norm: NDArray[np.float64]
    n_trained: NDArray[np.int64]
    nodes: NDArray[np.int64]
    state: NDArray[np.int64]
    weights: Pool
    classes: Pool


class Budget(NamedTuple):
    """What learning may use.

    splits           inner nodes, at most
    swap_resistance  [R_S] a leaf takes over the place of the least-used one when its rows of other labels
                     than its commonest are more than so many times the rows of the least-used leaf
    step             learning rate of the regressors
    """

    splits: int
    swap_resistance: float
    step: float


class Row(NamedTuple):
    """A row to learn: features[first:last] with their values, and labels[first_label:last_label]."""

    features: NDArray[np.int32]
    values: NDArray[np.float32]
    first: Integer
    last: Integer
    labels: NDArray[np.int32]
    first_label: Integer
    last_label: Integer


class Scratch(NamedTuple):
    """Workspace for the features of a row: slots, values over scales, and their rates."""

    slot: NDArray[np.int64]
    scaled: NDArray[np.float64]
    rate: NDArray[np.float64]


def make_tree(n_nodes: int, weight_slots: int, class_slots: int) -> OnlineTree:
    """Return a tree that is a leaf without rows, and may grow to so many nodes."""
    nodes = aligned(n_nodes * NODE_BYTES).view(_NODE)
    nodes[:] = np.zeros(1, _NODE)
    nodes["parent"], nodes["left"], nodes["right"], nodes["most_label"] = -1, LEAF, LEAF, -1
    tree = OnlineTree(
        **{name: nodes[name] for name in OnlineTree._fields[:-4]},
        nodes=nodes.view(np.int64),
        state=np.zeros(6, np.int64),
        weights=make_pool(nodes["weights"], weight_slots, np.float32),
        classes=make_pool(nodes["classes"], class_slots, np.float64),
    )
    tree.state[N_NODES] = 1
    return tree


def make_scratch(longest: int) -> Scratch:
    """Return workspace for rows of at most so many features."""
    return Scratch(np.empty(longest, np.int64), np.empty(longest), np.empty(longest))


@inlined
def _set_leaf(tree: OnlineTree, node: Integer, parent: Integer) -> None:
    """Make a node a leaf that has seen nothing [SetNode]."""
    release(tree.weights, node)
    release(tree.classes, node)
    tree.parent[node] = parent
    tree.left[node] = LEAF
    tree.right[node] = LEAF
    tree.n_rows[node] = 0
    tree.n_counted[node] = 0
    tree.most[node] = 0
    tree.most_label[node] = tree.most_label[parent]
    tree.score[node] = 0.0
    tree.n_scored[node] = 0
    tree.bias[node, WEIGHT] = 0.0
    tree.bias[node, SQUARES] = 0.0
    tree.norm[node] = 0.0
    tree.n_trained[node] = 0


@inlined
def _refresh_least(tree: OnlineTree, node: Integer) -> None:
    """Bring `least` of a node and of those above it up to date [UpdateC]."""
    while node >= 0:
        least = min(tree.least[tree.left[node]], tree.least[tree.right[node]])
        if least == tree.least[node]:
            return
        tree.least[node] = least
        node = np.int64(tree.parent[node])


@kernel
def least_used_leaf(tree: OnlineTree) -> Any:
    """Return a leaf with the fewest rows; of several, the leftmost."""
    node = np.int64(tree.state[ROOT])
    while tree.left[node] != LEAF:
        left, right = np.int64(tree.left[node]), np.int64(tree.right[node])
        node = left if tree.least[left] <= tree.least[right] else right
    return node


@kernel
def _cut_out(tree: OnlineTree, leaf: Integer) -> Any:
    """Take a leaf and its parent out of the tree, the leaf's sibling taking the parent's place.

    Returns the parent. The leaf must not be the root.
    """
    parent = np.int64(tree.parent[leaf])
    above = np.int64(tree.parent[parent])
    sibling = np.int64(tree.right[parent] if tree.left[parent] == leaf else tree.left[parent])
    tree.parent[sibling] = above
    if above < 0:
        tree.state[ROOT] = sibling
    else:
        if tree.left[above] == parent:
            tree.left[above] = sibling
        else:
            tree.right[above] = sibling
        _refresh_least(tree, above)
    return parent


@inlined
def _may_split(tree: OnlineTree, leaf: Integer, budget: Budget) -> Any:
    """Return whether a leaf may have children: its rows differ, it need not wait, and there are nodes."""
    if tree.n_counted[leaf] == tree.classes.used[leaf] * tree.n_rows[leaf]:
        return False  # every row has all the labels
    parent = np.int64(tree.parent[leaf])
    if parent >= 0:
        sibling = np.int64(tree.left[parent]) + np.int64(tree.right[parent]) - leaf
        if WAIT * tree.n_rows[sibling] < min(tree.n_rows[leaf], WAIT * WAIT):
            return False
    if tree.state[N_SPLITS] < budget.splits:
        return True
    if tree.state[N_SPLITS] == 0:
        return False
    least = tree.least[tree.state[ROOT]]
    return tree.least[leaf] - tree.most[leaf] > budget.swap_resistance * (least + 1)


@kernel
def _split(tree: OnlineTree, leaf: Integer, budget: Budget) -> None:
    """Give a leaf two children: new ones, or the least-used leaf and its parent [Swap]."""
    if tree.state[N_SPLITS] < budget.splits:
        left = np.int64(tree.state[N_NODES])
        right = left + 1
        tree.state[N_NODES] += 2
        tree.state[N_SPLITS] += 1
    else:
        left = np.int64(least_used_leaf(tree))
        right = np.int64(_cut_out(tree, left))
        tree.state[N_SWAPS] += 1
    _set_leaf(tree, left, leaf)
    _set_leaf(tree, right, leaf)
    tree.left[leaf] = left
    tree.right[leaf] = right
    tree.least[left] = tree.least[leaf] // 2
    tree.least[right] = tree.least[leaf] - tree.least[left]
    _refresh_least(tree, np.int64(leaf))


@inlined
def _count_labels(tree: OnlineTree, node: Integer, row: Row) -> None:
    """Count a row's labels at a node."""
    tree.n_rows[node] += 1
    for k in range(row.first_label, row.last_label):
        slot = insert(tree.classes, node, np.int64(row.labels[k]))
        if slot >= 0:
            tree.n_counted[node] += 1
            tree.classes.value[slot, COUNT] += 1.0
            count = np.int64(tree.classes.value[slot, COUNT])
            if count > tree.most[node]:
                tree.most[node] = count
                tree.most_label[node] = row.labels[k]


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
def child_of(tree: OnlineTree, node: Integer, score: float) -> Any:
    """Return where a row of this score goes next: right where h(x) > 0."""
    return np.int64(tree.right[node] if score > 0.0 else tree.left[node])


@inlined
def _fetch_children(tree: OnlineTree, node: Integer) -> None:
    """Ask for what is known of a node's children."""
    for child in (np.int64(tree.left[node]), np.int64(tree.right[node])):
        prefetch(tree.nodes, child * _NODE_WORDS)
        prefetch(tree.nodes, child * _NODE_WORDS + _LINE_WORDS)


@inlined
def _fetch_tables(tree: OnlineTree, node: Integer, row: Row) -> None:
    """Ask for what a node knows of a row's features and labels."""
    fetch(tree.weights, node, row.features, row.first, row.last)
    fetch(tree.classes, node, row.labels, row.first_label, row.last_label)


@inlined
def _look_up(tree: OnlineTree, node: Integer, row: Row, scratch: Scratch) -> tuple[Any, float, float, float]:
    """Find the weights of a row's features, making those that the node lacks; widen their scales.

    Source: Ross, Mineiro, Langford 2013, algorithm 1, with v = w * s, which a wider scale leaves alone, and
    H the squares over s^2. Returns (weights found, h(x) before the scales were widened, h(x), sum of squared
    scaled values); slots and scaled values are in `scratch`. A feature that the pool has no room for counts
    as absent.
    """
    n = np.int64(0)
    score, narrowed, squares = np.float64(tree.bias[node, WEIGHT]), 0.0, 1.0
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
            if narrower > 0.0:
                weight = np.float64(tree.weights.value[slot, WEIGHT])
                narrowed += weight * (value / scale - value / size)
            tree.weights.value[slot, SQUARES] *= np.float32(narrower * narrower)
            tree.weights.value[slot, SCALE] = np.float32(size)
            scale = size
        scaled = value / scale
        score += np.float64(tree.weights.value[slot, WEIGHT]) * scaled
        squares += scaled * scaled
        scratch.slot[n] = slot
        scratch.scaled[n] = scaled
        n += 1
    if tree.weights.start[node] != block:  # the table has moved under the slots that were found first
        n = np.int64(0)
        for e in range(row.first, row.last):
            slot = find(tree.weights, node, np.int64(row.features[e]))
            if slot >= 0 and np.float64(abs(row.values[e])) >= _VALUE_MIN:
                scratch.slot[n] = slot
                n += 1
    return n, score + narrowed, score, squares


@inlined
def _train(
    tree: OnlineTree, node: Integer, row: Row, direction: float, step: float, scratch: Scratch
) -> tuple[float, float]:
    """Take a step of a node's regressor towards `direction`; return the scores before and after it.

    Source: Ross, Mineiro, Langford 2013, algorithm 1, the loss being log(1 + exp(-direction * h(x))). A step
    moves the score by no more than MOVE_MAX; there is none where the gradient is below GRADIENT_MIN.

    What the next node knows of the row is asked for as soon as that node can be told, so that it comes
    while the step is taken.
    """
    n, before, score, squares = _look_up(tree, node, row, scratch)
    _fetch_tables(tree, child_of(tree, node, score), row)
    if direction * score <= 0.0:  # the step may take the row to the other child
        _fetch_tables(tree, child_of(tree, node, direction), row)
    gradient = 1.0 / (1.0 + np.exp(direction * score))
    if gradient < GRADIENT_MIN:
        return before, score
    square = gradient * gradient
    tree.norm[node] += squares
    tree.n_trained[node] += 1
    tree.bias[node, SQUARES] += np.float32(square)
    bias_rate = 1.0 / np.sqrt(np.float64(tree.bias[node, SQUARES]))
    gain = bias_rate
    for i in range(n):
        slot, scaled = scratch.slot[i], scratch.scaled[i]
        total = tree.weights.value[slot, SQUARES] + np.float32(square * scaled * scaled)
        tree.weights.value[slot, SQUARES] = total
        scratch.rate[i] = scaled / np.sqrt(np.float64(total)) if total > 0.0 else 0.0
        gain += scaled * scratch.rate[i]
    common = np.sqrt(np.float64(tree.n_trained[node]) / tree.norm[node])
    gain *= common
    by = direction * min(step * gradient, MOVE_MAX / gain)
    after = score + by * gain
    tree.bias[node, WEIGHT] += np.float32(by * common * bias_rate)
    for i in range(n):
        tree.weights.value[scratch.slot[i], WEIGHT] += np.float32(by * common * scratch.rate[i])
    return before, after


@inlined
def score_of(
    tree: OnlineTree,
    node: Integer,
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    first: Integer,
    last: Integer,
) -> Any:
    """Return h(x) of a node."""
    score = np.float64(tree.bias[node, WEIGHT])
    for e in range(first, last):
        slot = find(tree.weights, node, np.int64(features[e]))
        if slot >= 0:
            weight = tree.weights.value[slot, WEIGHT] / tree.weights.value[slot, SCALE]
            score += np.float64(weight) * np.float64(values[e])
    return score


@inlined
def _is_wrong(tree: OnlineTree, leaf: Integer, row: Row) -> Any:
    """Return whether a leaf does not answer with one of a row's labels."""
    is_wrong = True
    for k in range(row.first_label, row.last_label):
        is_wrong &= row.labels[k] != tree.most_label[leaf]
    return is_wrong


@kernel
def _go_on(tree: OnlineTree, node: Integer, row: Row) -> Any:
    """Return where a row goes from an inner node that does not learn it; ask for what it needs there."""
    _fetch_children(tree, node)
    score = score_of(tree, node, row.features, row.values, row.first, row.last)
    child = child_of(tree, node, score)
    fetch(tree.weights, child, row.features, row.first, row.last)
    return child


@inlined
def _learn(tree: OnlineTree, budget: Budget, row: Row, scratch: Scratch) -> None:
    """Answer a row, and learn it.

    The tree as it was before the row answers it. Learning goes the same way until a step moves a score
    across 0; from there the two go on side by side, one learning, and neither changes what the other reads.
    """
    node = answer = np.int64(tree.state[ROOT])
    _fetch_tables(tree, node, row)
    while True:
        if tree.left[node] == LEAF:
            if answer >= 0:
                while tree.left[answer] != LEAF:
                    answer = _go_on(tree, answer, row)
                tree.state[N_WRONG] += _is_wrong(tree, answer, row)
                answer = np.int64(-1)
            _count_labels(tree, node, row)
            if not _may_split(tree, node, budget):
                break
            _split(tree, node, budget)
        else:
            _fetch_children(tree, node)
            _count_labels(tree, node, row)
        before, score = _train(tree, node, row, _direction(tree, node, row), budget.step, scratch)
        if answer == node:
            answer = child_of(tree, node, before)
        elif answer >= 0 and tree.left[answer] != LEAF:
            answer = _go_on(tree, answer, row)
        _note_score(tree, node, row, score)
        node = child_of(tree, node, score)
    tree.least[node] += 1
    _refresh_least(tree, np.int64(tree.parent[node]))


@kernel
def learn_rows(
    tree: OnlineTree,
    budget: Budget,
    indptr: NDArray[np.int64],
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    label_ptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    order: NDArray[np.int32],
    scratch: Scratch,
) -> None:
    """Learn from the rows in `order`, one after the other; rows without labels are passed over.

    Each row is answered before it is learnt (progressive validation). The arrays of the tree must have room
    for 2 * budget.splits + 1 nodes, and `scratch` for the longest row.
    """
    for i in range(len(order)):
        row = order[i]
        if label_ptr[row] < label_ptr[row + 1]:
            tree.state[N_ROWS] += 1
            entries = features, values, indptr[row], indptr[row + 1]
            _learn(tree, budget, Row(*entries, labels, label_ptr[row], label_ptr[row + 1]), scratch)
