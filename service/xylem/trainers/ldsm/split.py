"""LdSM: splitting the rows of a node by its trained regressors."""

from typing import NamedTuple

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem.trainers.kernels.problem import Problem, localise, localise_labels
from xylem.trainers.ldsm.objective import count_labels, split_quality
from xylem.trainers.ldsm.regressors import Learning, Regressors, margins_of, train_regressors
from xylem_store import F32, F64, I32, I64, U8, U16, U64, kernel

# A useless or lopsided split is trained again with lambda1 halved, at most this many times; if it
# is useless even then, the node stays a leaf.
RETRIES = 2

# A split is useless if the children together hold more than this share of M times the rows. It is
# lopsided if one child gets more than this share of the rows: repeated splits that separate few
# rows made the deepest paths.
FULL = 0.9


class Split(NamedTuple):
    """A node's split; `n_children` is 0 if the node stays a leaf.

    n_children  number of children that get a row; these children come first in all arrays
    weights     float32[m + 1, 8]
    features    int32[m]           feature of each row of `weights`
    directions  uint16[n]          direction set of each row
    sizes       int64[M]           number of rows of each child
    labels      int32[k]           labels that occur, ascending
    counts      int32[k, M]        number of rows with each label that go to each child
    quality     float64[3]         J, beta, alpha (`split_quality`)
    n_retries   number of trainings after the first one
    """

    n_children: int
    weights: F32
    features: I32
    directions: U16
    sizes: I64
    labels: I32
    counts: I32
    quality: F64
    n_retries: int


class Examples(NamedTuple):
    """The training set, and the workspaces of a thread.

    feature_rank      int32[n_features], zero between calls
    label_rank        int32[n_labels], zero between calls
    features, values  arrays into which the rows of a node are copied; if they are too short, new
                      arrays are allocated
    """

    rows: SparseRows
    labels: LabelRows
    feature_rank: I32
    label_rank: I32
    features: I32
    values: F32


@kernel
def route_rows(problem: Problem, regressors: Regressors, n_children: int) -> U16:
    """Return the direction set of each row.

    Source: LdSM, algorithm 5 (CreateChildren). The set has every child with a margin above 0, or,
    if there is none, the child with the largest margin; for equal margins the first of them.
    """
    directions = np.empty(len(problem.rows), np.uint16)
    margins = regressors.margins
    for i in range(len(directions)):
        margins_of(problem, regressors, i)
        chosen = 0
        best = 0
        for m in range(n_children):
            if margins[m] > 0:
                chosen |= 1 << m
            if margins[m] > margins[best]:
                best = m
        directions[i] = chosen if chosen else 1 << best
    return directions


@kernel
def _drop_empty_children(sizes: I64, weights: F32, directions: U16, counts: I32) -> int:
    """Move the children that get rows to the front; return the number of them."""
    n_kept = 0
    for m in range(len(sizes)):
        if sizes[m]:
            if n_kept < m:
                weights[:, n_kept] = weights[:, m]
                counts[:, n_kept] = counts[:, m]
                sizes[n_kept] = sizes[m]
                for i in range(len(directions)):
                    bit = (directions[i] >> m) & 1
                    directions[i] = (directions[i] & ~(1 << n_kept)) | (bit << n_kept)
            n_kept += 1
    for i in range(len(directions)):
        directions[i] &= (1 << n_kept) - 1
    return n_kept


@kernel
def split_node(examples: Examples, rows: I32, learning: Learning, state: U64, stop: U8) -> Split:
    """Train a node on its rows and send them to its children.

    Source: LdSM, algorithms 4 and 5. Deviations: features and labels are renumbered to those that
    occur in the node. Weights below learning.prune are set to 0 before the rows are sent. A split
    is trained again with lambda1 halved, up to RETRIES times, if it is useless (a child gets all
    rows, or the children together hold more than FULL * M times the rows) or lopsided (a child gets
    more than FULL times the rows); if it is still useless then, the node stays a leaf. Children
    without rows are dropped; later rows go to the best of the others.

    rows  int32[n], ascending, n >= 1; each carries a label
    """
    y = examples.labels
    problem = localise(
        examples.rows, rows, examples.feature_rank, examples.features, examples.values
    )
    labels = localise_labels(y.indptr, y.indices, rows, examples.label_rank)
    n = len(rows)
    n_kept = 0
    lambda1 = learning.lambda1
    n_retries = -1
    while True:
        n_retries += 1
        regressors = train_regressors(problem, labels, learning, lambda1, state, stop)
        weights = regressors.weights
        for f in range(len(weights) - 1):
            for m in range(learning.n_children):
                if abs(weights[f, m]) < learning.prune:
                    weights[f, m] = 0
        directions = route_rows(problem, regressors, learning.n_children)
        sizes = np.zeros(learning.n_children, np.int64)
        for m in range(learning.n_children):
            sizes[m] = ((directions >> m) & 1).sum()
        is_useful = sizes.max() < n and sizes.sum() <= FULL * learning.n_children * n
        if (is_useful and sizes.max() <= FULL * n) or n_retries == RETRIES or stop[0]:
            break
        lambda1 *= 0.5
    counts = count_labels(labels, directions, learning.n_children)
    quality = np.empty(3)
    quality[0], quality[1], quality[2] = split_quality(
        labels, counts, learning.lambda1, learning.lambda2
    )
    if is_useful:
        n_kept = _drop_empty_children(sizes, weights, directions, counts)
    return Split(
        n_children=n_kept,
        weights=weights,
        features=problem.used,
        directions=directions,
        sizes=sizes,
        labels=labels.used,
        counts=counts,
        quality=quality,
        n_retries=n_retries,
    )
