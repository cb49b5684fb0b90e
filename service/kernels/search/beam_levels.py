"""The levels of a beam search: which of a level's nodes are scored, and in which order.

With thresholds, nodes that lead to no label that passes are not kept, and the width of the beam that a level
leaves unused is added to the next level's: no more nodes in all, and more of the labels that pass.

In one tree a node cannot lead to one of the top_r labels once so many are known that are better than the node
itself, for no label is better than a node above it. So where leaves hang, a level has two *rounds*: in the
first its best nodes are scored, in the second those of the others that are no worse than the worst of the
top_r labels known by then. The answers are the same as without. In an ensemble every node is scored: the mean
of a label needs its probability in every tree whose beam reached it.
"""

from __future__ import annotations

import numpy as np

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.ensemble import TreeEnsemble
from service.kernels.search.beam_leaves import keep_best_leaves
from service.kernels.search.beam_workspace import BeamWorkspace
from service.kernels.search.heaps import sort_best
from service.kernels.search.query import Search, has_thresholds, key_of

_LABELS_A_NODE = 3
"""The first round has a node for each so many of top_r, rounded up (measured on label trees)."""

_LEAST = np.finfo(np.float32).min
"""Stands for a key of -inf that was left out."""


@inlined
def start_levels(search: Search, n_trees: int, n_lanes: int, beam: BeamWorkspace) -> int:
    """Empty all heaps, and make each lane's root its only node; return 1, the most nodes of a lane."""
    for lane in range(n_lanes):
        beam.level_node[lane, 0] = lane % n_trees
        beam.level_score[lane, 0] = np.float32(0.0)
        beam.level_size[lane] = 1
        beam.width[lane] = search.beam_width
        beam.next_size[lane] = 0
        beam.saved_size[lane] = 0
        beam.best_size[lane] = 0
        beam.left_out[lane] = np.float32(-np.inf)
    return 1


@inlined
def go_down(search: Search, n_lanes: int, best_first: bool, beam: BeamWorkspace) -> int:
    """Make the heaps of the next level's nodes the lanes' levels; return the most nodes of a lane.

    best_first  whether the nodes' order matters: without it they are left as they lie
    """
    n_level = 0
    for lane in range(n_lanes):
        n_next = beam.next_size[lane]
        if n_next == beam.width[lane]:
            beam.left_out[lane] = max(beam.left_out[lane], beam.next_score[lane, 0], _LEAST)
        if best_first:
            sort_best(beam.next_score[lane], beam.next_node[lane], n_next)
        for i in range(n_next):
            node = beam.next_node[lane, i]
            beam.level_node[lane, i] = node
            beam.level_score[lane, i] = beam.next_score[lane, i]
            if len(search.weight) > 0:
                beam.level_score[lane, i] -= search.weight[node]
        beam.level_size[lane] = n_next
        if has_thresholds(search):
            beam.width[lane] += search.beam_width - n_next
        beam.next_size[lane] = 0
        n_level = max(n_level, n_next)
    return n_level


@inlined
def end_of_round(search: Search, done: int, n_level: int) -> int:
    """Return how many of a lane's nodes, of n_level, the next round ends with, if `done` went before.

    With rounds of a node each the fewest would be scored; but a block reads its chunks once a round.
    """
    return n_level if done > 0 else (search.top_r + _LABELS_A_NODE - 1) // _LABELS_A_NODE


@inlined
def rank_leaves(ensemble: TreeEnsemble, search: Search, lane: int, beam: BeamWorkspace) -> np.float32:
    """Bring a lane's heap of labels up to date; return the key of which a node may not fall short."""
    if ensemble.child_ptr[0] == 1:
        keep_best_leaves(ensemble, search, lane, beam)
        beam.saved_size[lane] = 0
    return floor_of(search, lane, beam)


@inlined
def floor_of(search: Search, lane: int, beam: BeamWorkspace) -> np.float32:
    """Return the key of the worst of the top_r labels of a lane's heap; -inf while it has fewer.

    In an ensemble that is until all levels are done: leaves are ranked then.
    """
    return beam.best_score[lane, 0] if beam.best_size[lane] == search.top_r else np.float32(-np.inf)


@inlined
def nothing_is_missed(search: Search, first_lane: int, n_trees: int, beam: BeamWorkspace) -> bool:
    """Return whether the labels found for a row are surely the best of all that are asked for.

    In one tree no label below a node that was left out has a better key than that node; in an ensemble such a
    node's label lacks one of its probabilities.
    """
    is_known = True
    for lane in range(first_lane, first_lane + n_trees):
        floor = floor_of(search, lane, beam) if n_trees == 1 else np.float32(-np.inf)
        if beam.left_out[lane] > np.float32(-np.inf) and beam.left_out[lane] >= floor:
            is_known = False
    return is_known


@inlined
def reaches(search: Search, node: int, score: np.float32, floor: np.float32) -> bool:
    """Return whether a label below a node of this score can have a key of at least `floor`."""
    return bool(key_of(search, node, score) >= floor)


@inlined
def enter_row(n_trees: int, row: int, beam: BeamWorkspace) -> int:
    """Make all nodes of a level of a block of one row its entries, tree by tree; return how many."""
    n_entries = 0
    for lane in range(n_trees):
        for i in range(beam.level_size[lane]):
            _enter(n_entries, lane, row, i, beam)
            n_entries += 1
    return n_entries


@inlined
def enter_round(
    ensemble: TreeEnsemble, search: Search, begin: int, end: int, done: int, until: int, beam: BeamWorkspace
) -> int:
    """Make the lanes' nodes done .. until - 1 that are to be scored entries, by chunk; return how many.

    A counting sort: chunks are numbered as their nodes are, and of one chunk the rows ascend.
    """
    n_trees = ensemble.child_ptr[0]
    n_lanes = (end - begin) * n_trees
    ends = beam.chunk_ptr
    for chunk in range(len(ends)):
        ends[chunk] = 0
    for lane in range(n_lanes):
        floor = rank_leaves(ensemble, search, lane, beam)
        for i in range(done, min(until, beam.level_size[lane])):
            if reaches(search, beam.level_node[lane, i], beam.level_score[lane, i], floor):
                ends[ensemble.node_chunk[beam.level_node[lane, i]] + 1] += 1
    for chunk in range(1, len(ends)):
        ends[chunk] += ends[chunk - 1]
    n_entries = int(ends[len(ends) - 1])
    for row in range(begin, end):
        for lane in range((row - begin) * n_trees, (row - begin + 1) * n_trees):
            floor = floor_of(search, lane, beam)
            for i in range(done, min(until, beam.level_size[lane])):
                if reaches(search, beam.level_node[lane, i], beam.level_score[lane, i], floor):
                    chunk = ensemble.node_chunk[beam.level_node[lane, i]]
                    _enter(ends[chunk], lane, row, i, beam)
                    ends[chunk] += 1
    return n_entries


@inlined
def _enter(k: int, lane: int, row: int, i: int, beam: BeamWorkspace) -> None:
    """Make the i-th node of a lane's level the k-th entry."""
    beam.entry_node[k] = beam.level_node[lane, i]
    beam.entry_lane[k] = lane
    beam.entry_row[k] = row
    beam.entry_score[k] = beam.level_score[lane, i]
