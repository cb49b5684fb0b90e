"""The levels of a beam search, which of their nodes are scored in
which order; and the leaves it reached.

With thresholds, nodes that lead to no label that passes are not kept, and the width of the beam
that a level leaves unused is added to the next level's: no more nodes in all, and more of the
labels that pass.

In one tree a node cannot lead to one of the top_r labels once so many are known that are better
than the node itself, for no label is better than a node above it. So where leaves hang, a level has
two *rounds*: in the first its best nodes are scored, in the second those of the others that are no
worse than the worst of the top_r labels known by then. The answers are the same as without. In an
ensemble every node is scored: the mean of a label needs its probability in every tree whose beam
reached it.

The leaves that beams reached: a label that is among the best of the mean has, in some tree, at
least the mean of the worst of them; and the mean of a label is at least its probability in one tree
divided by the number of trees. So the best labels of any tree give a bound that few leaves reach,
and only for those are the means computed.
"""

import numpy as np

from xylem.engine.kernels.search.call import (
    Search,
    has_thresholds,
    is_allowed,
    key_of,
    threshold_of,
    thresholds_of,
)
from xylem.engine.kernels.search.heaps import keep_best, sort_best
from xylem.engine.kernels.search.scoring import CallParts
from xylem.engine.kernels.search.workspace import BeamWorkspace
from xylem_store import F32, LANES, lowest_lane, vadd, vatleast, vbroadcast, vload, vselect, vstore
from xylem_store import nonallocating_inlined as inlined

_SLACK = np.float32(1e-4)
"""By so much is the bound lowered, in the logarithm: more than sums and logarithms
are rounded by.
"""


@inlined
def drop_below_thresholds(
    search: Search, child: int, score: np.float32, n_children: int, margins: F32
) -> None:
    """Set the log-probabilities of those children, from `child` on, to
    NaN that are below their thresholds.

    They compare with nothing then, so that neither they nor what is below them is kept.
    """
    nothing = vbroadcast(np.float32(np.nan))
    for tile in range(0, n_children, LANES):
        log_p = vload(margins, tile)
        lanes = vatleast(vadd(vbroadcast(score), log_p), thresholds_of(search, child + tile))
        vstore(margins, tile, vselect(lanes, log_p, nothing))


@inlined
def save_leaves(
    node: int, score: np.float32, n_children: int, lane: int, beam: BeamWorkspace, margins: F32
) -> None:
    """Keep the log-probabilities of a node's children, some of which
    are leaves, until the search ends.

    Looked at together then, the best nodes first, fewer of them pass than when each is offered at
    once.
    """
    n_saved = beam.saved_size[lane]
    for tile in range(0, n_children, LANES):
        vstore(beam.saved_log_p[lane, n_saved], tile, vload(margins, tile))
    beam.saved_node[lane, n_saved] = node
    beam.saved_score[lane, n_saved] = score
    beam.saved_size[lane] = n_saved + 1


@inlined
def keep_best_leaves(parts: CallParts[BeamWorkspace], lane: int) -> None:
    """Offer all that a lane saved to its heap of labels, by the logarithms of their keys."""
    beam = parts.own
    n_saved = beam.saved_size[lane]
    best = 0
    for saved in range(1, n_saved):
        if beam.saved_score[lane, saved] > beam.saved_score[lane, best]:
            best = saved
    for turn in range(n_saved):
        saved = best if turn == 0 else turn - (turn <= best)
        node = beam.saved_node[lane, saved]
        score = beam.saved_score[lane, saved]
        keep_children(parts, lane, node, score, beam.saved_log_p[lane, saved], True)


