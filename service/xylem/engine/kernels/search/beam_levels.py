"""The levels of a beam search: which nodes are scored in which order, and the leaves reached.

With thresholds, nodes below which no label can pass are not kept, and the beam width that a level
leaves unused is added to the next level's. So no more nodes are scored in all, and more of the
labels that pass are found.

In one tree no label is better than a node above it. Once top_r labels are known that are better
than a node, that node cannot lead to an answer. So a level whose nodes have leaves is scored in two
*rounds*: first its best nodes, then those of the other nodes that are no worse than the worst of
the top_r labels known by then. The answers are the same as without rounds. A single row has more
rounds, of two nodes each. For the rounds of an ensemble see `beam_means`.

The level before the last one has two rounds, too. Between them some nodes of the last level are
scored, so that labels are known by which the second round is judged (`look_ahead`).
"""

import numpy as np

from xylem.engine.kernels.search.call import (
    Search,
    has_thresholds,
    is_allowed,
    key_of,
    thresholds_of,
)
from xylem.engine.kernels.search.heaps import keep_best, sort_best
from xylem.engine.kernels.search.scoring import CallParts
from xylem.engine.kernels.search.workspace import MIXED, BeamWorkspace
from xylem_store import (
    F32,
    LANES,
    lowest_lane,
    nonallocating_inlined as inlined,
    popcount,
    vadd,
    vatleast,
    vbroadcast,
    vgreater,
    vload,
    vmax,
    vselect,
    vstore,
)


@inlined
def drop_below_thresholds(
    search: Search, child: int, score: np.float32, n_children: int, margins: F32
) -> None:
    """Set the log-probabilities of the children that are below their thresholds to NaN.

    A comparison with NaN is false, so neither these nodes nor the nodes below them are kept.

    child  the first of the n_children children
    score  the log-score of their parent
    """
    not_a_number = vbroadcast(np.float32(np.nan))
    for tile in range(0, n_children, LANES):
        log_p = vload(margins, tile)
        lanes = vatleast(vadd(vbroadcast(score), log_p), thresholds_of(search, child + tile))
        vstore(margins, tile, vselect(lanes, log_p, not_a_number))


@inlined
def save_leaves(
    node: int,
    score: np.float32,
    n_children: int,
    lane: int,
    beam: BeamWorkspace,
    margins: F32,
) -> None:
    """Save the log-probabilities of a node's children, some of which are leaves, for later.

    `keep_best_leaves` offers them to the heap of labels together, the best node first. If each
    node's leaves were offered at once, more of them would enter the heap and be replaced again.
    """
    n_saved = beam.saved_size[lane]
    for tile in range(0, n_children, LANES):
        vstore(beam.saved_log_p[lane, n_saved], tile, vload(margins, tile))
    beam.saved_node[lane, n_saved] = node
    beam.saved_score[lane, n_saved] = score
    beam.saved_size[lane] = n_saved + 1


@inlined
def keep_best_leaves(parts: CallParts[BeamWorkspace], lane: int) -> None:
    """Offer all saved leaves of a lane to its heap of labels, by the logarithms of their keys."""
    beam = parts.traversal_buffers
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
    """Offer a node's children to a lane's heap: leaves to that of labels, inner nodes to that of
    nodes.

    Vectors of children that are all below the least key that can still enter are skipped as a
    whole. While the heap is not full, that is the key of `_least_of_best`.

    score       the node's log-score
    log_p       float32[..]: the children's log-probabilities
    are_leaves  whether to offer the leaves, or the inner nodes
    """
    ensemble = parts.ensemble
    search = parts.search
    beam = parts.traversal_buffers
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
    key = key_of(search, node, score)
    parent_key = vbroadcast(key)
    least = np.float32(-np.inf)
    if size < capacity and beam.below[ensemble.node_chunk[node]] != MIXED:
        least = key + _least_of_best(search, n_children, capacity, log_p, beam.greatest)
    for tile in range(0, n_children, LANES):
        floor = scores[0] if size == capacity else least
        lanes = vatleast(vadd(parent_key, vload(log_p, tile)), vbroadcast(floor))
        while lanes != 0:
            position = tile + lowest_lane(lanes)
            lanes &= lanes - 1
            candidate = child + position
            if position >= n_children or (ensemble.node_chunk[candidate] < 0) != are_leaves:
                continue
            if is_allowed(search, candidate):
                key = key_of(search, candidate, score + log_p[position])
                id_ = ensemble.node_label[candidate] if are_leaves else candidate
                size = keep_best(scores, ids, size, capacity, key, id_)
    sizes[lane] = size


