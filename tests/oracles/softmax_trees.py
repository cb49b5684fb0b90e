"""Slow trees of softmax nodes: the model, its gradient, its
statistics' assignment, all in plain Python.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np


class Net(NamedTuple):
    """Parameters: weights[node][child], bias, embedding [V, d],
    transition None, [T, d] or [T, d, d].
    """

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


def numeric_gradient(
    net: Net, row: dict[int, float], path: Path, is_mean: bool, eps: float = 1e-6
) -> Net:
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


def mean_of(q: np.ndarray, p: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels' shares of the node and p_j, in the kernel's
    precision: ties are ties there too.
    """
    shares, p_j = np.zeros(len(q)), np.zeros(p.shape[1], np.float32)
    if len(known):
        shares[known] = q[known] / q[known].sum()
    for i in known:
        p_j += np.float32(shares[i]) * p[i]
    return shares, p_j


def alone_of(
    q: np.ndarray, m: int, own: np.ndarray, capacity: int, alone: float, *, stay: bool
) -> dict[int, int]:
    """Return the labels that get a child for themselves, of labels
    the most frequent first, and which.
    """
    n = len(q)
    if not capacity or n <= m:
        return {}
    n_alone = 0
    while n_alone < m - 1:
        after = n - n_alone - 1
        if not 0 < after <= capacity * (m - n_alone - 1):
            break
        least = alone / 2 if stay and own[n_alone] >= 0 else alone
        if q[n_alone] < least * q[n_alone:].sum() / (m - n_alone):
            break
        n_alone += 1
    found: dict[int, int] = {}
    for i in range(n_alone):
        if stay and own[i] >= 0 and own[i] not in found.values():
            found[i] = int(own[i])
    for i in range(n_alone):
        if i not in found:
            found[i] = min(set(range(m)) - set(found.values()))
    return found


def keepers(
    q: np.ndarray,
    p: np.ndarray,
    is_known: np.ndarray,
    own: np.ndarray,
    n_rows: np.ndarray,
    margin: float,
) -> dict[int, int]:
    """Return the labels that no child promises enough, with the child where they are."""
    _, p_j = mean_of(q, p, np.flatnonzero(is_known))
    found = {}
    for i in np.flatnonzero(own >= 0).tolist():
        here, best = own[i], int(np.argmax(p[i] - p_j))
        error = math.sqrt(max(p[i, j] * (1 - p[i, j]) for j in (here, best)) / max(1, n_rows[i]))
        gain = float((p[i, best] - p_j[best]) - (p[i, here] - p_j[here]))
        if gain <= margin * error or len(q) <= p.shape[1]:
            found[i] = int(here)
    return found


def gain(share: float, difference: np.float32, probability: np.float32 | None) -> np.float32:
    """Return what the objective gains if a label of this share enters a child.

    difference   of the child's probability given the label to that of all rows
    probability  by which the gain is multiplied, if it is
    """
    g = np.float32(share * (1 - share)) * np.sign(difference)
    return g if probability is None else g * probability


def greedy(  # noqa: C901
    q: np.ndarray,
    p: np.ndarray,
    is_known: np.ndarray,
    capacity: int,
    n_pads: int,
    *,
    times_p: bool,
    slack: float = 0.0,
    keeps: dict[int, int] | None = None,
    alone: dict[int, int] | None = None,
) -> list[int]:
    """Return each label's child: the best (label, child) of all pairs, again and again.

    q, p      each label's share of the rows, and the probabilities of the children given it
    is_known  whether the node knows anything of a label
    capacity  labels of a child at most; 0: sizes are to be 1 modulo M - 1, with n_pads labels that
              are none
    slack     times the mean mass of a child: with that, it takes no more; 0: no bound
    keeps     the child that a label keeps, whatever its mass
    alone     the child that a label gets for itself
    """
    keeps, alone = keeps or {}, alone or {}
    is_known = is_known & ~np.isin(np.arange(len(q)), list(alone))
    n, m = p.shape
    known = np.flatnonzero(is_known)
    shares, p_j = mean_of(q, p, known)
    sizes, mass, child = [0] * m, [0.0] * m, [-1] * n
    remaining, needed = n + n_pads, m
    left = float(q.sum()) - float(sum(q[i] for i in alone))
    room = slack * left / (m - len(alone)) if slack else math.inf
    for i, j in alone.items():
        child[i], sizes[j] = j, 1 << 40

    def is_complete(j: int) -> bool:
        return sizes[j] >= 1 and (sizes[j] - 1) % (m - 1) == 0

    def is_open(j: int) -> bool:
        if capacity:
            return sizes[j] < capacity and mass[j] < room
        return not is_complete(j) or remaining > needed

    def enter(i: int, j: int) -> None:
        nonlocal remaining, needed
        if not capacity:
            needed += m - 2 if is_complete(j) else -1
        remaining -= 1
        sizes[j] += 1
        if i < n:
            child[i], mass[j] = j, mass[j] + q[i]

    def may_enter(i: int, j: int) -> bool:
        return is_open(j) or (keeps.get(i) == j and capacity > 0 and sizes[j] < capacity)

    todo = set(known.tolist())
    while todo:
        best = None
        if not any(is_open(j) for j in range(m)):
            room = math.inf
        for i in sorted(todo):
            for j in range(m):
                if may_enter(i, j):
                    difference = p[i, j] - p_j[j]
                    g = gain(shares[i], difference, p[i, j] if times_p else None)
                    g = np.float32(1 + q[i]) if keeps.get(i) == j else g
                    key = (g, difference, -i, -j)
                    if best is None or key > best[0]:
                        best = (key, i, j)
        assert best is not None
        todo.remove(best[1])
        enter(best[1], best[2])
    room = math.inf
    rest = sorted(
        np.flatnonzero(~is_known & (np.array(child) < 0)).tolist(), key=lambda i: (-q[i], i)
    )
    for i in [*rest, *range(n, n + n_pads)]:
        enter(i, min((j for j in range(m) if is_open(j)), key=lambda j: (mass[j], sizes[j], j)))
    return child
