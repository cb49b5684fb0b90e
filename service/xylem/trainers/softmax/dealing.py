"""Reassignment of the labels of one node to its children, by the statistics of the labels.

Source: Jernite, Choromanska and Sontag 2017, "Simultaneous Learning of Trees and Representations
for Extreme Classification and Density Estimation": algorithm 2 (well-formed trees), its variant for
trees of bounded depth in the supplement, equations 10 and 12. Pairs of a label and a child are
taken in the order of their gradient, the largest first, as long as the child has room. Deviations:

* Pairs with equal gradients are ordered by the difference p_{j|i} - p_j, the larger first, then by
  label, then by child.
* Labels without statistics at the node come last, and are dealt so that the masses become even.
* q_i is the label's share of the rows of those labels of the node that have statistics.
* No child takes all labels of a node.
* A label keeps its child unless another is better by `margin` standard errors of its statistics.
* Frequent labels first get leaves of their own (`alone`), as in Huffman's tree.
"""

from typing import NamedTuple

import numpy as np

from xylem.trainers.softmax.known import branch_at, probabilities_of
from xylem.trainers.softmax.tree import LearningState, SoftmaxTree
from xylem_store import F32, F64, I32, I64, inlined

_CLOSED = 1 << 40  # size of a child that takes no more labels


class Rule(NamedTuple):
    """The rule by which labels are assigned to children.

    depth    most levels of nodes: at level h a child has at most M^(depth - h - 1) labels; 0: no
             bound
    slack    a child with slack / M of its node's rows or more takes no more labels; 0: no bound.
             It does not apply if all children that have room by `depth` have reached it
    alone    the most frequent labels get a leaf of their own, one after the other, as long as the
             label has at least this share of (rows left / children left). Half of it is enough for
             a label that has a leaf at the node already, if margin > 0. 0: no label gets one
    times_p  whether to use equation 12 instead of 10
    margin   a label moves only if the difference p_{j|i} - p_j of another child is larger than that
             of its old child by this many standard errors. Labels that do not move are dealt first;
             so are all labels of a node with at most M labels, each of which becomes a leaf. 0: the
             old children of labels are not taken into account

    If depth and slack are 0 the tree is well-formed: the number of labels of each node is 1 modulo
    M - 1, counted with padding labels (algorithm 2).
    """

    depth: int
    slack: float
    alone: float
    times_p: bool
    margin: float


class Dealing(NamedTuple):
    """Workspace for the labels of a node.

    p, g, d    float32[labels, M]  p_{j|i}; the gradient; the difference p_{j|i} - p_j
    n_rows     int64[labels]  number of rows from which p is computed
    old_child  int64[labels]  child of a label in the old tree; -1: none, or not taken into account
    best       int64[labels]  best open child of a label
    heap       int64[labels]  labels, as a heap by their best pairs
    child      int64[labels]  child that a label was dealt to; -1: none yet
    size       int64[M]       number of labels of a child
    mass       float64[M]     sum of the shares of the labels of a child
    left       int64[2]       labels left; and labels needed to complete the children
    room       float64[1]     a child with this mass or more takes no more labels
    """

    p: F32
    g: F32
    d: F32
    n_rows: I64
    old_child: I64
    best: I64
    heap: I64
    child: I64
    size: I64
    mass: F64
    left: I64
    room: F64


@inlined
def _capacity_of(n: int, n_children: int, level: int, rule: Rule) -> int:
    """Return the greatest number of labels that a child of a node with n labels may have.

    Return 0 if the tree is well-formed (`Rule`).
    """
    if rule.depth == 0 and rule.slack == 0:
        return 0
    if n <= n_children:
        return 1
    capacity = n - 1
    if rule.depth > 0:
        below = 1
        for _ in range(rule.depth - level - 1):
            below = min(below * n_children, n)
        capacity = min(capacity, below)
    return capacity


@inlined
def _is_open(j: int, capacity: int, n_children: int, work: Dealing) -> bool:
    """Return whether a child takes one more label."""
    if capacity > 0:
        return bool(work.size[j] < capacity and work.mass[j] < work.room[0])
    is_complete = work.size[j] >= 1 and (work.size[j] - 1) % (n_children - 1) == 0
    return bool(not is_complete or work.left[0] > work.left[1])


@inlined
def _may_enter(i: int, j: int, capacity: int, n_children: int, work: Dealing) -> bool:
    """Return whether a child takes label i.

    A label that stays with its old child may do so whatever the mass of the child.
    """
    keeps = work.old_child[i] == j and work.g[i, j] > 1 and capacity > 0
    return bool((keeps and work.size[j] < capacity) or _is_open(j, capacity, n_children, work))


