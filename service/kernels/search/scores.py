"""Log-scores of nodes, each chunk scored at most once a row: what exact and threshold traversals share.

`node_score[n]` is valid while `node_stamp[n]` equals the row's stamp. A label's probability is the mean over
the trees of exp(log-score of its leaf), 0 in a tree without such a leaf.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.ensemble import TreeEnsemble
from service.kernels.search.links import log_links
from service.kernels.search.queue_workspace import QueueWorkspace
from service.kernels.search.scorer import score_at_once
from service.kernels.search.workspace import Workspace


@inlined
def start_row(ensemble: TreeEnsemble, queue: QueueWorkspace) -> None:
    """Forget the scores of the row before; the roots have log-score 0."""
    queue.stamp[0] += 1
    for root in range(ensemble.child_ptr[0]):
        queue.node_score[root] = np.float32(0.0)
        queue.node_stamp[root] = queue.stamp[0]


@inlined
def record_children(
    ensemble: TreeEnsemble, link: int, node: int, queue: QueueWorkspace, work: Workspace
) -> None:
    """Turn `margins` into log-scores of the node's children."""
    score = queue.node_score[node]
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    log_links(link, n_children, work.margins)
    for j in range(n_children):
        queue.node_score[child + j] = score + work.margins[j]
        queue.node_stamp[child + j] = queue.stamp[0]


@inlined
def expand(
    ensemble: TreeEnsemble,
    link: int,
    node: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    queue: QueueWorkspace,
    work: Workspace,
) -> None:
    """See to it that the children of a node whose log-score is known have theirs."""
    if queue.node_stamp[ensemble.child_ptr[node]] != queue.stamp[0]:
        score_at_once(ensemble, node, indices, values, work)
        record_children(ensemble, link, node, queue, work)


@inlined
def label_probability(
    ensemble: TreeEnsemble,
    link: int,
    label: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    queue: QueueWorkspace,
    work: Workspace,
) -> np.float32:
    """Return the label's probability, scoring the chunks on its paths that are not scored yet."""
    n_trees = ensemble.label_leaf.shape[0]
    total = np.float32(0.0)
    for tree in range(n_trees):
        leaf = ensemble.label_leaf[tree, label]
        if leaf < 0:
            continue
        while queue.node_stamp[leaf] != queue.stamp[0]:
            node = ensemble.parent[leaf]
            while queue.node_stamp[node] != queue.stamp[0]:
                node = ensemble.parent[node]
            expand(ensemble, link, node, indices, values, queue, work)
        total += np.exp(queue.node_score[leaf])
    return total / np.float32(n_trees)
