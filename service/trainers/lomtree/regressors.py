"""The regressors of LOMtree's nodes: normalised adaptive gradient steps on the logistic loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from service.trainers.lomtree.tables import (
    fetch,
    find,
    insert,
    reserve,
)
from service.trainers.lomtree.tree import SCALE, SQUARES, WEIGHT, Integer, OnlineTree, child_of

_VALUE_MIN = 2.0**-100
"""Feature values nearer to 0 are taken for 0: the weight of a value is of the order of its inverse."""

GRADIENT_MIN = 1e-6
"""A row whose score is this right is not stepped on: squares of smaller gradients vanish in 32 bits."""

MOVE_MAX = 2.0
"""A step moves the score of its row by no more."""


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


def make_scratch(longest: int) -> Scratch:
    """Return workspace for rows of at most so many features."""
    return Scratch(np.empty(longest, np.int64), np.empty(longest), np.empty(longest))


@inlined
def fetch_tables(tree: OnlineTree, node: Integer, row: Row) -> None:
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
def train_node(
    tree: OnlineTree, node: Integer, row: Row, direction: float, step: float, scratch: Scratch
) -> tuple[float, float]:
    """Take a step of a node's regressor towards `direction`; return the scores before and after it.

    Source: Ross, Mineiro, Langford 2013, algorithm 1, the loss being log(1 + exp(-direction * h(x))). A step
    moves the score by no more than MOVE_MAX; there is none where the gradient is below GRADIENT_MIN.

    What the next node knows of the row is asked for as soon as that node can be told, so that it comes
    while the step is taken.
    """
    n, before, score, squares = _look_up(tree, node, row, scratch)
    fetch_tables(tree, child_of(tree, node, score), row)
    if direction * score <= 0.0:  # the step may take the row to the other child
        fetch_tables(tree, child_of(tree, node, direction), row)
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