@inlined
def _enter(j: int, n_children: int, work: Dealing) -> None:
    """Count one more label in a child."""
    is_complete = work.size[j] >= 1 and (work.size[j] - 1) % (n_children - 1) == 0
    work.left[1] += n_children - 2 if is_complete else -1
    work.left[0] -= 1
    work.size[j] += 1


@inlined
def _find_best(i: int, capacity: int, n_children: int, work: Dealing) -> None:
    """Find the best open child for label i.

    If all children have reached their mass, the bound on the mass is dropped for all labels.
    """
    best = -1
    for _ in range(2):
        for j in range(n_children):
            if _may_enter(i, j, capacity, n_children, work) and (
                best < 0
                or work.g[i, j] > work.g[i, best]
                or (work.g[i, j] == work.g[i, best] and work.d[i, j] > work.d[i, best])
            ):
                best = j
        if best >= 0:
            break
        work.room[0] = np.inf
    work.best[i] = best


@inlined
def _is_before(a: int, b: int, work: Dealing) -> bool:
    """Return whether label a's best pair comes before label b's."""
    ga = work.g[a, work.best[a]]
    gb = work.g[b, work.best[b]]
    if ga != gb:
        return bool(ga > gb)
    da = work.d[a, work.best[a]]
    db = work.d[b, work.best[b]]
    return bool(da > db if da != db else a < b)


@inlined
def _sift_down(position: int, n: int, work: Dealing) -> None:
    """Move the entry at a position of a heap of n entries down to its place."""
    while 2 * position + 1 < n:
        below = 2 * position + 1
        if below + 1 < n and _is_before(work.heap[below + 1], work.heap[below], work):
            below += 1
        if not _is_before(work.heap[below], work.heap[position], work):
            return
        sinking = work.heap[position]
        work.heap[position] = work.heap[below]
        work.heap[below] = sinking
        position = below


@inlined
def _affinities(
    labels: I32, node: int, state: LearningState, n_alone: int, rule: Rule, work: Dealing
) -> int:
    """Write p_{j|i} of the labels with statistics at the node, and put them into the heap.

    If rule.margin > 0, labels that were below the node without statistics are put there too, with
    equal probabilities. Returns the number of labels in the heap.
    """
    n_known = 0
    for i in range(n_alone, len(labels)):
        old_child = branch_at(labels[i], node, state.tree)
        work.old_child[i] = old_child if rule.margin > 0 else -1
        work.n_rows[i] = 0
        if node >= 0:
            work.n_rows[i] = probabilities_of(labels[i], node, old_child, state, work.p[i])
        if work.n_rows[i] == 0:
            if work.old_child[i] < 0:
                continue
            work.p[i, :] = np.float32(1.0 / work.p.shape[1])
        work.heap[n_known] = i
        n_known += 1
    return n_known


@inlined
def _gradients(labels: I32, share: F64, n_known: int, rule: Rule, work: Dealing) -> None:
    """Write the gradients of J by p_{j|i} of the labels in the heap, without the factor 2 / M."""
    n_children = work.p.shape[1]
    total = 0.0
    for k in range(n_known):
        total += share[labels[work.heap[k]]]
    for j in range(n_children):
        mean = np.float32(0.0)
        for k in range(n_known):
            i = work.heap[k]
            mean += np.float32(share[labels[i]] / total) * work.p[i, j]
        for k in range(n_known):
            i = work.heap[k]
            q = share[labels[i]] / total
            work.d[i, j] = work.p[i, j] - mean
            g = np.float32(q * (1.0 - q)) * np.sign(work.d[i, j])
            work.g[i, j] = g * work.p[i, j] if rule.times_p else g


@inlined
def _keep_places(labels: I32, share: F64, n_known: int, rule: Rule, work: Dealing) -> None:
    """Put labels that stay with their old child before all others, the most frequent ones first.

    Their gradient at that child is set to 1 + their share. A label stays if no child is better by
    rule.margin standard errors; the standard error of a probability p from n rows is sqrt(p (1 - p)
    / n).
    """
    for k in range(n_known):
        i = work.heap[k]
        old_child = work.old_child[i]
        if old_child < 0:
            continue
        best = old_child
        for j in range(work.p.shape[1]):
            if work.d[i, j] > work.d[i, best]:
                best = j
        p_old = np.float64(work.p[i, old_child])
        p_best = np.float64(work.p[i, best])
        variance = max(p_old * (1.0 - p_old), p_best * (1.0 - p_best)) / max(work.n_rows[i], 1)
        gain = np.float64(work.d[i, best]) - np.float64(work.d[i, old_child])
        if gain <= rule.margin * np.sqrt(variance) or len(labels) <= work.p.shape[1]:
            work.g[i, old_child] = np.float32(1.0 + share[labels[i]])


