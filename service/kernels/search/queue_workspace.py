"""The buffers of the traversals by a queue: exact and thresholded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import Kinds, borrower
from model_store.ensemble import TreeEnsemble


class QueueWorkspace(NamedTuple):
    """Buffers, none of which carries anything from one row to the next; they grow with the number of nodes.

    R is top_r, N nodes, I inner nodes, T trees, K labels.

    row               int32[1]               the row
    stamp             int64[1]               counts rows, so that stamps need no clearing
    front_score/node  float32/int32[I + T]   the queue
    node_score/stamp  float32/int64[N]       log-scores of nodes, valid where the stamp equals the row's
    best_score/label  float32/int32[R]       the heap of labels: the answer
    leaf_seen         int32[K or 0]          several trees: a leaf of each label found so far, in that order
    label_stamp       int64[K or 0]          the row for which a label was last found
    """

    row: NDArray[np.int32]
    stamp: NDArray[np.int64]
    front_score: NDArray[np.float32]
    front_node: NDArray[np.int32]
    node_score: NDArray[np.float32]
    node_stamp: NDArray[np.int64]
    best_score: NDArray[np.float32]
    best_label: NDArray[np.int32]
    leaf_seen: NDArray[np.int32]
    label_stamp: NDArray[np.int64]


QUEUE_KINDS: Kinds = {
    "row": (np.int32, 1),
    "stamp": (np.int64, 1),
    "front_score": (np.float32, 1),
    "front_node": (np.int32, 1),
    "node_score": (np.float32, 1),
    "node_stamp": (np.int64, 1),
    "best_score": (np.float32, 1),
    "best_label": (np.int32, 1),
    "leaf_seen": (np.int32, 1),
    "label_stamp": (np.int64, 1),
}

borrow_queue = borrower(QueueWorkspace, QUEUE_KINDS)


def make_queue(ensemble: TreeEnsemble, *, top_r: int) -> QueueWorkspace:
    """Allocate the buffers for answers of up to top_r labels."""
    n_trees, n_nodes = int(ensemble.child_ptr[0]), len(ensemble.parent)
    n_labels = ensemble.label_leaf.shape[1] if n_trees > 1 else 0
    n_front = len(ensemble.directory) + n_trees
    return QueueWorkspace(
        row=np.zeros(1, np.int32),
        stamp=np.zeros(1, np.int64),
        front_score=np.empty(n_front, np.float32),
        front_node=np.empty(n_front, np.int32),
        node_score=np.empty(n_nodes, np.float32),
        node_stamp=np.zeros(n_nodes, np.int64),
        best_score=np.empty(top_r, np.float32),
        best_label=np.empty(top_r, np.int32),
        leaf_seen=np.empty(n_labels, np.int32),
        label_stamp=np.zeros(n_labels, np.int64),
    )
