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
from service.kernels.search.scoring import Scorer, score_alone
from service.kernels.search.workspace import Workspace


@inlined
def start_row(ensemble: TreeEnsemble, row: int, queue: QueueWorkspace) -> None:
    """Begin with a row: forget the scores of the one before; the roots have log-score 0."""
    queue.row[0] = row
    queue.stamp[0] += 1
    for root in range(ensemble.child_ptr[0]):
        queue.node_score[root] = np.float32(0.0)
        queue.node_stamp[root] = queue.stamp[0]


@inlined
def record_children(
    ensemble: TreeEnsemble, link: int, node: int, queue: QueueWorkspace, margins: NDArray[np.float32]
) -> None:
    """Turn the margins of the node's children into their log-scores."""
    score = queue.node_score[node]
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    log_links(link, n_children, margins)
    for j in range(n_children):
        queue.node_score[child + j] = score + margins[j]
        queue.node_stamp[child + j] = queue.stamp[0]


@inlined
def expand(
    ensemble: TreeEnsemble, link: int, node: int, scorer: Scorer, queue: QueueWorkspace, work: Workspace
) -> None:
    """See to it that the children of a node whose log-score is known have theirs."""
    if queue.node_stamp[ensemble.child_ptr[node]] != queue.stamp[0]:
        score_alone(scorer, node, queue.row[0])
        record_children(ensemble, link, node, queue, work.margins[0])


@inlined
def label_probability(
    ensemble: TreeEnsemble,
    link: int,
    label: int,
    scorer: Scorer,
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
            expand(ensemble, link, node, scorer, queue, work)
        total += np.exp(queue.node_score[leaf])
    return total / np.float32(n_trees)
