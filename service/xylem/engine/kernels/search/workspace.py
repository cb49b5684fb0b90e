"""The buffers that traversals write to, one set for each thread, allocated once.

First the scorer's, which all traversals use; then those of beam search and of routing. Those of
searches with a queue are in `scores`.
"""

from typing import NamedTuple

import numpy as np

from xylem_store import (
    EIGHT,
    F32_1,
    F32_2,
    F32_3,
    GROUP_BITS,
    I32_1,
    I32_2,
    I64_1,
    I64_2,
    LANES,
    U8_1,
    TreeEnsemble,
    dense_tail,
    handle,
    levels_of,
    zeros,
)

# How many chunks are in the steps of the scorer at the same time.
STAGES = 4

_AT_ONCE_MAX = 16  # the most nodes that are scored in one call

# The most margins of the nodes that are scored in one call, so that they stay in the caches.
_MARGINS_MAX = 1 << 12

# a map of more features than this does not stay in the caches, and does not pay
_MAP_FEATURES_MAX = 1 << 20


@handle
class Workspace(NamedTuple):
    """The scorer's buffers; none of them carries data from one row to the next.

    F is the most features of a row, W the widest chunk padded to LANES, D the features of the
    model.

    block_at, block_item       [STAGES, F]       the chunk's blocks that have a feature of the row,
                               and the position of that feature in the row
    dense_at, sparse_at        [STAGES, F]       where the chunk's rows of these features begin
    dense_value, sparse_value  [STAGES, F]       the values of these features in the row
    sparse_count               [STAGES, F]       the lengths of the sparse rows
    counts                     [STAGES, 5]       the numbers of blocks, dense rows and sparse rows
                               above; where the row's values of the tail begin; their number
    turns                      [3]               for a list of nodes that is scored, the number of
                               nodes whose blocks, whose rows and whose words were looked up
    feature_row                [D padded, or 0]  the rows of one chunk by feature, or zeros (see
                               feature_map)
    narrow_rows                [(D padded + 2) * EIGHT, or 0]  decision trees: the weights of one
                               narrow chunk by feature, or zeros (see narrow_chunks)
    margins                    [M, W]            the margins of the children of up to M nodes that
                               are scored in one call
    cost                       [M, 2]            chunks scored and bytes of weights read since it
                               was cleared
    tail_end, tail_features    the tail, the last `tail_features` features before `tail_end`: they
                               have a dense row in each chunk of the model (see `scorer`)
    stop                       [1]               not 0: end the search, and answer what is certain;
                               traversals check it once for each chunk
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
    narrow_rows: F32_1
    margins: F32_2
    cost: I64_2
    tail_end: int
    tail_features: int
    stop: U8_1


@handle
class Entries(NamedTuple):
    """The nodes that a traversal scores one after the other, and the row for each.

    node  [..]
    row   [..], or [1] if it is the same for all
    """

    node: I32_1
    row: I32_1


def make_workspace(ensemble: TreeEnsemble, *, n_features: int, maps_features: bool) -> Workspace:
    """Allocate the buffers for rows of up to `n_features` features.

    maps_features  whether many rows will need the same chunks: then there is a map over the model's
                   features, unless they are too many for it to pay
    """
    n_mapped = ensemble.directory.shape[1] << GROUP_BITS
    width = widest_chunk(ensemble)
    n_at_once = max(1, min(_AT_ONCE_MAX, _MARGINS_MAX // max(1, width)))
    if not maps_features or n_mapped > _MAP_FEATURES_MAX:
        n_mapped = 0
    shapes = {
        "block_at block_item dense_at dense_value sparse_at sparse_value sparse_count": (
            STAGES,
            n_features,
        ),
        "counts": (STAGES, 5),
        "turns": 3,
        "feature_row": n_mapped,
        "narrow_rows": (n_mapped + 2) * EIGHT if len(ensemble.leaf_ptr) > 1 else 0,
        "margins": (n_at_once, width),
        "cost": (n_at_once, 2),
        "stop": 1,
    }
    end, size = dense_tail(ensemble)
    return Workspace(**zeros(Workspace, shapes), tail_end=end, tail_features=size)


def widest_chunk(ensemble: TreeEnsemble) -> int:
    """Return the most children of a node, padded to LANES."""
    return -(-int(np.diff(ensemble.child_ptr).max(initial=0)) // LANES) * LANES


# Kinds of nodes, by their children: only leaves, only inner nodes, or both.
ALL_LEAVES = 0
ALL_INNER = 1
MIXED = 2

# A level in two rounds, between which some nodes of the next level are scored.
AHEAD = 2

# the most bytes of the saved leaves of a block, unless the block is one row
_SAVED_BYTES_MAX = 1 << 25


@handle
class BeamWorkspace(NamedTuple):
    """The buffers of beam search, for blocks of up to n rows of a model of T trees.

    A *lane* is one row in one tree; there are n * T of them. B is the beam width, R top_r, C the
    chunks of the model, E = lanes * B, W the widest chunk, S the most nodes with leaves that a beam
    visits in a tree.

    below                  [C]                  for each chunk: ALL_LEAVES, ALL_INNER or MIXED
    chunk_ptr              [C + 1]              where the entries of a chunk go
    in_rounds              [levels + 1]         whether a level is scored in rounds (see
                           beam_levels, beam_means), AHEAD: with a look at the next level
    level_node/score/size  [lanes, B], [lanes]  each lane's nodes of this level
    entry_node/lane/row    [E]                  the (node, lane) pairs to score, and the lanes' rows
    entry_score            [E]                  log-scores of these nodes
    next_score/node/size   [lanes, B], [lanes]  each lane's heap of the next level's nodes
    width                  [lanes]              how many nodes of the next level a lane may keep
    left_out               [lanes]              the best key of a node that did not fit into the
                           heap, or a bound on it; -inf if there was none
    mean_floor             [lanes]              of a row's first lane: a logarithm that the best
                           top_r means reach, which bounds them in later rounds; -inf if unknown
    best_score/label/size  [lanes, R], [lanes]  each lane's heap of labels
    saved_node/score       [lanes, S]           the nodes with leaves that a lane visited
    saved_log_p            [lanes, S, W]        and the log-probabilities of their children
    saved_size             [lanes]
    needed                 [lanes]              how many nodes of its last level a lane must score
    ahead                  [lanes]              how many of the next level's best nodes are scored
    greatest               [LANES]              the best children, one of each lane of the vectors
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
    mean_floor: F32_1
    best_score: F32_2
    best_label: I32_2
    best_size: I32_1
    saved_node: I32_2
    saved_score: F32_2
    saved_log_p: F32_3
    saved_size: I32_1
    needed: I32_1
    ahead: I32_1
    greatest: F32_1


