"""The buffers of beam search for a block of rows."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import F32_1, F32_2, F32_3, I32_1, I32_2, U8_1, handle
from model_store.ensemble import TreeEnsemble
from service.kernels.search.workspace import Entries, widest_chunk

ALL_LEAVES, ALL_INNER, MIXED = 0, 1, 2
"""What the children of a node are."""

_SAVED_BYTES_MAX = 1 << 24
"""The saved leaves of a block take no more than this, or the block is one row."""


@handle
class BeamWorkspace(NamedTuple):
    """Buffers for blocks of up to n rows of a model of T trees; a *lane* is a row in a tree: n * T of them.

    B is the beam width, R top_r, C the chunks of the model, E = lanes * B, W the widest chunk, S the most
    nodes with leaves that a beam visits in a tree.

    below                  [C]                  of each chunk: ALL_LEAVES, ALL_INNER or MIXED
    chunk_ptr              [C + 1]              where the entries of a chunk go
    in_rounds              [levels + 1]         whether a level's nodes have two rounds (see beam_levels)
    level_node/score/size  [lanes, B], [lanes]  each lane's nodes of this level
    entry_node/lane/row    [E]                  the (node, lane) pairs being scored, and the lanes' rows
    entry_score            [E]                  log-scores of these nodes
    next_score/node/size   [lanes, B], [lanes]  each lane's heap of the next level's nodes
    width                  [lanes]              how many nodes of the next level a lane may keep
    left_out               [lanes]              no node that a full heap left out has a better key; -inf: none
    best_score/label/size  [lanes, R], [lanes]  each lane's heap of labels
    saved_node/score       [lanes, S]           the nodes with leaves that a lane visited
    saved_log_p            [lanes, S, W]        and the log-probabilities of their children
    saved_size             [lanes]
    """

    below: U8_1
    chunk_ptr: I32_1
    in_rounds: U8_1
    level_node: I32_2
    level_score: F32_2
    level_size: I32_1
    entry_node: I32_1
    entry_lane: I32_1
    entry_row: I32_1
    entry_score: F32_1
    next_score: F32_2
    next_node: I32_2
    next_size: I32_1
    width: I32_1
    left_out: F32_1
    best_score: F32_2
    best_label: I32_2
    best_size: I32_1
    saved_node: I32_2
    saved_score: F32_2
    saved_log_p: F32_3
    saved_size: I32_1

    def entries(self) -> Entries:
        """Return what is scored."""
        return Entries(self.entry_node, self.entry_row)


def widest_level(beam_width: int, n_levels: int, n_chunks: int, has_thresholds: bool) -> int:
    """Return the most nodes of a level that a beam keeps; with thresholds it may save its width for one."""
    return min(beam_width * n_levels if has_thresholds else beam_width, n_chunks)


class BeamShape:
    """What of an ensemble decides how large its beam workspaces are; the same for all of them."""

    def __init__(self, ensemble: TreeEnsemble) -> None:
        self.n_trees = int(ensemble.child_ptr[0])
        self.below = _children_kinds(ensemble)
        self._width = widest_chunk(ensemble)
        self._leafy = _leafy_chunks_a_level(ensemble, self.below)
        self._in_rounds = np.array([self.n_trees == 1 and n > 0 for n in [*self._leafy, 0]], np.uint8)

    @property
    def n_levels(self) -> int:
        """The levels of the deepest tree."""
        return len(self._leafy)

    def saved_nodes(self, beam_width: int) -> int:
        """Return how many nodes with leaves a beam visits in a tree at most."""
        return sum(min(beam_width, n) for n in self._leafy)

    def rows_at_once(self, beam_width: int) -> int:
        """Return how many rows a block may have so that its saved leaves stay in bounds, at least 1."""
        bytes_a_row = 4 * self.n_trees * self.saved_nodes(beam_width) * self._width
        return max(1, _SAVED_BYTES_MAX // bytes_a_row)

    def make(self, *, n_rows: int, beam_width: int, top_r: int) -> BeamWorkspace:
        """Allocate the buffers for blocks of up to n_rows rows."""
        n_lanes = n_rows * self.n_trees
        n_saved = self.saved_nodes(beam_width)
        return BeamWorkspace(
            below=self.below,
            chunk_ptr=np.zeros(len(self.below) + 1, np.int32),
            in_rounds=self._in_rounds,
            level_node=np.empty((n_lanes, beam_width), np.int32),
            level_score=np.empty((n_lanes, beam_width), np.float32),
            level_size=np.zeros(n_lanes, np.int32),
            entry_node=np.empty(n_lanes * beam_width, np.int32),
            entry_lane=np.empty(n_lanes * beam_width, np.int32),
            entry_row=np.empty(n_lanes * beam_width, np.int32),
            entry_score=np.empty(n_lanes * beam_width, np.float32),
            next_score=np.empty((n_lanes, beam_width), np.float32),
            next_node=np.empty((n_lanes, beam_width), np.int32),
            next_size=np.zeros(n_lanes, np.int32),
            width=np.zeros(n_lanes, np.int32),
            left_out=np.empty(n_lanes, np.float32),
            best_score=np.empty((n_lanes, top_r), np.float32),
            best_label=np.empty((n_lanes, top_r), np.int32),
            best_size=np.zeros(n_lanes, np.int32),
            saved_node=np.empty((n_lanes, n_saved), np.int32),
            saved_score=np.empty((n_lanes, n_saved), np.float32),
            saved_log_p=np.empty((n_lanes, n_saved, self._width), np.float32),
            saved_size=np.zeros(n_lanes, np.int32),
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


def _leafy_chunks_a_level(ensemble: TreeEnsemble, below: NDArray[np.uint8]) -> list[int]:
    """Return how many nodes of each level, of all trees, have leaves among their children."""
    counts = []
    ends = [0, int(ensemble.child_ptr[0])]
    while ends[-1] > ends[-2]:
        ends.append(int(ensemble.child_ptr[ends[-1]]))
    for first, last in itertools.pairwise(ends):
        chunks = ensemble.node_chunk[first:last]
        counts.append(int(np.count_nonzero(below[chunks[chunks >= 0]] != ALL_INNER)))
    return counts
