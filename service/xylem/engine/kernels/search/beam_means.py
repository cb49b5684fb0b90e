"""The means of labels over the trees of an ensemble, for the beam search.

Means are computed for few of the leaves that the beams reached. A mean never exceeds the greatest
of its terms. So a label is looked at once, at the leaf where it is most probable, and only if that
leaf is no worse than the worst of the best top_r means so far. Before there are top_r means, a
bound comes from the first tree: the mean of a label is at least its probability there divided by
the number of trees.

The last level of an ensemble is scored in rounds, each twice as long as the one before but for the
first. After a round, the means without the nodes that are still to be scored are lower bounds, so
the sum of probabilities that an answer needs is known, and no less after the next round. A label
that no tree has reached yet has in each tree at most the score of the best node left. A label that
some trees have reached has in the others the score of its node there. The nodes below which no
label can reach the sum are not scored: the answers have the same bits.
"""

import numpy as np

from xylem.engine.kernels.search.beam_levels import floor_of, keep_best_leaves
from xylem.engine.kernels.search.call import (
    ZERO_F32,
    has_thresholds,
    is_allowed,
    key_of,
    threshold_of,
    thresholds_of,
)
from xylem.engine.kernels.search.heaps import keep_best
from xylem.engine.kernels.search.scoring import CallParts
from xylem.engine.kernels.search.workspace import BeamWorkspace
from xylem_store import (
    I32,
    LANES,
    lowest_lane,
    nonallocating_inlined as inlined,
    vadd,
    vatleast,
    vbroadcast,
    vload,
)

# Bounds, which are logarithms, are lowered by this: more than the rounding errors of sums and
# logarithms.
_SLACK = np.float32(1e-4)

_LEAST = np.float32(-np.inf)


@inlined
def keep_best_means(parts: CallParts[BeamWorkspace], first_lane: int) -> None:
    """Put the labels with the best means over a row's lanes into the heap of its first lane.

    Afterwards that heap has the keys of the means. The trees' probabilities are added in the order
    of the trees. With thresholds, each leaf is considered that nearly reaches its threshold in its
    own tree; its label passes if the mean does.
    """
    ensemble = parts.ensemble
    search = parts.search
    beam = parts.traversal_buffers
    n_trees = ensemble.child_ptr[0]
    floor = _first_floor(parts, first_lane)
    best_score = beam.best_score[first_lane]
    best_label = beam.best_label[first_lane]
    n_best = 0
    for tree in range(n_trees):
        lane = first_lane + tree
        for saved in range(beam.saved_size[lane]):
            if n_best == search.top_r:
                floor = max(floor, np.float32(np.log(best_score[0]) - _SLACK))
            score = beam.saved_score[lane, saved]
            key = key_of(search, beam.saved_node[lane, saved], score)
            if key < floor:
                continue
            child = ensemble.child_ptr[beam.saved_node[lane, saved]]
            n_children = ensemble.child_ptr[beam.saved_node[lane, saved] + 1] - child
            for tile in range(0, n_children, LANES):
                log_p = vload(beam.saved_log_p[lane, saved], tile)
                lanes = vatleast(vadd(vbroadcast(key), log_p), vbroadcast(floor))
                if has_thresholds(search):
                    bounds = vadd(thresholds_of(search, child + tile), vbroadcast(-_SLACK))
                    lanes &= vatleast(vadd(vbroadcast(score), log_p), bounds)
                while lanes != 0:
                    position = tile + lowest_lane(lanes)
                    lanes &= lanes - 1
                    leaf = child + position
                    if position >= n_children or ensemble.node_chunk[leaf] >= 0:
                        continue
                    log_score = score + beam.saved_log_p[lane, saved, position]
                    mean = _mean_of(parts, leaf, tree, log_score, first_lane)
                    if mean < ZERO_F32 or not is_allowed(search, leaf):
                        continue
                    if has_thresholds(search) and np.log(mean) < threshold_of(
                        search.log_threshold, leaf
                    ):
                        continue
                    if len(search.weight) > 0:
                        mean *= np.exp(search.weight[leaf])
                    label = ensemble.node_label[leaf]
                    n_best = keep_best(best_score, best_label, n_best, search.top_r, mean, label)
    beam.best_size[first_lane] = n_best


