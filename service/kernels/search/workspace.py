"""The buffers of one thread's scoring: what every traversal writes to, allocated once.

What a traversal needs besides is in `beam_workspace` and `queue_workspace`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.bits import GROUP_BITS
from model_store.compiled.handles import Kinds, borrower
from model_store.ensemble import LANES, TreeEnsemble

STAGES = 4
"""How many chunks are on their way at once."""

_MAP_FEATURES_MAX = 1 << 18
"""A map of more features than this does not stay in the caches, and does not pay."""


class Workspace(NamedTuple):
    """Buffers, none of which carries anything from one row to the next.

    F is the most features of a row, W the widest chunk padded to LANES, D the features of the model.

    block_at, block_item       int64[STAGES, F]    the blocks found, and of which feature each is
    dense_at, sparse_at        int64[STAGES, F]    where the rows found begin
    dense_value, sparse_value  float32[STAGES, F]  the values of their features
    sparse_count               int64[STAGES, F]    the lengths of the sparse rows
    counts                     int64[STAGES, 3]    how many blocks, dense rows and sparse rows were found
    turns           int64[3]         of a list of nodes: how many have had their blocks, rows, words found
    feature_row     int32[D padded, or 0]  the rows of one chunk by feature, or zeros (see feature_map)
    margins         float32[W]       of the children of the chunk being scored
    cost            int64[2]         chunks scored, and bytes of their weights read, since it was last cleared
    stop            uint8[1]         not 0: end with what is sure so far; traversals look once a chunk
    """

    block_at: NDArray[np.int64]
    block_item: NDArray[np.int64]
    dense_at: NDArray[np.int64]
    dense_value: NDArray[np.float32]
    sparse_at: NDArray[np.int64]
    sparse_value: NDArray[np.float32]
    sparse_count: NDArray[np.int64]
    counts: NDArray[np.int64]
    turns: NDArray[np.int64]
    feature_row: NDArray[np.int32]
    margins: NDArray[np.float32]
    cost: NDArray[np.int64]
    stop: NDArray[np.uint8]


WORKSPACE_KINDS: Kinds = {
    "block_at": (np.int64, 2),
    "block_item": (np.int64, 2),
    "dense_at": (np.int64, 2),
    "dense_value": (np.float32, 2),
    "sparse_at": (np.int64, 2),
    "sparse_value": (np.float32, 2),
    "sparse_count": (np.int64, 2),
    "counts": (np.int64, 2),
    "turns": (np.int64, 1),
    "feature_row": (np.int32, 1),
    "margins": (np.float32, 1),
    "cost": (np.int64, 1),
    "stop": (np.uint8, 1),
}

borrow_workspace = borrower(Workspace, WORKSPACE_KINDS)


def make_workspace(ensemble: TreeEnsemble, *, n_features: int, maps_features: bool) -> Workspace:
    """Allocate the buffers for rows of up to `n_features` features.

    maps_features  whether many rows will need the same chunks: adds a map over the model's features, unless
                   they are too many for it to pay
    """
    n_mapped = ensemble.directory.shape[1] << GROUP_BITS
    return Workspace(
        block_at=np.empty((STAGES, n_features), np.int64),
        block_item=np.empty((STAGES, n_features), np.int64),
        dense_at=np.empty((STAGES, n_features), np.int64),
        dense_value=np.empty((STAGES, n_features), np.float32),
        sparse_at=np.empty((STAGES, n_features), np.int64),
        sparse_value=np.empty((STAGES, n_features), np.float32),
        sparse_count=np.empty((STAGES, n_features), np.int64),
        counts=np.zeros((STAGES, 3), np.int64),
        turns=np.zeros(3, np.int64),
        feature_row=np.zeros(n_mapped if maps_features and n_mapped <= _MAP_FEATURES_MAX else 0, np.int32),
        margins=np.empty(widest_chunk(ensemble), np.float32),
        cost=np.zeros(2, np.int64),
        stop=np.zeros(1, np.uint8),
    )


def widest_chunk(ensemble: TreeEnsemble) -> int:
    """Return the most children of a node, padded to LANES."""
    return -(-int(np.diff(ensemble.child_ptr).max(initial=0)) // LANES) * LANES
