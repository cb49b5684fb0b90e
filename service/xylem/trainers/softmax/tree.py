"""Gradient steps on a tree of softmax nodes and on the embeddings of features, trained together.

Source: Jernite, Choromanska and Sontag 2017, "Simultaneous Learning of Trees and Representations
for Extreme Classification and Density Estimation", sections 2, 4 (algorithm 1) and 6. A row x has
the representation r(x), the sum or the mean of the embeddings of its features; node n sends it to
its child j with the probability softmax_j(W_n r + b_n); a label's probability is the product along
its path. One thread, one row after the other: the same bits for the same rows in the same order.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem.trainers.kernels.random import random_below
from xylem_store import (
    F32,
    F64,
    I32,
    I64,
    LANES,
    U8,
    U64,
    inlined,
    kernel,
    vadd,
    vbroadcast,
    vload,
    vmul,
    vstore,
)

_SMALL = np.float32(1e-12)  # added to a sum of squares, which is 0 if all gradients so far were 0


class SoftmaxTree(NamedTuple):
    """A tree of N inner nodes of up to M children over K labels; -1 stands for none.

    child        int32[N, M]  the number of an inner node, -1 if there is no child, -2 - label for a
                              leaf
    parent       int32[N]     -1 at the root, node 0, and at nodes that are not in use
    branch       int32[N]     position of the node among the children of its parent
    level        int32[N]     0 at the root
    leaf_node    int32[K]     the node above the label's leaf
    leaf_branch  int32[K]     position of the leaf among the children of that node
    """

    child: I32
    parent: I32
    branch: I32
    level: I32
    leaf_node: I32
    leaf_branch: I32


class Network(NamedTuple):
    """The parameters of a model, or for each of them the sum of its squared gradients.

    In the latter case all arrays may have length 0: there are no such sums. D is the dimension,
    padded to a multiple of LANES with zeros. A feature of a window of T words is position * V +
    word; T is 1 for rows that are bags of features.

    weights     float32[N, M, D]
    bias        float32[N, M]
    embedding   float32[V, D]
    transition  float32[T, R, D]  the linear map of a position, applied to the embedding of its
                                  word: R = 0 none, R = 1 a factor for each dimension, R = D a
                                  matrix
    """

    weights: F32
    bias: F32
    embedding: F32
    transition: F32


class LabelStatistics(NamedTuple):
    """Statistics of labels; arrays that are not needed have length 0.

    sums    float32[K, H, M]  sums of the probabilities of children, for each level of the label's
                              path
    counts  float32[K, H]     number of terms of the sums
    means   float32[K, D]     mean representation of the label's rows
    n_rows  int64[K]          number of these rows
    """

    sums: F32
    counts: F32
    means: F32
    n_rows: I64


class LearningState(NamedTuple):
    """Everything that a training changes.

    squares  sums of the squared gradients of the network's parameters; empty without Adagrad
    """

    tree: SoftmaxTree
    network: Network
    squares: Network
    statistics: LabelStatistics


class Steps(NamedTuple):
    """The options of the steps on some rows.

    first, last     the rate, which changes linearly from the first row to the last
    is_mean         whether the representation of a row is the mean of its features' embeddings,
                    weighted by |value|; else it is their sum
    by_probability  whether steps follow the gradient of p(child), as in algorithm 1; else they
                    follow that of log p(child)
    embeds          whether embeddings and transitions take steps too; else only the nodes do
    """

    first: float
    last: float
    is_mean: bool
    by_probability: bool
    embeds: bool


class _Scratch(NamedTuple):
    """Workspace of a step.

    r         float32[D]  representation of the row
    gradient  float32[D]  gradient of r
    p         float32[M]  probabilities of a node's children
    turned    float32[D]  embedding of a feature, after its transition
    lanes     float32[max(D, LANES)]
    """

    r: F32
    gradient: F32
    p: F32
    turned: F32
    lanes: F32


@inlined
def _dot(left: F32, offset: int, right: F32, lanes: F32) -> Any:
    """Return the inner product of left[offset : offset + D] and right.

    It is summed in lanes, which are added pairwise in the end.
    """
    total = vmul(vload(left, offset), vload(right, 0))
    for tile in range(LANES, len(right), LANES):
        total = vadd(total, vmul(vload(left, offset + tile), vload(right, tile)))
    vstore(lanes, 0, total)
    half = LANES // 2
    while half > 0:
        for i in range(half):
            lanes[i] += lanes[i + half]
        half //= 2
    return lanes[0]


@inlined
def _add_to(out: F32, scale: np.float32, x: F32, offset: int) -> None:
    """Add scale * x[offset : offset + D] to `out`."""
    factor = vbroadcast(scale)
    for tile in range(0, len(out), LANES):
        vstore(out, tile, vadd(vload(out, tile), vmul(factor, vload(x, offset + tile))))


@inlined
def _move(x: F32, squares: F32, rate: float, scale: float, direction: F32) -> None:
    """Move x by rate * scale * direction.

    squares  sums of squared gradients (Adagrad): the rate of each element is divided by the root of
             its sum. Of length 0: plain descent
    """
    if len(squares) == 0:
        _add_to(x, np.float32(rate * scale), direction, 0)
        return
    for f in range(len(x)):
        g = np.float32(scale) * direction[f]
        squares[f] += g * g
        x[f] += np.float32(rate) * g / np.sqrt(squares[f] + _SMALL)


@inlined
def _turn(network: Network, feature: int, lanes: F32, out: F32) -> Any:
    """Write the embedding of a feature after the transition of its position; return its word."""
    n_words, dim = network.embedding.shape
    word = feature % n_words
    position = feature // n_words
    kind = network.transition.shape[1]
    if kind == 0:
        out[:] = network.embedding[word]
    elif kind == 1:
        for f in range(dim):
            out[f] = network.transition[position, 0, f] * network.embedding[word, f]
    else:
        for f in range(dim):
            out[f] = _dot(
                network.transition, (position * kind + f) * dim, network.embedding[word], lanes
            )
    return word


@inlined
def _represent(network: Network, indices: I32, values: F32, is_mean: bool, work: _Scratch) -> Any:
    """Write the representation of a row; return the factor by which its values were multiplied."""
    work.r[:] = np.float32(0.0)
    total = np.float32(0.0)
    for e in range(len(indices)):
        _turn(network, indices[e], work.lanes, work.turned)
        _add_to(work.r, values[e], work.turned, 0)
        total += abs(values[e])
    if not is_mean or total == 0:
        return np.float32(1.0)
    scale = np.float32(1.0) / total
    for f in range(len(work.r)):
        work.r[f] *= scale
    return scale


@inlined
def _softmax(network: Network, child: I32, node: int, r: F32, work: _Scratch) -> None:
    """Write the probabilities of a node's children into `work.p`; they are 0 at empty places."""
    n_children = child.shape[1]
    dim = len(r)
    greatest = np.float32(-np.inf)
    for j in range(n_children):
        if child[node, j] != -1:
            work.p[j] = (
                _dot(network.weights, (node * n_children + j) * dim, r, work.lanes)
                + network.bias[node, j]
            )
            greatest = max(greatest, work.p[j])
    total = 0.0  # in double precision: a node of a flat tree may have 65,536 children
    for j in range(n_children):
        work.p[j] = np.exp(work.p[j] - greatest) if child[node, j] != -1 else np.float32(0.0)
        total += work.p[j]
    share = np.float32(1.0 / total)
    for j in range(n_children):
        work.p[j] *= share