@inlined
def _deal_greedily(labels: I32, share: F64, n_known: int, capacity: int, work: Dealing) -> None:
    """Deal the labels in the heap, the best pair first.

    A label whose best child has become full gets another best child, and goes back into the heap.
    """
    n_children = work.p.shape[1]
    for k in range(n_known):
        _find_best(work.heap[k], capacity, n_children, work)
    for k in range(n_known // 2, -1, -1):
        _sift_down(k, n_known, work)
    while n_known > 0:
        i = work.heap[0]
        j = work.best[i]
        if _may_enter(i, j, capacity, n_children, work):
            work.child[i] = j
            work.mass[j] += share[labels[i]]
            _enter(j, n_children, work)
            n_known -= 1
            work.heap[0] = work.heap[n_known]
        else:
            _find_best(i, capacity, n_children, work)
        _sift_down(0, n_known, work)


@inlined
def _deal_evenly(labels: I32, share: F64, n_pads: int, capacity: int, work: Dealing) -> None:
    """Deal the labels without a child, in their order, to the open child with the least mass.

    The padding labels are dealt after them.
    """
    n_children = work.p.shape[1]
    for i in range(len(labels) + n_pads):
        if i < len(labels) and work.child[i] >= 0:
            continue
        least = -1
        work.room[0] = np.inf
        for j in range(n_children):
            if _is_open(j, capacity, n_children, work) and (
                least < 0
                or work.mass[j] < work.mass[least]
                or (work.mass[j] == work.mass[least] and work.size[j] < work.size[least])
            ):
                least = j
        if i < len(labels):
            work.child[i] = least
            work.mass[least] += share[labels[i]]
        _enter(least, n_children, work)


@inlined
def _deal_alone(
    labels: I32, n_alone: int, node: int, tree: SoftmaxTree, rule: Rule, work: Dealing
) -> None:
    """Give each of the first n_alone labels a child of its own, and close these children.

    If rule.margin > 0, a label keeps its old child if no other of these labels has it.
    """
    for i in range(n_alone):
        old_child = branch_at(labels[i], node, tree) if rule.margin > 0 else -1
        if old_child >= 0 and work.size[old_child] == 0:
            work.child[i] = old_child
            work.size[old_child] = _CLOSED
    for i in range(n_alone):
        j = 0
        while work.child[i] < 0:
            if work.size[j] == 0:
                work.child[i] = j
                work.size[j] = _CLOSED
            j += 1


@inlined
def deal(
    labels: I32,
    share: F64,
    pads: int,
    node: int,
    level: int,
    rule: Rule,
    state: LearningState,
    work: Dealing,
) -> None:
    """Write the child of each label of a node into `work.child`.

    labels  int32[n], the most frequent first
    pads    number of padding labels
    node    number of the node in the old tree; -1: it is new
    """
    n_children = work.p.shape[1]
    capacity = _capacity_of(len(labels), n_children, level, rule)
    work.child[: len(labels)] = -1
    work.size[:] = 0
    work.mass[:] = 0.0
    work.left[0] = len(labels) + pads
    work.left[1] = n_children
    mass_left = 0.0
    for label in labels:
        mass_left += share[label]
    n_alone = 0
    may_be_alone = rule.alone > 0 and capacity > 0 and len(labels) > n_children
    while may_be_alone and n_alone < n_children - 1:
        label = labels[n_alone]
        n_after = len(labels) - n_alone - 1
        is_leaf = node >= 0 and state.tree.leaf_node[label] == node and rule.margin > 0
        least = 0.5 * rule.alone if is_leaf else rule.alone
        fits = 0 < n_after <= capacity * (n_children - n_alone - 1)
        if not fits or share[label] < least * mass_left / (n_children - n_alone):
            break
        mass_left -= share[label]
        n_alone += 1
    _deal_alone(labels, n_alone, node, state.tree, rule, work)
    work.room[0] = rule.slack * mass_left / (n_children - n_alone) if rule.slack > 0 else np.inf
    n_known = _affinities(labels, node, state, n_alone, rule, work)
    _gradients(labels, share, n_known, rule, work)
    _keep_places(labels, share, n_known, rule, work)
    _deal_greedily(labels, share, n_known, capacity, work)
    _deal_evenly(labels, share, pads, capacity, work)