@inlined
def keep_children(
    parts: CallParts[BeamWorkspace],
    lane: int,
    node: int,
    score: np.float32,
    log_p: F32,
    are_leaves: bool,
) -> None:
    """Offer the leaves or the inner nodes among a node's children to a
    lane's heap of labels or of nodes.

    Whole vectors of children are passed over that are below the least key that can still enter.
    """
    ensemble = parts.ensemble
    search = parts.search
    beam = parts.own
    if are_leaves:
        scores = beam.best_score[lane]
        ids = beam.best_label[lane]
        sizes = beam.best_size
    else:
        scores = beam.next_score[lane]
        ids = beam.next_node[lane]
        sizes = beam.next_size
    capacity = search.top_r if are_leaves else beam.width[lane]
    size = sizes[lane]
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    most = vbroadcast(key_of(search, node, score))
    for tile in range(0, n_children, LANES):
        floor = scores[0] if size == capacity else np.float32(-np.inf)
        lanes = vatleast(vadd(most, vload(log_p, tile)), vbroadcast(floor))
        while lanes != 0:
            position = tile + lowest_lane(lanes)
            lanes &= lanes - 1
            here = child + position
            if position >= n_children or (ensemble.node_chunk[here] < 0) != are_leaves:
                continue
            if is_allowed(search, here):
                key = key_of(search, here, score + log_p[position])
                id_ = ensemble.node_label[here] if are_leaves else here
                size = keep_best(scores, ids, size, capacity, key, id_)
    sizes[lane] = size


@inlined
def keep_best_means(parts: CallParts[BeamWorkspace], first_lane: int) -> None:
    """Put the labels with the best means of a row's lanes in the heap
    of its first lane, with their keys.

    Every lane's heap has been filled by keep_best_leaves. The trees are added in their order. With
    thresholds a leaf is looked at that nearly reaches its own in its tree, and passes if the mean
    does.
    """
    ensemble = parts.ensemble
    search = parts.search
    beam = parts.own
    n_trees = ensemble.child_ptr[0]
    floor = _floor_of(n_trees, search.top_r, first_lane, beam)
    best_score = beam.best_score[first_lane]
    best_label = beam.best_label[first_lane]
    n_best = 0
    for tree in range(n_trees):
        lane = first_lane + tree
        for saved in range(beam.saved_size[lane]):
            child = ensemble.child_ptr[beam.saved_node[lane, saved]]
            n_children = ensemble.child_ptr[beam.saved_node[lane, saved] + 1] - child
            most = vbroadcast(_most_of(search, lane, saved, beam))
            for tile in range(0, n_children, LANES):
                log_p = vload(beam.saved_log_p[lane, saved], tile)
                bounds = vbroadcast(floor)
                if has_thresholds(search):
                    bounds = vadd(thresholds_of(search, child + tile), vbroadcast(-_SLACK))
                lanes = vatleast(vadd(most, log_p), bounds)
                while lanes != 0:
                    position = tile + lowest_lane(lanes)
                    lanes &= lanes - 1
                    leaf = child + position
                    if position >= n_children or ensemble.node_chunk[leaf] >= 0:
                        continue
                    label = ensemble.node_label[leaf]
                    bound = floor
                    if has_thresholds(search):
                        bound = threshold_of(search.log_threshold, leaf) - _SLACK
                    mean = _mean_of(parts, label, tree, bound, first_lane)
                    if mean < np.float32(0.0) or not is_allowed(search, leaf):
                        continue
                    if has_thresholds(search) and np.log(mean) < threshold_of(
                        search.log_threshold, leaf
                    ):
                        continue
                    if len(search.weight) > 0:
                        mean *= np.exp(search.weight[leaf])
                    n_best = keep_best(best_score, best_label, n_best, search.top_r, mean, label)
    beam.best_size[first_lane] = n_best


@inlined
def _floor_of(n_trees: int, top_r: int, first_lane: int, beam: BeamWorkspace) -> np.float32:
    """Return a bound below the logarithm of top_r labels' keys; -inf where no tree
    found so many.
    """
    floor = np.float32(-np.inf)
    for lane in range(first_lane, first_lane + n_trees):
        if beam.best_size[lane] == top_r:
            floor = max(floor, beam.best_score[lane, 0])
    return np.float32(floor - np.log(np.float32(n_trees)) - _SLACK)


