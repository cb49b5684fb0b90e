"""Slow trees of softmax nodes: the model, its gradient, its statistics' assignment, all in plain Python."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np


class Net(NamedTuple):
    """Parameters: weights[node][child], bias, embedding [V, d], transition None, [T, d] or [T, d, d]."""

    weights: np.ndarray
    bias: np.ndarray
    embedding: np.ndarray
    transition: np.ndarray | None


Path = list[tuple[int, int, list[int]]]
"""Nodes of a label's path: (node, the child it goes to, the children that exist)."""


def softmax(margins: np.ndarray) -> np.ndarray:
    e = np.exp(margins - margins.max())
    return e / e.sum()


def represent(net: Net, row: dict[int, float], is_mean: bool) -> np.ndarray:
    n_words, dim = net.embedding.shape
    r = np.zeros(dim)
    for feature, value in row.items():
        word, position = feature % n_words, feature // n_words
        u = net.embedding[word]
        if net.transition is not None:
            turn = net.transition[position]
            u = turn * u if turn.ndim == 1 else turn @ u
        r += value * u
    total = sum(abs(value) for value in row.values())
    return r / total if is_mean and total > 0 else r


def log_p(net: Net, row: dict[int, float], path: Path, is_mean: bool) -> float:
    """Return the logarithm of a label's probability by its path."""
    r = represent(net, row, is_mean)
    total = 0.0
    for node, target, children in path:
        p = softmax(net.weights[node][children] @ r + net.bias[node][children])
        total += math.log(p[children.index(target)])
    return total


def numeric_gradient(net: Net, row: dict[int, float], path: Path, is_mean: bool, eps: float = 1e-6) -> Net:
    """Return the gradient of `log_p` by central differences."""
    found: list[Any] = []
    for part in net:
        if part is None:
            found.append(None)
            continue
        gradient = np.zeros_like(part)
        for at in itertools.product(*map(range, part.shape)):
            kept = part[at]
            part[at] = kept + eps
            above = log_p(net, row, path, is_mean)
            part[at] = kept - eps
            gradient[at] = (above - log_p(net, row, path, is_mean)) / (2 * eps)
            part[at] = kept
        found.append(gradient)
    return Net(*found)


def greedy(  # noqa: C901
    q: np.ndarray, p: np.ndarray, is_known: np.ndarray, capacity: int, n_pads: int, *, times_p: bool
) -> list[int]:
    """Return each label's child: the best (label, child) of all pairs, again and again.

    capacity  labels of a child at most; 0: sizes are to be 1 modulo M - 1, with n_pads labels that are none
    """
    n, m = p.shape
    known = np.flatnonzero(is_known)
    shares = np.zeros(n)
    if len(known):
        shares[known] = q[known] / q[known].sum()
    p_j = np.zeros(m, np.float32)  # in the kernel's precision: ties are ties there too
    for i in known:
        p_j += np.float32(shares[i]) * p[i]
    sizes, mass, child = [0] * m, [0.0] * m, [-1] * n
    remaining, needed = n + n_pads, m

    def is_open(j: int) -> bool:
        if capacity:
            return sizes[j] < capacity
        is_complete = sizes[j] >= 1 and (sizes[j] - 1) % (m - 1) == 0
        return not is_complete or remaining > needed

    def enter(i: int, j: int) -> None:
        nonlocal remaining, needed
        if not capacity:
            is_complete = sizes[j] >= 1 and (sizes[j] - 1) % (m - 1) == 0
            needed += m - 2 if is_complete else -1
        remaining -= 1
        sizes[j] += 1
        if i < n:
            child[i], mass[j] = j, mass[j] + q[i]

    todo = set(known.tolist())
    while todo:
        best = None
        for i in sorted(todo):
            for j in range(m):
                if is_open(j):
                    difference = p[i, j] - p_j[j]
                    g = np.float32(shares[i] * (1 - shares[i])) * np.sign(difference)
                    g = g * p[i, j] if times_p else g
                    key = (g, difference, -i, -j)
                    if best is None or key > best[0]:
                        best = (key, i, j)
        assert best is not None
        todo.remove(best[1])
        enter(best[1], best[2])
    rest = sorted(np.flatnonzero(~is_known).tolist(), key=lambda i: (-q[i], i))
    for i in [*rest, *range(n, n + n_pads)]:
        enter(i, min((j for j in range(m) if is_open(j)), key=lambda j: (mass[j], sizes[j], j)))
    return child
