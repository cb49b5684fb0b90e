"""Slow and obvious: what probabilistic label trees are made of and trained with."""

import functools
import itertools
from typing import Any

import numpy as np

from xylem.trainers.shape import Shape


def labels_below(shape: Shape) -> list[set[int]]:
    """The labels under each node."""
    return [set(shape.labels[a:b].tolist()) for a, b in zip(shape.first, shape.last, strict=True)]


def fobos(
    x: np.ndarray, carried: np.ndarray, shape: Shape, rate: float, penalty: float, epochs: int
) -> Any:
    """Every classifier by the dense update of appendix B, rows in order.

    x is float64[n, D], carried bool[n, K]. Returns for each node (w float64[D], b): of the root,
    zero.
    """
    below = labels_below(shape)
    found = [(np.zeros(x.shape[1]), 0.0) for _ in below]
    for node in shape.inner.tolist():
        rows = [
            i for i in range(len(x)) if node == 0 or below[node] & set(np.flatnonzero(carried[i]))
        ]
        for child in range(int(shape.child_ptr[node]), int(shape.child_ptr[node + 1])):
            w = np.zeros(x.shape[1] + 1)
            for t, i in enumerate(rows * epochs):
                z = bool(below[child] & set(np.flatnonzero(carried[i])))
                instance = np.append(x[i], 1.0)
                gradient = (1.0 / (1.0 + np.exp(-(w @ instance))) - z) * instance
                step = rate / (1.0 + penalty * rate * t)
                w = (w - step * gradient) / (1.0 + penalty * step)
            found[child] = (w[:-1], w[-1])
    return found


def least_weighted_depth(counts: tuple[int, ...], arity: int) -> int:
    """The least sum of count * depth over all trees of at most
    `arity` children a node: all are tried.
    """

    @functools.cache
    def best(leaves: tuple[int, ...]) -> int:
        if len(leaves) == 1:
            return 0
        cuts = [groups for groups in partitions(leaves) if 2 <= len(groups) <= arity]
        return sum(leaves) + min(
            sum(best(tuple(sorted(group))) for group in groups) for groups in cuts
        )

    return best(tuple(sorted(counts)))


def partitions(items: tuple[int, ...]) -> Any:
    """Every way to cut the items into groups."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for n in range(len(rest) + 1):
        for chosen in itertools.combinations(range(len(rest)), n):
            others = tuple(item for i, item in enumerate(rest) if i not in chosen)
            for groups in partitions(others):
                yield [(first, *(rest[i] for i in chosen)), *groups]


def levels(child_ptr: np.ndarray) -> np.ndarray:
    """How many nodes lie above each node."""
    found = np.zeros(len(child_ptr) - 1, int)
    for node in range(len(found)):
        found[child_ptr[node] : child_ptr[node + 1]] = found[node] + 1
    return found


def depths(shape: Shape) -> dict[int, int]:
    """How many nodes lie between the root and each label's leaf, the leaf counted."""
    level, leaves = levels(shape.child_ptr), np.flatnonzero(np.diff(shape.child_ptr) == 0)
    return {int(shape.labels[shape.first[leaf]]): int(level[leaf]) for leaf in leaves}
