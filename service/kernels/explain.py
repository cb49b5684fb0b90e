"""Why a label has its probability: the nodes on its path, and what each feature of the row added there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.jit import borrowing_kernel as kernel
from service.kernels.forest import borrow_ensemble
from service.kernels.links import log_link
from service.kernels.scorer import score_at_once
from service.kernels.workspace import borrow_workspace


@kernel
def explain_leaf(
    lent_ensemble: NDArray[np.int64],
    sparse: NDArray[Any],
    dense: NDArray[Any],
    link: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    leaf: int,
    lent_work: NDArray[np.int64],
    path_out: NDArray[np.int32],
    log_out: NDArray[np.float32],
    added_out: NDArray[np.float32],
) -> None:
    """Walk a leaf's path from below the root to the leaf, of `depth` nodes.

    indices, values  the row, as a traversal takes it
    path_out         int32[depth]: the nodes
    log_out          float32[depth]: log p of each node given its parent; their sum is the leaf's log-score
    added_out        float32[depth, features of the row]: what each feature adds to the node's margin, that is
                     value * weight; margin = bias + the sum over the features, but for rounding
    Cost: depth * features chunk look-ups: the scorer is asked about rows of one feature.
    """
    ensemble = borrow_ensemble(lent_ensemble, (sparse, dense))
    work = borrow_workspace(lent_work, ())
    node = leaf
    for step in range(len(path_out) - 1, -1, -1):
        above = ensemble.parent[node]
        position = node - ensemble.child_ptr[above]
        path_out[step] = node
        score_at_once(ensemble, above, indices, values, work)
        log_out[step] = log_link(link, work.margins[position])
        for i in range(len(indices)):
            score_at_once(ensemble, above, indices[i : i + 1], values[i : i + 1], work)
            added_out[step, i] = work.margins[position] - ensemble.node_bias[node]
        node = above


@kernel
def depth_of(parent: NDArray[np.int32], node: int) -> int:
    """Return how many steps a node is below its root."""
    depth = 0
    while parent[node] >= 0:
        node = parent[node]
        depth += 1
    return depth