@inlined
def _first_floor(parts: CallParts[BeamWorkspace], first_lane: int) -> np.float32:
    """Return a lower bound on the logarithms of the best top_r keys.

    It comes from the round before, at first from the keys of the first tree. It is -inf if that
    tree reached fewer labels, or if labels must pass thresholds.
    """
    beam = parts.traversal_buffers
    if has_thresholds(parts.search) or beam.mean_floor[first_lane] > _LEAST:
        return np.float32(beam.mean_floor[first_lane])
    keep_best_leaves(parts, first_lane)
    floor = floor_of(parts.search, first_lane, beam)
    return np.float32(floor - np.log(np.float32(parts.ensemble.child_ptr[0])) - _SLACK)


@inlined
def _mean_of(
    parts: CallParts[BeamWorkspace], leaf: int, tree: int, log_score: np.float32, first_lane: int
) -> np.float32:
    """Return the mean probability over the trees of a leaf's label.

    log_score  that of the leaf, in `tree`

    Return -1 if the label is more probable in another tree, or in an earlier one as probable: it is
    looked at there.
    """
    ensemble = parts.ensemble
    beam = parts.traversal_buffers
    n_trees = ensemble.child_ptr[0]
    label = ensemble.node_label[leaf]
    total = ZERO_F32
    for other in range(n_trees):
        if other == tree:
            total += np.exp(log_score)
            continue
        other_leaf = ensemble.label_leaf[other, label]
        if other_leaf < 0:
            continue
        lane = first_lane + other
        node = ensemble.parent[other_leaf]
        saved = _place_of(node, beam.saved_node[lane], 0, beam.saved_size[lane])
        if saved < 0:
            continue
        log_p = beam.saved_log_p[lane, saved, other_leaf - ensemble.child_ptr[node]]
        other_score = beam.saved_score[lane, saved] + log_p
        if other_score > log_score or (other_score == log_score and other < tree):
            return np.float32(-1.0)
        total += np.exp(other_score)
    return total / np.float32(n_trees)


@inlined
def _place_of(node: int, nodes: I32, first: int, end: int) -> int:
    """Return the place of a node in nodes[first:end], or -1 if it is not there.

    The loop has no branch: the nodes are few, and a branch would often be mispredicted.
    """
    place = -1
    for i in range(first, end):
        place = i if nodes[i] == node else place
    return place


@inlined
def drop_needless(parts: CallParts[BeamWorkspace], first_lane: int, n_done: int) -> None:
    """Drop the nodes of a row, from the n_done-th of each lane on, that cannot change the answer.

    The nodes of each lane are sorted, the best first, and the first n_done have been scored. All
    their children are leaves. There are neither thresholds nor weights.
    """
    ensemble = parts.ensemble
    beam = parts.traversal_buffers
    n_trees = ensemble.child_ptr[0]
    n_level = 0
    for lane in range(first_lane, first_lane + n_trees):
        n_level = max(n_level, beam.level_size[lane])
    if n_level <= n_done:
        return
    keep_best_means(parts, first_lane)
    n_best = beam.best_size[first_lane]
    beam.best_size[first_lane] = 0  # so that the heap gives no floor to the next round
    if n_best < parts.search.top_r:
        return
    beam.mean_floor[first_lane] = np.log(beam.best_score[first_lane, 0]) - _SLACK
    least = beam.best_score[first_lane, 0] * np.float32(n_trees) * (np.float32(1.0) - _SLACK)
    n_dropped, greatest_sum, smallest = _keep_nodes_above(parts, first_lane, n_done, least)
    if n_dropped == 0:
        return
    # A label with a node that is dropped and leaves that are known: if one leaf is known, the other
    # probabilities are at most `greatest_sum` without that of the leaf's tree, and so on.
    least_seen = min(
        least - greatest_sum + smallest,
        (least - greatest_sum + smallest + smallest) / np.float32(n_trees - 1),
    )
    floor = np.float32(np.log(least_seen) - _SLACK)
    for tree in range(n_trees):
        lane = first_lane + tree
        for saved in range(beam.saved_size[lane]):
            score = beam.saved_score[lane, saved]
            child = ensemble.child_ptr[beam.saved_node[lane, saved]]
            n_children = ensemble.child_ptr[beam.saved_node[lane, saved] + 1] - child
            for tile in range(0, n_children if score >= floor else 0, LANES):
                log_p = vload(beam.saved_log_p[lane, saved], tile)
                lanes = vatleast(vadd(vbroadcast(score), log_p), vbroadcast(floor))
                while lanes != 0:
                    position = tile + lowest_lane(lanes)
                    lanes &= lanes - 1
                    if position < n_children and ensemble.node_chunk[child + position] < 0:
                        label = ensemble.node_label[child + position]
                        _keep_nodes_of(parts, label, first_lane, n_done, least)
    for lane in range(first_lane, first_lane + n_trees):
        beam.level_size[lane] = beam.needed[lane]


