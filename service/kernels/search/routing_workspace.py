"""The buffers of routing: what going down decision trees needs besides the scorer's own workspace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model_store.compiled.handles import F32_1, I32_1, handle
from model_store.ensemble import TreeEnsemble
from service.kernels.search.workspace import Entries

_ENTRIES_A_TREE = 4
"""Room for so many nodes a row and level, and leaves a row and tree; blocks with more are halved."""

_LEAVES_MAX = 1 << 20
"""Room for so many leaves of a block, or for all that one row can reach: some twenty megabytes."""

_BLOCK_ROWS_MAX = 1 << 14
"""So many rows go down together at most: of few trees, where more would only take memory."""


@handle
class RoutingWorkspace(NamedTuple):
    """Buffers, none of which carries anything from one row to the next.

    E and L are the entries of a level and the leaves that there is room for, R the rows of a block, T trees,
    C chunks, K labels, D features.

    entry_node/row/tree  [E]       the inner nodes entered on this level: by node, of a node by row
    next_node/row/tree   [E]       those of the next level, as they are found
    chunk_ptr            [C + 1]   where the entries of a chunk go
    leaf_node/row/tree   [L]       the leaves reached that are not empty
    leaf_order           [L]       their places, by row, of a row by tree, of a tree by leaf
    row_ptr              [R + 1]   where the leaves of a row begin
    tree_ptr             [T + 1]   of a row alone: where the leaves of a tree begin
    tree_leaves          [T]       how many leaves of each tree a row reached
    label_sum            [K]       sums over a row's leaves, zero between rows
    label_seen           [K]       the labels whose sum is not zero
    dense_row            [D or 0]  the row to be re-ranked, zero between rows
    best_score/label     [top_r]   the heap of labels: the answer
    """

    entry_node: I32_1
    entry_row: I32_1
    entry_tree: I32_1
    next_node: I32_1
    next_row: I32_1
    next_tree: I32_1
    chunk_ptr: I32_1
    leaf_node: I32_1
    leaf_row: I32_1
    leaf_tree: I32_1
    leaf_order: I32_1
    row_ptr: I32_1
    tree_ptr: I32_1
    tree_leaves: I32_1
    label_sum: F32_1
    label_seen: I32_1
    dense_row: F32_1
    best_score: F32_1
    best_label: I32_1

    def entries(self) -> Entries:
        """Return what is scored."""
        return Entries(self.entry_node, self.entry_row)


class RoutingShape:
    """What of a model decides how large its routing workspaces are.

    n_mapped  the features of a dense row; 0 for a model that does not re-rank
    """

    def __init__(self, ensemble: TreeEnsemble, n_labels: int, n_mapped: int) -> None:
        self._n_trees = int(ensemble.child_ptr[0])
        self._n_chunks = len(ensemble.directory)
        self._n_leaves = int(np.count_nonzero(np.diff(ensemble.leaf_ptr)))
        self._widest = int(np.diff(ensemble.child_ptr).max())
        self._n_labels = n_labels
        self._n_mapped = n_mapped

    def block_rows(self, n_rows: int) -> int:
        """Return how many rows to send down together, at least 1."""
        return max(1, min(n_rows, _BLOCK_ROWS_MAX, _LEAVES_MAX // (_ENTRIES_A_TREE * self._n_trees)))

    def make(self, *, block_rows: int, top_r: int) -> RoutingWorkspace:
        """Allocate the buffers for blocks of up to `block_rows` rows.

        One row alone always finds room: it enters each inner node and each leaf at most once.
        """
        n_entries = max(_ENTRIES_A_TREE * block_rows, self._n_chunks) + self._widest
        n_leaves = max(_ENTRIES_A_TREE * block_rows * self._n_trees, self._n_leaves) + self._widest
        return RoutingWorkspace(
            entry_node=np.empty(n_entries, np.int32),
            entry_row=np.empty(n_entries, np.int32),
            entry_tree=np.empty(n_entries, np.int32),
            next_node=np.empty(n_entries, np.int32),
            next_row=np.empty(n_entries, np.int32),
            next_tree=np.empty(n_entries, np.int32),
            chunk_ptr=np.zeros(self._n_chunks + 1, np.int32),
            leaf_node=np.empty(n_leaves, np.int32),
            leaf_row=np.empty(n_leaves, np.int32),
            leaf_tree=np.empty(n_leaves, np.int32),
            leaf_order=np.empty(n_leaves, np.int32),
            row_ptr=np.zeros(block_rows + 1, np.int32),
            tree_ptr=np.zeros(self._n_trees + 1, np.int32),
            tree_leaves=np.zeros(self._n_trees, np.int32),
            label_sum=np.zeros(self._n_labels, np.float32),
            label_seen=np.empty(self._n_labels, np.int32),
            dense_row=np.zeros(self._n_mapped, np.float32),
            best_score=np.empty(top_r, np.float32),
            best_label=np.empty(top_r, np.int32),
        )
