"""The labels of one node dealt anew to its children, by what training saw of them.

Source: Jernite, Choromanska and Sontag 2017, "Simultaneous Learning of Trees and Representations for Extreme
Classification and Density Estimation": algorithm 2 (well-formed trees), its change for trees of bounded depth
in the supplement, equations 10 and 12. The pair of a label and a child that promises most is taken first, as
long as the child has room. Deviations: equal pairs are told apart (the larger difference p_{j|i} - p_j, then
the label and the child that come first); labels of which the node knows nothing come last and are dealt
evenly by mass; q_i is the label's known share of the node's rows; no child takes all labels of a node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from service.trainers.softmax.tree import LabelStatistics, Network, SoftmaxTree


class Rule(NamedTuple):
    """How many labels a child may have.

    depth    levels of nodes: at level h a child has at most M^(depth - h - 1) labels; 0: no bound
    slack    a child has at most slack * n / M of its node's n labels; 0: no bound
    times_p  equation 12 instead of 10

    With neither bound the tree is well-formed: the labels of each node are 1 modulo M - 1, but for labels
    that are none (algorithm 2).
    """

    depth: int
    slack: float
    times_p: bool


class Dealing(NamedTuple):
    """Workspace for the labels of a node, each array as long as labels, or children.

    p, g, d     float32[labels, M]: p_{j|i}; gradient; difference
    best, heap  int64: the best child of a label; labels as a heap
    child       int64: what a label was dealt to
    """

    p: NDArray[np.float32]
    g: NDArray[np.float32]
    d: NDArray[np.float32]
    best: NDArray[np.int64]
    heap: NDArray[np.int64]
    child: NDArray[np.int64]
    size: NDArray[np.int64]
    mass: NDArray[np.float64]
    left: NDArray[np.int64]


@inlined
def capacity_of(n: int, n_children: int, level: int, rule: Rule) -> int:
    """Return the most labels of a child of a node of n labels; 0 for a well-formed tree."""
    if rule.depth == 0 and rule.slack == 0:
        return 0
    if n <= n_children:
        return 1
    capacity = n - 1
    if rule.slack > 0:
        capacity = min(capacity, int(np.ceil(rule.slack * n / n_children)))
    if rule.depth > 0:
        below = 1
        for _ in range(rule.depth - level - 1):
            below = min(below * n_children, n)
        capacity = min(capacity, below)
    return capacity


@inlined
def _is_open(j: int, capacity: int, n_children: int, work: Dealing) -> bool:
    """Return whether a child takes one more label; `left` holds remaining and needed labels."""
    if capacity > 0:
        return bool(work.size[j] < capacity)
    is_complete = work.size[j] >= 1 and (work.size[j] - 1) % (n_children - 1) == 0
    return bool(not is_complete or work.left[0] > work.left[1])


@inlined
def _enter(j: int, n_children: int, work: Dealing) -> None:
    """Count one more label in a child."""
    is_complete = work.size[j] >= 1 and (work.size[j] - 1) % (n_children - 1) == 0
    work.left[1] += n_children - 2 if is_complete else -1
    work.left[0] -= 1
    work.size[j] += 1


@inlined
def _find_best(i: int, capacity: int, n_children: int, work: Dealing) -> None:
    """Find the open child that promises most for a label; -1 if none is open."""
    best = -1
    for j in range(n_children):
        if _is_open(j, capacity, n_children, work) and (
            best < 0
            or work.g[i, j] > work.g[i, best]
            or (work.g[i, j] == work.g[i, best] and work.d[i, j] > work.d[i, best])
        ):
            best = j
    work.best[i] = best


@inlined
def _is_before(a: int, b: int, work: Dealing) -> bool:
    """Return whether label a's best pair comes before label b's."""
    ga, gb = work.g[a, work.best[a]], work.g[b, work.best[b]]
    if ga != gb:
        return bool(ga > gb)
    da, db = work.d[a, work.best[a]], work.d[b, work.best[b]]
    return bool(da > db if da != db else a < b)


@inlined
def _sift_down(at: int, n: int, work: Dealing) -> None:
    """Let the entry at a place of a heap of n sink to where it belongs."""
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and _is_before(work.heap[below + 1], work.heap[below], work):
            below += 1
        if not _is_before(work.heap[below], work.heap[at], work):
            return
        kept = work.heap[at]
        work.heap[at] = work.heap[below]
        work.heap[below] = kept
        at = below


@inlined
def _affinities(
    labels: NDArray[np.int32],
    node: int,
    tree: SoftmaxTree,
    network: Network,
    statistics: LabelStatistics,
    work: Dealing,
) -> int:
    """Write p_{j|i} of the labels that the node knows; put them into the heap and return how many."""
    n_children = work.p.shape[1]
    n_known = 0
    for i in range(len(labels)):
        label = labels[i]
        if node < 0 or statistics.seen[label] == 0:
            continue
        if len(statistics.means) > 0:
            _softmax_of(node, label, tree, network, statistics.means, work.p[i])
        else:
            level = tree.level[node]
            if not _knows(label, node, tree) or statistics.counts[label, level] <= 1:
                continue
            for j in range(n_children):
                work.p[i, j] = statistics.sums[label, level, j] / statistics.counts[label, level]
        work.heap[n_known] = i
        n_known += 1
    return n_known


@inlined
def _knows(label: int, node: int, tree: SoftmaxTree) -> bool:
    """Return whether a node was on a label's path until now."""
    above = tree.leaf_node[label]
    while above >= 0 and above != node:
        above = tree.parent[above]
    return bool(above == node)