@inlined
def _keep_nodes_above(
    parts: CallParts[BeamWorkspace], first_lane: int, n_done: int, least: np.float32
) -> tuple[int, np.float32, np.float32]:
    """Keep the nodes below which a label that no tree has reached can have this sum, in `needed`.

    Return how many nodes are dropped; the greatest sum that a label can have of which a node is
    dropped; and the least of the lanes' best nodes left.
    """
    beam = parts.traversal_buffers
    last_lane = first_lane + parts.ensemble.child_ptr[0]
    total = ZERO_F32
    smallest = np.float32(1.0)
    for lane in range(first_lane, last_lane):
        best = _best_left(lane, n_done, beam)
        total += best
        smallest = min(smallest, best)
    n_dropped = 0
    greatest_sum = ZERO_F32
    for lane in range(first_lane, last_lane):
        other_bests = total - _best_left(lane, n_done, beam)
        end = min(n_done, beam.level_size[lane])
        while end < beam.level_size[lane]:
            bound = np.exp(beam.level_score[lane, end]) + other_bests
            if bound < least:
                greatest_sum = max(greatest_sum, bound)
                break
            end += 1
        beam.needed[lane] = end
        n_dropped += beam.level_size[lane] - end
    return n_dropped, greatest_sum, smallest


@inlined
def _best_left(lane: int, n_done: int, beam: BeamWorkspace) -> np.float32:
    """Return the probability of a lane's best node that has not been scored; 0 if none is left."""
    if n_done >= beam.level_size[lane]:
        return ZERO_F32
    return np.float32(np.exp(beam.level_score[lane, n_done]))


@inlined
def _keep_nodes_of(
    parts: CallParts[BeamWorkspace], label: int, first_lane: int, n_done: int, least: np.float32
) -> None:
    """Keep the nodes that have a leaf of this label, if its probabilities can reach a sum.

    least  the sum
    """
    ensemble = parts.ensemble
    beam = parts.traversal_buffers
    n_trees = ensemble.child_ptr[0]
    total = ZERO_F32
    n_left = 0
    for keeps in range(2):
        if keeps and (n_left == 0 or total < least):
            return
        for tree in range(n_trees):
            leaf = ensemble.label_leaf[tree, label]
            if leaf < 0:
                continue
            lane = first_lane + tree
            node = ensemble.parent[leaf]
            left = _place_of(node, beam.level_node[lane], n_done, beam.level_size[lane])
            if keeps:
                if left >= beam.needed[lane]:
                    _keep_node(lane, left, n_done, beam)
            elif left >= 0:
                n_left += 1
                total += np.exp(beam.level_score[lane, left])
            else:
                saved = _place_of(node, beam.saved_node[lane], 0, beam.saved_size[lane])
                if saved >= 0:
                    place = leaf - ensemble.child_ptr[node]
                    total += np.exp(
                        beam.saved_score[lane, saved] + beam.saved_log_p[lane, saved, place]
                    )


@inlined
def _keep_node(lane: int, place: int, n_done: int, beam: BeamWorkspace) -> None:
    """Keep the node at a place of a lane's level; those kept and those left stay sorted."""
    nodes = beam.level_node[lane]
    scores = beam.level_score[lane]
    node = nodes[place]
    score = scores[place]
    while place > beam.needed[lane] or (place > n_done and score > scores[place - 1]):
        nodes[place] = nodes[place - 1]
        scores[place] = scores[place - 1]
        place -= 1
    nodes[place] = node
    scores[place] = score
    beam.needed[lane] += 1