@inlined
def _step_node(
    state: LearningState, node: int, target: int, rate: float, steps: Steps, work: _Scratch
) -> Any:
    """Take the step of one node on a row that goes to its child `target`; return log p(target).

    The gradient of the representation is computed from the weights before the step, and added to
    `work.gradient`.
    """
    tree = state.tree
    network = state.network
    squares = state.squares
    n_children = tree.child.shape[1]
    dim = len(work.r)
    _softmax(network, tree.child, node, work.r, work)
    p_target = work.p[target]
    factor = p_target if steps.by_probability else np.float32(1.0)
    is_adaptive = len(squares.bias) > 0
    for j in range(n_children):
        if tree.child[node, j] == -1:
            continue
        delta = factor * ((np.float32(1.0) if j == target else np.float32(0.0)) - work.p[j])
        _add_to(work.gradient, delta, network.weights, (node * n_children + j) * dim)
        if is_adaptive:
            _move(network.weights[node, j], squares.weights[node, j], rate, delta, work.r)
            squares.bias[node, j] += delta * delta
            network.bias[node, j] += (
                np.float32(rate) * delta / np.sqrt(squares.bias[node, j] + _SMALL)
            )
        else:
            _move(network.weights[node, j], work.r[:0], rate, delta, work.r)
            network.bias[node, j] += np.float32(rate) * delta
    return np.log(max(p_target, np.float32(1e-30)))