def widest_level(beam_width: int, n_levels: int, n_chunks: int, has_thresholds: bool) -> int:
    """Return the most nodes that a beam keeps on a level.

    With thresholds, width that levels have not used is added to a later level's.
    """
    return min(beam_width * n_levels if has_thresholds else beam_width, n_chunks)


class BeamShape:
    """The facts about an ensemble that decide how large its beam workspaces are.

    n_trees    the number of trees
    n_levels   the levels of the deepest tree
    below      uint8[C]: for each chunk ALL_LEAVES, ALL_INNER or MIXED
    """

    def __init__(self, ensemble: TreeEnsemble) -> None:
        self.n_trees = int(ensemble.child_ptr[0])
        is_inner = ensemble.node_chunk >= 0
        parent = ensemble.parent[self.n_trees :]
        n_children = np.diff(ensemble.child_ptr)[is_inner]
        chunk_of_inner = ensemble.node_chunk[parent][is_inner[self.n_trees :]]
        n_inner = np.bincount(chunk_of_inner, None, len(n_children))
        kinds = np.select([n_inner == 0, n_inner == n_children], [ALL_LEAVES, ALL_INNER], MIXED)
        self.below = kinds.astype(np.uint8)
        self._width = widest_chunk(ensemble)
        levels = levels_of(ensemble.child_ptr, self.n_trees)
        chunks = [ensemble.node_chunk[level.start : level.stop] for level in levels]
        has_leaves = [self.below[of_level[of_level >= 0]] != ALL_INNER for of_level in chunks]
        self._leafy = [*(int(np.count_nonzero(of_level)) for of_level in has_leaves), 0]
        self.n_levels = len(self._leafy)
        self._in_rounds = np.array([n > 0 for n in [*self._leafy, 0]], np.uint8)
        last = self.n_levels - 3  # the last level that has inner nodes
        if self.n_trees > 1:
            self._in_rounds[:last] = 0
        elif last > 0 and not self._in_rounds[last - 1]:
            self._in_rounds[last - 1] = AHEAD

    def saved_nodes(self, beam_width: int) -> int:
        """Return the most nodes with leaves that a beam visits in a tree."""
        return sum(min(beam_width, n) for n in self._leafy)

    def rows_at_once(self, beam_width: int) -> int:
        """Return the most rows of a block whose saved leaves stay in bounds, at least 1."""
        bytes_a_row = 4 * self.n_trees * self.saved_nodes(beam_width) * self._width
        return max(1, _SAVED_BYTES_MAX // bytes_a_row)

    def make(self, *, n_rows: int, beam_width: int, top_r: int) -> BeamWorkspace:
        """Allocate the buffers for blocks of up to n_rows rows."""
        n_lanes = n_rows * self.n_trees
        n_saved = self.saved_nodes(beam_width)
        shapes: dict[str, int | tuple[int, ...]] = {
            "chunk_ptr": len(self.below) + 1,
            "level_node level_score next_node next_score": (n_lanes, beam_width),
            "entry_node entry_lane entry_row entry_score": n_lanes * beam_width,
            "level_size next_size width left_out mean_floor": n_lanes,
            "best_size saved_size needed ahead": n_lanes,
            "best_score best_label": (n_lanes, top_r),
            "saved_node saved_score": (n_lanes, n_saved),
            "saved_log_p": (n_lanes, n_saved, self._width),
            "greatest": LANES,
        }
        arrays = zeros(BeamWorkspace, shapes)
        return BeamWorkspace(below=self.below, in_rounds=self._in_rounds, **arrays)


# How many nodes there is room for, for each row on a level, and how many leaves, for each row and
# tree.
#
# Blocks that need more are halved.
_ENTRIES_A_TREE = 8

# The most leaves of a block that there is room for, but at least for all that one row can reach:
# some twenty megabytes.
_LEAVES_MAX = 1 << 20

# The most rows that go down together: with few trees, more would only take memory.
_BLOCK_ROWS_MAX = 1 << 14


@handle
class RoutingWorkspace(NamedTuple):
    """The buffers of routing; none of them carries data from one row to the next.

    E and L are the entries of a level and the leaves that there is room for, X the most children of
    a node / LANES, rounded up, R the rows of a block, T trees, K labels, D features.

    entry_node/row/tree  [E]       the inner nodes entered on this level, by node, then by row
    entry_children       [E, X]    the children that they enter, LANES in an element, bit by bit
    next_node/row/tree   [E]       those of the next level
    leaf_node/row/tree   [L]       the leaves reached that are not empty
    sorted_node/tree     [L]       the same, by row, then by tree, then by leaf
    row_ptr              [R + 2]   where the sorted leaves of a row begin
    tree_ptr             [T + 2]   for a single row: where those of a tree begin
    label_sum            [K + 1]   sums over a row's leaves, zero between rows
    label_seen           [K + 1]   the labels whose sum is not zero
    dense_row            [D or 0]  the row to be re-ranked, zero between rows
    best_score/label     [top_r]   the heap of labels: the answer
    """

    entry_node: I32_1
    entry_row: I32_1
    entry_tree: I32_1
    entry_children: I32_2
    next_node: I32_1
    next_row: I32_1
    next_tree: I32_1
    leaf_node: I32_1
    leaf_row: I32_1
    leaf_tree: I32_1
    sorted_node: I32_1
    sorted_tree: I32_1
    row_ptr: I32_1
    tree_ptr: I32_1
    label_sum: F32_1
    label_seen: I32_1
    dense_row: F32_1
    best_score: F32_1
    best_label: I32_1


def routing_rows(n_rows: int, n_trees: int) -> int:
    """Return how many of n_rows rows to send down n_trees trees together, at least 1."""
    return max(1, min(n_rows, _BLOCK_ROWS_MAX, _LEAVES_MAX // (_ENTRIES_A_TREE * n_trees)))


def make_routing(
    ensemble: TreeEnsemble, n_labels: int, n_mapped: int, *, block_rows: int, top_r: int
) -> RoutingWorkspace:
    """Allocate the buffers for blocks of up to `block_rows` rows.

    n_mapped  the features of a dense row; 0 for a model that does not re-rank

    There is always room for a single row: it enters each inner node and each leaf at most once.
    """
    n_trees = int(ensemble.child_ptr[0])
    n_chunks = len(ensemble.directory)
    widest = int(np.diff(ensemble.child_ptr).max())
    n_entries = max(_ENTRIES_A_TREE * block_rows, n_chunks) + widest
    n_filled = int(np.count_nonzero(np.diff(ensemble.leaf_ptr)))
    n_leaves = max(_ENTRIES_A_TREE * block_rows * n_trees, n_filled) + widest
    shapes: dict[str, int | tuple[int, ...]] = {
        "entry_node entry_row entry_tree next_node next_row next_tree": n_entries,
        "entry_children": (n_entries, -(-widest // LANES)),
        "leaf_node leaf_row leaf_tree sorted_node sorted_tree": n_leaves,
        "row_ptr": block_rows + 2,
        "tree_ptr": n_trees + 2,
        "label_sum label_seen": n_labels + 1,
        "dense_row": n_mapped,
        "best_score best_label": top_r,
    }
    return RoutingWorkspace(**zeros(RoutingWorkspace, shapes))
