"""Slow and obvious: what training computes, with dense arrays and
Python integers; rankings of labels too.
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from xylem.base.rows import LabelRows, SparseRows

MASK = (1 << 64) - 1


def splitmix64(seed: int, n: int) -> list[int]:
    """The first n numbers of the generator, in Python integers."""
    found = []
    for _ in range(n):
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        found.append(z ^ (z >> 31))
    return found


def halves(
    vectors: np.ndarray, n_left: int, first: int, second: int, rounds_max: int, gain_min: float
) -> Any:
    """Balanced spherical 2-means of dense unit vectors, begun at
    two of them; returns the left half.
    """
    left, right = vectors[first], vectors[second]
    best = -np.inf
    chosen = np.arange(0)
    for _ in range(rounds_max):
        near = vectors @ np.column_stack([unit(left), unit(right)])
        order = np.argsort(near[:, 1] - near[:, 0], kind="stable")
        chosen, others = np.sort(order[:n_left]), np.sort(order[n_left:])
        total = near[chosen, 0].sum() + near[others, 1].sum()
        if total <= best + gain_min * len(vectors):
            break
        best = total
        left, right = vectors[chosen].sum(axis=0), vectors[others].sum(axis=0)
    return chosen


def unit(vector: np.ndarray) -> np.ndarray:
    """The vector at length 1, or zero."""
    length = np.sqrt((vector.astype(np.float64) ** 2).sum())
    return vector / length if length > 0 else vector


def hinge_objective(x: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, cost: float) -> float:
    """(|w|^2 + b^2) / 2 + cost * sum of squared hinges."""
    return float(0.5 * (w @ w + b * b) + cost * (np.maximum(0, 1 - y * (x @ w + b)) ** 2).sum())


def logistic_objective(x: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, cost: float) -> float:
    """(|w|^2 + b^2) / 2 + cost * sum of logistic losses."""
    return float(0.5 * (w @ w + b * b) + cost * np.logaddexp(0, -y * (x @ w + b)).sum())


def random_rows(
    rng: np.random.Generator, n_rows: int, n_features: int, density: float
) -> SparseRows:
    """Rows of length 1 or empty; about every tenth repeats an earlier one."""
    dense = rng.random((n_rows, n_features)) * (rng.random((n_rows, n_features)) < density)
    for i in range(1, n_rows):
        if rng.random() < 0.1:
            dense[i] = dense[rng.integers(0, i)]
    lengths = np.sqrt((dense**2).sum(axis=1, keepdims=True))
    return to_rows(np.divide(dense, lengths, out=np.zeros_like(dense), where=lengths > 0))


def random_labels(rng: np.random.Generator, n_rows: int, n_labels: int, share: float) -> LabelRows:
    """Labels of rows, at least one in all; some rows have none and some labels no row."""
    carried = rng.random((n_rows, n_labels)) < share * rng.random(n_labels) ** 2 * 2
    carried[rng.integers(0, n_rows), rng.integers(0, n_labels)] = True
    return to_labels(carried)


def learnable(
    seed: int,
    n_rows: int,
    n_labels: int,
    *,
    n_features: int = 50,
    rarity: float = 0.95,
    without: int = 4,
) -> tuple[SparseRows, LabelRows]:
    """Rows whose labels can be read off their features; some have none, label
    `without` is on none.
    """
    rng = np.random.default_rng(seed)
    x = dense_rows(random_rows(rng, n_rows, n_features, 0.15))
    near = x @ rng.standard_normal((n_features, n_labels))
    carried = (near > np.quantile(near, rarity, axis=0)) & x.any(axis=1, keepdims=True)
    carried[:, without] = False
    return to_rows(x), to_labels(carried)


def to_rows(dense: np.ndarray) -> SparseRows:
    """Dense rows as SparseRows."""
    x = sparse.csr_array(dense.astype(np.float32))
    return SparseRows(x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data, dense.shape[1])


def to_labels(carried: np.ndarray) -> LabelRows:
    """A boolean matrix (rows x labels) as LabelRows."""
    y = sparse.csr_array(carried)
    return LabelRows(y.indptr.astype(np.int64), y.indices.astype(np.int32), carried.shape[1])


def dense_rows(rows: SparseRows) -> np.ndarray:
    """SparseRows as float64[n, D]."""
    matrix = sparse.csr_array(
        (rows.values, rows.indices, rows.indptr), (rows.n_rows, rows.n_features)
    )
    return matrix.toarray().astype(np.float64)


def dense_labels(labels: LabelRows) -> np.ndarray:
    """LabelRows as bool[n, K]."""
    ones, shape = np.ones(len(labels.indices), bool), (labels.n_rows, labels.n_labels)
    return sparse.csr_array((ones, labels.indices, labels.indptr), shape).toarray()


def flat(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Lists as offsets and ids: int64[n + 1] and int32[..], which cannot be written."""
    ptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    ids = np.array([i for row in rows for i in row], np.int32)
    ptr.flags.writeable = ids.flags.writeable = False
    return ptr, ids