@inlined
def _step_feature(
    state: LearningState, feature: int, value: float, rate: float, work: _Scratch
) -> None:
    """Take the step of a feature's embedding, and of the transition of its position.

    They follow from the gradient of the representation, `work.gradient`.
    """
    network = state.network
    squares = state.squares
    n_words, dim = network.embedding.shape
    word = feature % n_words
    position = feature // n_words
    kind = network.transition.shape[1]
    is_adaptive = len(squares.bias) > 0
    u = network.embedding[word]
    u2 = squares.embedding[word] if is_adaptive else work.r[:0]
    if kind == 0:
        _move(u, u2, rate, value, work.gradient)
        return
    if kind == 1:
        turn = network.transition[position, 0]
        for f in range(dim):
            work.turned[f] = turn[f] * work.gradient[f]
            work.lanes[f] = u[f] * work.gradient[f]
        turn2 = squares.transition[position, 0] if is_adaptive else work.r[:0]
        _move(turn, turn2, rate, value, work.lanes[:dim])
        _move(u, u2, rate, value, work.turned)
        return
    work.turned[:] = np.float32(0.0)
    for f in range(dim):
        _add_to(work.turned, work.gradient[f], network.transition, (position * kind + f) * dim)
    for f in range(dim):
        turn2 = squares.transition[position, f] if is_adaptive else work.r[:0]
        _move(network.transition[position, f], turn2, rate, value * work.gradient[f], u)
    _move(u, u2, rate, value, work.turned)


@inlined
def _scratch(n_children: int, dim: int) -> _Scratch:
    return _Scratch(
        np.zeros(dim, np.float32),
        np.zeros(dim, np.float32),
        np.zeros(n_children, np.float32),
        np.zeros(dim, np.float32),
        np.zeros(max(dim, LANES), np.float32),
    )


@kernel
def train_rows(
    rows: SparseRows,
    labels: LabelRows,
    order: I32,
    state: LearningState,
    steps: Steps,
    random: U64,
    stop: U8,
) -> float:
    """Take a step on each row of `order`, in that order; return the sum of -log p of their labels.

    rows, labels  each row of `order` has at least one label, and all its labels have leaves
    state   changed in place; if the arrays of `squares` have length 0, it is plain descent instead
            of Adagrad
    random  uint64[1]  state of the random numbers: for a row with several labels, one of them is
            drawn at each visit
    stop    uint8[1]   set it to end early; the remaining rows are left out

    The features of a row take their steps one after the other: if a word is at two positions, the
    second step starts from the result of the first.

    Deviation from algorithm 1: mini-batches are of one row. Cost: a row's features * D * (1, or R)
    and its path's nodes * M * D, three times. Deterministic.
    """
    tree = state.tree
    statistics = state.statistics
    work = _scratch(tree.child.shape[1], state.network.embedding.shape[1])
    loss = 0.0
    for i in range(len(order)):
        if stop[0]:
            break
        row = order[i]
        rate = steps.first + (steps.last - steps.first) * (i / len(order))
        low = rows.indptr[row]
        high = rows.indptr[row + 1]
        indices = rows.indices[low:high]
        values = rows.values[low:high]
        first = labels.indptr[row]
        n_labels = labels.indptr[row + 1] - labels.indptr[row]
        label = labels.indices[first + (random_below(random, n_labels) if n_labels > 1 else 0)]
        scale = _represent(state.network, indices, values, steps.is_mean, work)
        work.gradient[:] = np.float32(0.0)
        node = tree.leaf_node[label]
        target = tree.leaf_branch[label]
        while node >= 0:
            loss -= _step_node(state, node, target, rate, steps, work)
            if len(statistics.sums) > 0:
                level = tree.level[node]
                statistics.counts[label, level] += np.float32(1.0)
                for j in range(len(work.p)):
                    statistics.sums[label, level, j] += work.p[j]
            target = tree.branch[node]
            node = tree.parent[node]
        for e in range(len(indices) if steps.embeds else 0):
            _step_feature(state, indices[e], values[e] * scale, rate, work)
    return loss


@kernel
def add_representations(
    rows: SparseRows, labels: LabelRows, network: Network, is_mean: bool, sums_out: F64
) -> None:
    """Add the representation of each row to the sum of each of its labels, float64[K, D]."""
    work = _scratch(1, network.embedding.shape[1])
    for row in range(len(rows.indptr) - 1):
        low = rows.indptr[row]
        high = rows.indptr[row + 1]
        _represent(network, rows.indices[low:high], rows.values[low:high], is_mean, work)
        for i in range(labels.indptr[row], labels.indptr[row + 1]):
            for f in range(len(work.r)):
                sums_out[labels.indices[i], f] += work.r[f]
