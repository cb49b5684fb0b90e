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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.decorators import nonallocating_kernel as kernel
from service.trainers.lomtree.regressors import Row, Scratch, fetch_tables, score_of, train_node
from service.trainers.lomtree.tables import (
    fetch,
    find,
    insert,
)
from service.trainers.lomtree.tree import (
    COUNT,
    LEAF,
    N_ROWS,
    N_SCORED,
    N_WRONG,
    ROOT,
    SCORES,
    Budget,
    Integer,
    OnlineTree,
    child_of,
    fetch_children,
    may_split,
    refresh_least,
    split_leaf,
)

TIE = 1e-9
"""Mean scores that differ by no more are equal: sums in another order would differ so."""


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
def _is_wrong(tree: OnlineTree, leaf: Integer, row: Row) -> Any:
    """Return whether a leaf does not answer with one of a row's labels."""
    is_wrong = True
    for k in range(row.first_label, row.last_label):
        is_wrong &= row.labels[k] != tree.most_label[leaf]
    return is_wrong


@kernel
def _go_on(tree: OnlineTree, node: Integer, row: Row) -> Any:
    """Return where a row goes from an inner node that does not learn it; ask for what it needs there."""
    fetch_children(tree, node)
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
    fetch_tables(tree, node, row)
    while True:
        if tree.left[node] == LEAF:
            if answer >= 0:
                while tree.left[answer] != LEAF:
                    answer = _go_on(tree, answer, row)
                tree.state[N_WRONG] += _is_wrong(tree, answer, row)
                answer = np.int64(-1)
            _count_labels(tree, node, row)
            if not may_split(tree, node, budget):
                break
            split_leaf(tree, node, budget)
        else:
            fetch_children(tree, node)
            _count_labels(tree, node, row)
        before, score = train_node(tree, node, row, _direction(tree, node, row), budget.step, scratch)
        if answer == node:
            answer = child_of(tree, node, before)
        elif answer >= 0 and tree.left[answer] != LEAF:
            answer = _go_on(tree, answer, row)
        _note_score(tree, node, row, score)
        node = child_of(tree, node, score)
    tree.least[node] += 1
    refresh_least(tree, np.int64(tree.parent[node]))


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
