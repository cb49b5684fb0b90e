"""The buffers of one thread's traversals: all that a traversal writes to, allocated once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import LANES, TreeEnsemble
from service.kernels.lending import Kinds, borrower

STAGES = 4
"""How many chunks are on their way at once."""

ALL_LEAVES, ALL_INNER, MIXED = 0, 1, 2
"""What the children of a node are."""


class Workspace(NamedTuple):
    """Buffers, none of which carries anything from one row to the next.

    F is the most features of a row, W the widest chunk padded to LANES, B the beam width, R top_r, N nodes,
    I inner nodes, K labels.

    block_at, block_item       int64[STAGES, F]    the blocks found, and of which feature each is
    dense_at, sparse_at        int64[STAGES, F]    where the rows found begin
    dense_value, sparse_value  float32[STAGES, F]  the values of their features
    sparse_count               int64[STAGES, F]    the lengths of the sparse rows
    counts                     int64[STAGES, 3]    how many blocks, dense rows and sparse rows were found
    below           uint8[C]         of each chunk: ALL_LEAVES, ALL_INNER or MIXED
    row             int32[1]         the row, where a list of nodes is all for one
    turns           int64[3]         of a list of nodes: how many have had their blocks, rows, words found
    margins         float32[W]       of the children of the chunk being scored
    beam_score/node float32/int32[B] inner nodes of this level
    next_score/node float32/int32[B] the heap of the next level's
    best_score/label float32/int32[R] the heap of labels: the answer
    front_score/node float32/int32[I or 0] the frontier of exact and threshold traversals
    node_score      float32[N or 0]  log-scores of nodes already computed for this row, valid where
    node_stamp      int64[N or 0]    the stamp equals the row's
    label_sum       float32[K or 0]  several trees: sums over the trees of a label's probabilities
    leaf_seen       int32[K or 0]    a leaf of each label found so far, in order of discovery
    label_stamp     int64[K or 0]    the row for which a label was last found
    stamp           int64[1]         counts rows, so that stamps need no clearing
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
    below: NDArray[np.uint8]
    row: NDArray[np.int32]
    turns: NDArray[np.int64]
    margins: NDArray[np.float32]
    beam_score: NDArray[np.float32]
    beam_node: NDArray[np.int32]
    next_score: NDArray[np.float32]
    next_node: NDArray[np.int32]
    best_score: NDArray[np.float32]
    best_label: NDArray[np.int32]
    front_score: NDArray[np.float32]
    front_node: NDArray[np.int32]
    node_score: NDArray[np.float32]
    node_stamp: NDArray[np.int64]
    label_sum: NDArray[np.float32]
    leaf_seen: NDArray[np.int32]
    label_stamp: NDArray[np.int64]
    stamp: NDArray[np.int64]
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
    "below": (np.uint8, 1),
    "row": (np.int32, 1),
    "turns": (np.int64, 1),
    "margins": (np.float32, 1),
    "beam_score": (np.float32, 1),
    "beam_node": (np.int32, 1),
    "next_score": (np.float32, 1),
    "next_node": (np.int32, 1),
    "best_score": (np.float32, 1),
    "best_label": (np.int32, 1),
    "front_score": (np.float32, 1),
    "front_node": (np.int32, 1),
    "node_score": (np.float32, 1),
    "node_stamp": (np.int64, 1),
    "label_sum": (np.float32, 1),
    "leaf_seen": (np.int32, 1),
    "label_stamp": (np.int64, 1),
    "stamp": (np.int64, 1),
    "stop": (np.uint8, 1),
}

borrow_workspace = borrower(Workspace, WORKSPACE_KINDS)


def make_workspace(
    ensemble: TreeEnsemble, *, n_features: int, beam_width: int, top_r: int, exact: bool
) -> Workspace:
    """Allocate the buffers for rows of up to `n_features` features.

    `exact` adds the buffers of the exact and threshold traversals, which grow with the number of nodes.
    """
    n_children = np.diff(ensemble.child_ptr)
    n_nodes = len(n_children)
    n_trees = int(ensemble.child_ptr[0])
    n_labels = ensemble.label_leaf.shape[1] if n_trees > 1 else 0
    width = -(-int(n_children.max(initial=0)) // LANES) * LANES
    n_front = int(np.count_nonzero(n_children)) + n_trees if exact else 0
    return Workspace(
        block_at=np.empty((STAGES, n_features), np.int64),
        block_item=np.empty((STAGES, n_features), np.int64),
        dense_at=np.empty((STAGES, n_features), np.int64),
        dense_value=np.empty((STAGES, n_features), np.float32),
        sparse_at=np.empty((STAGES, n_features), np.int64),
        sparse_value=np.empty((STAGES, n_features), np.float32),
        sparse_count=np.empty((STAGES, n_features), np.int64),
        counts=np.zeros((STAGES, 3), np.int64),
        below=_children_kinds(ensemble),
        row=np.zeros(1, np.int32),
        turns=np.zeros(3, np.int64),
        margins=np.empty(width, np.float32),
        beam_score=np.empty(beam_width, np.float32),
        beam_node=np.empty(beam_width, np.int32),
        next_score=np.empty(beam_width, np.float32),
        next_node=np.empty(beam_width, np.int32),
        best_score=np.empty(top_r, np.float32),
        best_label=np.empty(top_r, np.int32),
        front_score=np.empty(n_front, np.float32),
        front_node=np.empty(n_front, np.int32),
        node_score=np.empty(n_nodes if exact else 0, np.float32),
        node_stamp=np.zeros(n_nodes if exact else 0, np.int64),
        label_sum=np.zeros(n_labels, np.float32),
        leaf_seen=np.empty(n_labels, np.int32),
        label_stamp=np.zeros(n_labels, np.int64),
        stamp=np.zeros(1, np.int64),
        stop=np.zeros(1, np.uint8),
    )


def _children_kinds(ensemble: TreeEnsemble) -> NDArray[np.uint8]:
    """Return for each chunk what its node's children are."""
    n_trees = int(ensemble.child_ptr[0])
    is_inner = ensemble.node_chunk >= 0
    n_children = np.diff(ensemble.child_ptr)[is_inner]
    n_inner = np.bincount(
        ensemble.node_chunk[ensemble.parent[n_trees:]][is_inner[n_trees:]], None, len(n_children)
    )
    return np.select([n_inner == 0, n_inner == n_children], [ALL_LEAVES, ALL_INNER], MIXED).astype(np.uint8)