@inlined
def _least_of_best(
    search: Search, n_children: int, n_best: int, log_p: F32, greatest: F32
) -> np.float32:
    """Return a number that at least n_best of the children's log-probabilities reach.

    It is the n_best-th greatest of LANES children, each the best of those in one lane of the
    vectors. So few children enter a heap that are replaced again: of 90 leaves about 14 are offered
    for 10 places, where 32 entered. It is -inf if the children are too few, or not all of them may
    be kept.

    greatest  float32[LANES]: a workspace
    """
    if n_best > LANES or len(search.allowed) > 0 or len(search.weight) > 0:
        return np.float32(-np.inf)
    best = vbroadcast(np.float32(-np.inf))
    for tile in range(0, n_children - LANES + 1, LANES):
        best = vmax(vload(log_p, tile), best)
    vstore(greatest, 0, best)
    least = np.float32(np.inf)
    for i in range(LANES):
        if popcount(np.uint32(vgreater(best, vbroadcast(greatest[i])))) < n_best:
            least = min(least, greatest[i])
    return least


# How many labels of the answer the first round has a node for, in one tree and in each of several
# trees (measured on label trees).
_LABELS_A_NODE = 3
_LABELS_A_LANE = 4

# The number of nodes of each further round of a single row in one tree (measured on label trees).
_NODES_OF_A_ROW = 2

# stands in `left_out` for a key of -inf: there -inf means that no node was left out
_LEAST = np.finfo(np.float32).min


@inlined
def start_levels(search: Search, n_trees: int, n_lanes: int, beam: BeamWorkspace) -> int:
    """Empty all heaps, and make each lane's root its only node.

    Return 1, the number of nodes of a lane.
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
        beam.mean_floor[lane] = np.float32(-np.inf)
        beam.ahead[lane] = 0
    return 1


@inlined
def go_down(search: Search, n_lanes: int, best_first: bool, beam: BeamWorkspace) -> int:
    """Make the nodes of the lanes' heaps the next level; return the number of nodes of the lane
    that has the most.

    best_first  whether to sort the nodes; otherwise they stay in the order of the heap
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
        for i in range(beam.ahead[lane]):
            beam.level_score[lane, i] = np.float32(np.nan)
        beam.ahead[lane] = 0
        beam.level_size[lane] = n_next
        if has_thresholds(search):
            beam.width[lane] += search.beam_width - n_next
        beam.next_size[lane] = 0
        n_level = max(n_level, n_next)
    return n_level


@inlined
def end_of_round(search: Search, n_trees: int, n_rows: int, n_done: int, n_level: int) -> int:
    """Return where the next round ends among a lane's n_level nodes, if `n_done` have been scored.

    Short rounds score the fewest nodes. But a block reads its chunks once a round, so blocks of one
    tree have only two. An ensemble computes means after a round, so its rounds double: one node a
    lane after the first round, then two, four and so on.
    """
    n_labels = _LABELS_A_NODE if n_trees == 1 else _LABELS_A_LANE
    n_first = (search.top_r + n_labels - 1) // n_labels
    if n_done == 0:
        return n_first
    if n_trees > 1:
        return 2 * n_done - n_first + 1
    return n_done + _NODES_OF_A_ROW if n_rows == 1 else n_level


@inlined
def look_ahead(n_lanes: int, n_done: int, beam: BeamWorkspace) -> None:
    """Make the best nodes found for the next level the first n_done nodes of this one, which have
    been scored.

    Only nodes are taken that are better than all nodes of this level that are left: no child of
    those can take their places in the next level. Scores are keys: there are no weights. A score
    that is NaN stands for no node: no comparison with it is true.
    """
    for lane in range(n_lanes):
        n_ahead = 0
        if beam.level_size[lane] > n_done:
            best_left = beam.level_score[lane, n_done]
            scores = beam.level_score[lane]
            nodes = beam.level_node[lane]
            for i in range(beam.next_size[lane]):
                score = beam.next_score[lane, i]
                if score > best_left:
                    node = beam.next_node[lane, i]
                    n_ahead = keep_best(scores, nodes, n_ahead, n_done, score, node)
        for i in range(n_ahead, n_done):
            beam.level_score[lane, i] = np.float32(np.nan)
        beam.ahead[lane] = n_ahead


