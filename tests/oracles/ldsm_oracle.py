"""Slow and obvious: LdSM's objective and algorithms 3 and 4, word by
word, with means in double precision.
"""

import numpy as np


def objective(
    p: np.ndarray, p_of: np.ndarray, pi: np.ndarray, lambda1: float, lambda2: float
) -> float:
    """Equation 1: P_j as float64[M], P_j^i as float64[labels, M], pi_i as float64[labels]."""
    pairs = [(j, k) for j in range(len(p)) for k in range(j + 1, len(p))]
    balance = sum(abs(p[j] - p[k]) for j, k in pairs)
    integrity = sum(
        share * abs(of[j] - of[k]) for share, of in zip(pi, p_of, strict=True) for j, k in pairs
    )
    return float(balance - lambda1 * integrity + lambda2 * abs(p.sum() - 1.0))


def quality(
    sent: np.ndarray, carried: np.ndarray, lambda1: float, lambda2: float
) -> tuple[float, ...]:
    """J, beta and alpha of a split: who is sent where, bool[n, M], and
    who carries what, bool[n, labels].
    """
    carried = carried[:, carried.any(axis=0)]
    of_label = carried.sum(axis=0)
    pi = of_label / of_label.sum()
    p_of = np.array([sent[carried[:, i]].mean(axis=0) for i in range(carried.shape[1])])
    p = pi @ p_of
    beta = max(abs(p - p.mean()))
    rest = p_of.sum(axis=1, keepdims=True) - p_of
    alpha = float(pi @ np.minimum(p_of, rest).sum(axis=1)) / sent.shape[1]
    return objective(p, p_of, pi, lambda1, lambda2), float(beta), alpha


class Means:
    """P_m, P_m^k and the counters of a node of M children."""

    def __init__(self, n_labels: int, n_children: int) -> None:
        self.n_children, self.c_v, self.l_v = n_children, 0, np.zeros(n_labels)
        self.p, self.p_of = np.zeros(n_children), np.zeros((n_labels, n_children))

    def see(self, labels: list[int]) -> None:
        """Count the labels of a row."""
        self.c_v += len(labels)
        self.l_v[labels] += 1

    def with_row(self, labels: list[int], share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P_m and P_m^k of all labels once a row has gone to each child by so much."""
        p = ((self.c_v - len(labels)) * self.p + len(labels) * share) / self.c_v
        p_of = self.p_of.copy()
        for k in labels:
            p_of[k] = ((self.l_v[k] - 1) * self.p_of[k] + share) / self.l_v[k]
        return p, p_of

    def objectives(self, labels: list[int], lambda1: float, lambda2: float) -> np.ndarray:
        """Algorithm 3: J of each direction set from 1; the row's labels have been seen."""
        found = []
        for directions in range(1, 1 << self.n_children):
            share = np.array([directions >> m & 1 for m in range(self.n_children)], np.float64)
            p, p_of = self.with_row(labels, share)
            found.append(objective(p, p_of[labels], self.l_v[labels] / self.c_v, lambda1, lambda2))
        return np.array(found)


def best_set(objectives: np.ndarray) -> int:
    """The smallest direction set with the least J, up to rounding."""
    return 1 + int(np.flatnonzero(objectives <= objectives.min() + 1e-12)[0])


def sigmoid(margin: np.ndarray) -> np.ndarray:
    """The logistic function."""
    return 1.0 / (1.0 + np.exp(-margin))


def train(
    x: np.ndarray,
    labels: list[list[int]],
    orders: list[np.ndarray],
    weights: np.ndarray,
    step: float,
    lambda1: float,
    lambda2: float,
    optimizer: str,
) -> np.ndarray:
    """Algorithm 4: x with a column of ones, weights float64[features + 1, M] at the start.

    labels: those of each row; orders: of the rows, by epoch. "sgd", or "nag": the normalised
    adaptive gradient of Ross et al., the scales known from the start.
    """
    weights = weights.copy()
    means = Means(1 + max(max(row) for row in labels), weights.shape[1])
    n_steps = sum(map(len, orders))
    length = max(1.0, float((x[:, :-1] ** 2).sum(axis=1).max()))
    scales, squares, normal = abs(x).max(axis=0), np.zeros_like(weights), 0.0
    for done, i in enumerate(np.concatenate(orders)):
        means.see(labels[i])
        chosen = best_set(means.objectives(labels[i], lambda1, lambda2))
        towards = np.array([chosen >> m & 1 for m in range(weights.shape[1])])
        rate = step * (1 - done / n_steps)
        gradient = np.outer(x[i], sigmoid(x[i] @ weights) - towards)
        if optimizer == "sgd":
            weights -= rate / length * gradient
        else:
            normal += ((x[i] / scales) ** 2).sum()
            squares += gradient**2
            size = scales[:, None] * np.sqrt(np.where(squares > 0, squares, 1.0))
            weights -= rate * np.sqrt((done + 1) / normal) * gradient / size
        means.p, means.p_of = means.with_row(labels[i], sigmoid(x[i] @ weights))
    return weights