@inlined
def _softmax_of(
    node: int,
    label: int,
    tree: SoftmaxTree,
    network: Network,
    means: NDArray[np.float32],
    p_out: NDArray[np.float32],
) -> None:
    """Write softmax(W_n mean + b_n) of a label's mean representation, 0 where there is no child."""
    greatest = np.float32(-np.inf)
    for j in range(len(p_out)):
        total = network.bias[node, j]
        for f in range(means.shape[1]):
            total += network.weights[node, j, f] * means[label, f]
        p_out[j] = total
        if tree.child[node, j] != -1:
            greatest = max(greatest, total)
    total = np.float32(0.0)
    for j in range(len(p_out)):
        p_out[j] = np.exp(p_out[j] - greatest) if tree.child[node, j] != -1 else np.float32(0.0)
        total += p_out[j]
    for j in range(len(p_out)):
        p_out[j] /= total


@inlined
def _gradients(
    labels: NDArray[np.int32], share: NDArray[np.float64], n_known: int, rule: Rule, work: Dealing
) -> None:
    """Write the gradients of J by p_{j|i}, but for 2 / M, of the labels in the heap."""
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
def _deal_greedily(
    labels: NDArray[np.int32],
    share: NDArray[np.float64],
    n_known: int,
    capacity: int,
    work: Dealing,
) -> None:
    """Deal the labels in the heap, the best pair first; a label whose child has filled looks anew."""
    n_children = work.p.shape[1]
    for k in range(n_known):
        _find_best(work.heap[k], capacity, n_children, work)
    for k in range(n_known // 2, -1, -1):
        _sift_down(k, n_known, work)
    while n_known > 0:
        i = work.heap[0]
        j = work.best[i]
        if _is_open(j, capacity, n_children, work):
            work.child[i] = j
            work.mass[j] += share[labels[i]]
            _enter(j, n_children, work)
            n_known -= 1
            work.heap[0] = work.heap[n_known]
        else:
            _find_best(i, capacity, n_children, work)
        _sift_down(0, n_known, work)


@inlined
def _deal_evenly(
    labels: NDArray[np.int32], share: NDArray[np.float64], n_pads: int, capacity: int, work: Dealing
) -> None:
    """Deal the labels that have no child, in their order, to the open child of least mass, then the pads."""
    n_children = work.p.shape[1]
    for i in range(len(labels) + n_pads):
        if i < len(labels) and work.child[i] >= 0:
            continue
        least = -1
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
def make_dealing(n: int, n_children: int) -> Dealing:
    """Allocate the workspace for nodes of up to n labels."""
    return Dealing(
        np.zeros((n, n_children), np.float32),
        np.zeros((n, n_children), np.float32),
        np.zeros((n, n_children), np.float32),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n_children, np.int64),
        np.zeros(n_children, np.float64),
        np.zeros(2, np.int64),
    )


@inlined
def deal(
    labels: NDArray[np.int32],
    share: NDArray[np.float64],
    n_pads: int,
    node: int,
    capacity: int,
    rule: Rule,
    tree: SoftmaxTree,
    network: Network,
    statistics: LabelStatistics,
    work: Dealing,
) -> None:
    """Write the child of each label of a node: node -1 is one that knows nothing yet."""
    n_children = work.p.shape[1]
    for i in range(len(labels)):
        work.child[i] = -1
    work.size[:] = 0
    work.mass[:] = 0.0
    work.left[0], work.left[1] = len(labels) + n_pads, n_children
    n_known = _affinities(labels, node, tree, network, statistics, work)
    _gradients(labels, share, n_known, rule, work)
    _deal_greedily(labels, share, n_known, capacity, work)
    _deal_evenly(labels, share, n_pads, capacity, work)


@kernel
def deal_labels(
    labels: NDArray[np.int32],
    share: NDArray[np.float64],
    n_pads: int,
    node: int,
    level: int,
    rule: Rule,
    tree: SoftmaxTree,
    network: Network,
    statistics: LabelStatistics,
) -> NDArray[np.int64]:
    """Return the child that each label of one node is dealt to, int64[as many]; see `assign_labels`."""
    n_children = tree.child.shape[1]
    work = make_dealing(len(labels), n_children)
    capacity = capacity_of(len(labels), n_children, level, rule)
    deal(labels, share, n_pads, node, capacity, rule, tree, network, statistics, work)
    return work.child
