"""Log-scores of nodes, each chunk scored at most once a row: what exact and threshold traversals share.

`node_score[n]` is valid while `node_stamp[n]` equals the row's stamp. A label's probability is the mean over
the trees of exp(log-score of its leaf), 0 in a tree without such a leaf.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import TreeEnsemble
from model_store.jit import borrowing_inlined as inlined
from service.kernels.links import log_link
from service.kernels.scorer import score_at_once
from service.kernels.workspace import Workspace


@inlined
def start_row(ensemble: TreeEnsemble, work: Workspace) -> None:
    """Forget the scores of the row before; the roots have log-score 0."""
    work.stamp[0] += 1
    for root in range(ensemble.child_ptr[0]):
        work.node_score[root] = np.float32(0.0)
        work.node_stamp[root] = work.stamp[0]


@inlined
def record_children(ensemble: TreeEnsemble, link: int, node: int, work: Workspace) -> None:
    """Turn `margins` into log-scores of the node's children."""
    score = work.node_score[node]
    child = ensemble.child_ptr[node]
    for j in range(ensemble.child_ptr[node + 1] - child):
        work.node_score[child + j] = score + log_link(link, work.margins[j])
        work.node_stamp[child + j] = work.stamp[0]


@inlined
def expand(
    ensemble: TreeEnsemble,
    link: int,
    node: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    work: Workspace,
) -> None:
    """See to it that the children of a node whose log-score is known have theirs."""
    if work.node_stamp[ensemble.child_ptr[node]] != work.stamp[0]:
        score_at_once(ensemble, node, indices, values, work)
        record_children(ensemble, link, node, work)


@inlined
def label_probability(
    ensemble: TreeEnsemble,
    link: int,
    label: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    work: Workspace,
) -> np.float32:
    """Return the label's probability, scoring the chunks on its paths that are not scored yet."""
    n_trees = ensemble.label_leaf.shape[0]
    total = np.float32(0.0)
    for tree in range(n_trees):
        leaf = ensemble.label_leaf[tree, label]
        if leaf < 0:
            continue
        while work.node_stamp[leaf] != work.stamp[0]:
            node = ensemble.parent[leaf]
            while work.node_stamp[node] != work.stamp[0]:
                node = ensemble.parent[node]
            expand(ensemble, link, node, indices, values, work)
        total += np.exp(work.node_score[leaf])
    return total / np.float32(n_trees)