@inlined
def rank_leaves(parts: CallParts[BeamWorkspace], lane: int) -> np.float32:
    """Update a lane's heap of labels; return the least key that a node must have to be scored."""
    if parts.ensemble.child_ptr[0] == 1:
        keep_best_leaves(parts, lane)
        parts.traversal_buffers.saved_size[lane] = 0
    return floor_of(parts.search, lane, parts.traversal_buffers)


@inlined
def floor_of(search: Search, lane: int, beam: BeamWorkspace) -> np.float32:
    """Return the key of the worst of the top_r labels in a lane's heap, -inf while it has fewer.

    In an ensemble it is -inf until all levels are done, because leaves are only ranked then.
    """
    return beam.best_score[lane, 0] if beam.best_size[lane] == search.top_r else np.float32(-np.inf)


@inlined
def nothing_is_missed(search: Search, first_lane: int, n_trees: int, beam: BeamWorkspace) -> bool:
    """Return whether the labels found for a row are proved to be the best of all requested labels.

    In one tree that holds if no node that was left out has a better key than the worst label found,
    because no label below a node has a better key than the node. In an ensemble no node may have
    been left out, because the labels below it lack one of their probabilities.
    """
    is_proved = True
    for lane in range(first_lane, first_lane + n_trees):
        floor = floor_of(search, lane, beam) if n_trees == 1 else np.float32(-np.inf)
        if beam.left_out[lane] > np.float32(-np.inf) and beam.left_out[lane] >= floor:
            is_proved = False
    return is_proved


@inlined
def reaches(search: Search, node: int, score: np.float32, floor: np.float32) -> bool:
    """Return whether a label below a node of this log-score can have a key >= `floor`."""
    return bool(key_of(search, node, score) >= floor)


@inlined
def enter_round(
    parts: CallParts[BeamWorkspace], begin: int, end: int, n_done: int, round_end: int
) -> int:
    """Enter those of the lanes' nodes n_done .. round_end - 1 that must be scored.

    Return how many entries there are. They are ordered by chunk, entries of one chunk by row: it is
    a counting sort, and chunks are numbered in the order of their nodes.
    """
    ensemble = parts.ensemble
    search = parts.search
    beam = parts.traversal_buffers
    n_trees = ensemble.child_ptr[0]
    n_lanes = (end - begin) * n_trees
    if end - begin == 1:
        return _enter_row(parts, begin, n_done, round_end)
    ends = beam.chunk_ptr
    ends[:] = 0
    for lane in range(n_lanes):
        floor = rank_leaves(parts, lane)
        for i in range(n_done, min(round_end, beam.level_size[lane])):
            if reaches(search, beam.level_node[lane, i], beam.level_score[lane, i], floor):
                ends[ensemble.node_chunk[beam.level_node[lane, i]] + 1] += 1
    for chunk in range(1, len(ends)):
        ends[chunk] += ends[chunk - 1]
    n_entries = int(ends[len(ends) - 1])
    for row in range(begin, end):
        for lane in range((row - begin) * n_trees, (row - begin + 1) * n_trees):
            floor = floor_of(search, lane, beam)
            for i in range(n_done, min(round_end, beam.level_size[lane])):
                if reaches(search, beam.level_node[lane, i], beam.level_score[lane, i], floor):
                    chunk = ensemble.node_chunk[beam.level_node[lane, i]]
                    _enter(ends[chunk], lane, row, i, beam)
                    ends[chunk] += 1
    return n_entries


@inlined
def _enter_row(parts: CallParts[BeamWorkspace], row: int, n_done: int, round_end: int) -> int:
    """Do as `enter_round` for a single row; the entries are in the order of the lanes."""
    search = parts.search
    beam = parts.traversal_buffers
    n_entries = 0
    for lane in range(parts.ensemble.child_ptr[0]):
        floor = rank_leaves(parts, lane)
        for i in range(n_done, min(round_end, beam.level_size[lane])):
            if reaches(search, beam.level_node[lane, i], beam.level_score[lane, i], floor):
                _enter(n_entries, lane, row, i, beam)
                n_entries += 1
    return n_entries


@inlined
def _enter(k: int, lane: int, row: int, i: int, beam: BeamWorkspace) -> None:
    """Make the i-th node of a lane's level the k-th entry."""
    beam.entry_node[k] = beam.level_node[lane, i]
    beam.entry_lane[k] = lane
    beam.entry_row[k] = row
    beam.entry_score[k] = beam.level_score[lane, i]