def readonly(arrays: tuple) -> list:
    """The arrays as views that cannot be written."""
    views = [array.view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return views


def training_sets(
    n_rows: int, n_features: int, n_labels: int, densities: list[float], shares: list[float]
) -> st.SearchStrategy:
    """Rows and labels, of at most so many: of these densities, each
    label on these shares of the rows.
    """

    def made(seed, rows, features, labels, density, share):
        x = random_rows(np.random.default_rng(seed), rows, features, density)
        return x, random_labels(np.random.default_rng(seed + 1), rows, labels, share)

    sizes = (st.integers(1, most) for most in (n_rows, n_features, n_labels))
    return st.builds(
        made, st.integers(0, 2**31), *sizes, st.sampled_from(densities), st.sampled_from(shares)
    )


def discounted(gains: np.ndarray, ranking: list[int]) -> float:
    """The sum of nDCGs of rows (gains float64[n, k] over the ideal
    DCG) under one ranking of the labels.
    """
    return float(
        sum(gains[:, label].sum() / np.log2(place + 2) for place, label in enumerate(ranking))
    )


def best_ranking(gains: np.ndarray) -> list[int]:
    """The labels by falling summed gain, equal ones by number."""
    sums = in_turn(gains.T)
    return sorted(range(gains.shape[1]), key=lambda label: (-sums[label], label))


def served(gains: np.ndarray, side: np.ndarray) -> float:
    """The sum of nDCGs when each side has its best ranking."""
    return sum(discounted(gains[side == s], best_ranking(gains[side == s])) for s in (0, 1))


def alternate(
    gains: np.ndarray, side: np.ndarray, discount: np.ndarray, gain_min: float
) -> tuple[np.ndarray, list[float]]:
    """Rankings for sides and sides for rankings in turn; the sides at
    the end, each round's sum of nDCGs.

    Every label must have a gain. Sums are taken from the first to the last, so that what a kernel
    finds equal is equal here.
    """
    n_rows, n_labels = gains.shape
    totals: list[float] = []
    while len(totals) < 2 or totals[-1] - totals[-2] >= gain_min * n_rows:
        totals.append(served(gains, side))
        lead = np.zeros(n_labels)
        for sign, s in ((-1.0, 0), (1.0, 1)):
            for place, label in enumerate(best_ranking(gains[side == s])):
                lead[label] += sign * discount[place]
        more = in_turn(gains * lead)
        side = np.where(more == 0, side, more > 0).astype(np.uint8)
    return side, totals


def in_turn(rows: np.ndarray) -> np.ndarray:
    """The sum of each row, added from its first element to its last."""
    return np.cumsum(rows, axis=1)[:, -1] if rows.shape[1] else np.zeros(len(rows))


def separator_objective(x: np.ndarray, side: np.ndarray, w: np.ndarray, cost: np.ndarray) -> float:
    """|w|_1 + sum of cost of the side * logistic loss; the last of w is the constant term."""
    margin = np.where(side == 1, 1.0, -1.0) * (x @ w[:-1] + w[-1])
    return float(np.abs(w).sum() + (cost[side] * np.logaddexp(0, -margin)).sum())
