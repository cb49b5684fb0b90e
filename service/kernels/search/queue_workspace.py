"""The buffers of the traversals by a queue: exact and thresholded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model_store.compiled.handles import F32_1, I32_1, I64_1, handle
from model_store.ensemble import TreeEnsemble
from service.kernels.search.workspace import Entries


@handle
class QueueWorkspace(NamedTuple):
    """Buffers, none of which carries anything from one row to the next; they grow with the number of nodes.

    R is top_r, N nodes, I inner nodes, T trees, K labels.

    row               [1]       the row
    stamp             [1]       counts rows, so that stamps need no clearing
    front_score/node  [I + T]   the queue
    node_score/stamp  [N]       log-scores of nodes, valid where the stamp equals the row's
    best_score/label  [R]       the heap of labels: the answer
    leaf_seen         [K or 0]  several trees: a leaf of each label found so far, in that order
    label_stamp       [K or 0]  the row for which a label was last found
    """

    row: I32_1
    stamp: I64_1
    front_score: F32_1
    front_node: I32_1
    node_score: F32_1
    node_stamp: I64_1
    best_score: F32_1
    best_label: I32_1
    leaf_seen: I32_1
    label_stamp: I64_1

    def entries(self) -> Entries:
        """Return what is scored by a thresholded search: its queue is a list."""
        return Entries(self.front_node, self.row)


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
