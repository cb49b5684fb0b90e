"""The buffers of one thread's scoring: what every traversal writes to, allocated once.

What a traversal needs besides is in `beam_workspace`, `routing_workspace` and `scores`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model_store.compiled.bits import GROUP_BITS
from model_store.compiled.handles import F32_2, I32_1, I64_1, I64_2, U8_1, handle
from model_store.ensemble import LANES, TreeEnsemble
from model_store.extras import full_features

STAGES = 4
"""How many chunks are on their way at once."""

_AT_ONCE_MAX = 16
"""So many nodes are scored at once at most."""

_MARGINS_MAX = 1 << 12
"""The margins of the nodes that are scored at once are so many at most: they stay in the caches."""

_MAP_FEATURES_MAX = 1 << 18
"""A map of more features than this does not stay in the caches, and does not pay."""


@handle
class Workspace(NamedTuple):
    """Buffers, none of which carries anything from one row to the next.

    F is the most features of a row, W the widest chunk padded to LANES, D the features of the model.

    block_at, block_item       [STAGES, F]       the blocks found, and of which feature each is
    dense_at, sparse_at        [STAGES, F]       where the rows found begin
    dense_value, sparse_value  [STAGES, F]       the values of their features
    sparse_count               [STAGES, F]       the lengths of the sparse rows
    counts                     [STAGES, 3]       how many blocks, dense rows and sparse rows were found
    turns                      [3]               of a list of nodes: how many have their blocks, rows, words
    feature_row                [D padded, or 0]  the rows of one chunk by feature, or zeros (see feature_map)
    margins                    [M, W]            of the children of up to M nodes that are scored at once
    cost                       [M, 2]            chunks scored and bytes of weights read since it was cleared
    full_features              D if each chunk of the model has a dense row for every feature, else 0
    stop                       [1]               not 0: end with what is sure; traversals look once a chunk
    """

    block_at: I64_2
    block_item: I64_2
    dense_at: I64_2
    dense_value: F32_2
    sparse_at: I64_2
    sparse_value: F32_2
    sparse_count: I64_2
    counts: I64_2
    turns: I64_1
    feature_row: I32_1
    margins: F32_2
    cost: I64_2
    full_features: int
    stop: U8_1


@handle
class Entries(NamedTuple):
    """The nodes that a traversal scores one after the other, and for which rows.

    node  [..]
    row   [..] or [1]: the same for all
    """

    node: I32_1
    row: I32_1


def make_workspace(ensemble: TreeEnsemble, *, n_features: int, maps_features: bool) -> Workspace:
    """Allocate the buffers for rows of up to `n_features` features.

    maps_features  whether many rows will need the same chunks: adds a map over the model's features, unless
                   they are too many for it to pay
    """
    n_mapped = ensemble.directory.shape[1] << GROUP_BITS
    width = widest_chunk(ensemble)
    n_at_once = max(1, min(_AT_ONCE_MAX, _MARGINS_MAX // max(1, width)))
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
        margins=np.empty((n_at_once, width), np.float32),
        cost=np.zeros((n_at_once, 2), np.int64),
        full_features=full_features(ensemble),
        stop=np.zeros(1, np.uint8),
    )


def widest_chunk(ensemble: TreeEnsemble) -> int:
    """Return the most children of a node, padded to LANES."""
    return -(-int(np.diff(ensemble.child_ptr).max(initial=0)) // LANES) * LANES