@inlined
def _most_of(search: Search, lane: int, saved: int, beam: BeamWorkspace) -> np.float32:
    """Return what a saved node's child adds its log-probability to
    before it is compared with its bound.

    That is the least key of an answer in this tree, or with thresholds the least probability.
    """
    if has_thresholds(search):
        return np.float32(beam.saved_score[lane, saved])
    return key_of(search, beam.saved_node[lane, saved], beam.saved_score[lane, saved])


@inlined
def _mean_of(
    parts: CallParts[BeamWorkspace], label: int, tree: int, floor: np.float32, first_lane: int
) -> np.float32:
    """Return a label's mean probability; -1 if a tree before `tree`
    had its leaf above the floor already.
    """
    ensemble = parts.ensemble
    search = parts.search
    beam = parts.own
    n_trees = ensemble.child_ptr[0]
    total = np.float32(0.0)
    for other in range(n_trees):
        leaf = ensemble.label_leaf[other, label]
        if leaf < 0:
            continue
        lane = first_lane + other
        node = ensemble.parent[leaf]
        for saved in range(beam.saved_size[lane]):
            if beam.saved_node[lane, saved] == node:
                log_p = beam.saved_log_p[lane, saved, leaf - ensemble.child_ptr[node]]
                if other < tree and _most_of(search, lane, saved, beam) + log_p >= floor:
                    return np.float32(-1.0)
                total += np.exp(beam.saved_score[lane, saved] + log_p)
                break
    return total / np.float32(n_trees)


_LABELS_A_NODE = 3
"""The first round has a node for each so many of top_r, rounded up (measured on label trees)."""

_LEAST = np.finfo(np.float32).min  # stands for a key of -inf that was left out


@inlined
def start_levels(search: Search, n_trees: int, n_lanes: int, beam: BeamWorkspace) -> int:
    """Empty all heaps, and make each lane's root its only node; return 1, the most
    nodes of a lane.
    """
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
    """Return how many of a lane's nodes, of n_level, the next
    round ends with, if `done` went before.

    With rounds of a node each the fewest would be scored; but a block reads its chunks once a
    round.
    """
    return n_level if done > 0 else (search.top_r + _LABELS_A_NODE - 1) // _LABELS_A_NODE


@inlined
def rank_leaves(parts: CallParts[BeamWorkspace], lane: int) -> np.float32:
    """Bring a lane's heap of labels up to date; return the key of which a node may
    not fall short.
    """
    if parts.ensemble.child_ptr[0] == 1:
        keep_best_leaves(parts, lane)
        parts.own.saved_size[lane] = 0
    return floor_of(parts.search, lane, parts.own)


@inlined
def floor_of(search: Search, lane: int, beam: BeamWorkspace) -> np.float32:
    """Return the key of the worst of the top_r labels of a lane's heap; -inf while it has fewer.

    In an ensemble that is until all levels are done: leaves are ranked then.
    """
    return beam.best_score[lane, 0] if beam.best_size[lane] == search.top_r else np.float32(-np.inf)


@inlined
def nothing_is_missed(search: Search, first_lane: int, n_trees: int, beam: BeamWorkspace) -> bool:
    """Return whether the labels found for a row are surely the best of all that are asked for.

    In one tree no label below a node that was left out has a better key than that node; in an
    ensemble such a node's label lacks one of its probabilities.
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
    """Make all nodes of a level of a block of one row its entries, tree by tree;
    return how many.
    """
    n_entries = 0
    for lane in range(n_trees):
        for i in range(beam.level_size[lane]):
            _enter(n_entries, lane, row, i, beam)
            n_entries += 1
    return n_entries


@inlined
def enter_round(
    parts: CallParts[BeamWorkspace], begin: int, end: int, done: int, until: int
) -> int:
    """Make the lanes' nodes done .. until - 1 that are to be scored
    entries, by chunk; return how many.

    A counting sort: chunks are numbered as their nodes are, and of one chunk the rows ascend.
    """
    ensemble = parts.ensemble
    search = parts.search
    beam = parts.own
    n_trees = ensemble.child_ptr[0]
    n_lanes = (end - begin) * n_trees
    ends = beam.chunk_ptr
    ends[:] = 0
    for lane in range(n_lanes):
        floor = rank_leaves(parts, lane)
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
