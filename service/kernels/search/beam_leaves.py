"""The leaves that beams reached, and the best labels of them: of one tree, or by the mean over trees.

A label that is among the best of the mean has, in some tree, at least the mean of the worst of them; and the
mean of a label is at least its probability in one tree divided by the number of trees. So the best labels of
any tree give a bound that few leaves reach, and only for those are the means computed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.vectors import lowest_lane, vadd, vatleast, vbroadcast, vload, vselect, vstore
from model_store.ensemble import LANES, TreeEnsemble
from service.kernels.search.beam_workspace import BeamWorkspace
from service.kernels.search.heaps import keep_best
from service.kernels.search.query import (
    Search,
    has_thresholds,
    is_allowed,
    key_of,
    threshold_of,
    thresholds_of,
)

_SLACK = np.float32(1e-4)
"""By so much is the bound lowered, in the logarithm: more than sums and logarithms are rounded by."""


@inlined
def drop_below_thresholds(
    search: Search, child: int, score: np.float32, n_children: int, margins: NDArray[np.float32]
) -> None:
    """Set the log-probabilities of those children, from `child` on, to NaN that are below their thresholds.

    They compare with nothing then, so that neither they nor what is below them is kept.
    """
    nothing = vbroadcast(np.float32(np.nan))
    for tile in range(0, n_children, LANES):
        log_p = vload(margins, tile)
        lanes = vatleast(vadd(vbroadcast(score), log_p), thresholds_of(search, child + tile))
        vstore(margins, tile, vselect(lanes, log_p, nothing))


@inlined
def save_leaves(
    node: int,
    score: np.float32,
    n_children: int,
    lane: int,
    beam: BeamWorkspace,
    margins: NDArray[np.float32],
) -> None:
    """Keep the log-probabilities of a node's children, some of which are leaves, until the search ends.

    Looked at together then, the best nodes first, fewer of them pass than when each is offered at once.
    """
    n_saved = beam.saved_size[lane]
    for tile in range(0, n_children, LANES):
        vstore(beam.saved_log_p[lane, n_saved], tile, vload(margins, tile))
    beam.saved_node[lane, n_saved] = node
    beam.saved_score[lane, n_saved] = score
    beam.saved_size[lane] = n_saved + 1


@inlined
def keep_best_leaves(ensemble: TreeEnsemble, search: Search, lane: int, beam: BeamWorkspace) -> None:
    """Offer all that a lane saved to its heap of labels, by the logarithms of their keys."""
    n_saved = beam.saved_size[lane]
    best = 0
    for saved in range(1, n_saved):
        if beam.saved_score[lane, saved] > beam.saved_score[lane, best]:
            best = saved
    for turn in range(n_saved):
        saved = best if turn == 0 else turn - (turn <= best)
        _keep_leaves_of(ensemble, search, lane, saved, beam)


@inlined
def _keep_leaves_of(
    ensemble: TreeEnsemble, search: Search, lane: int, saved: int, beam: BeamWorkspace
) -> None:
    """Offer the leaves among a saved node's children to the lane's heap."""
    best_score, best_label, n_best = beam.best_score[lane], beam.best_label[lane], beam.best_size[lane]
    score, log_p = beam.saved_score[lane, saved], beam.saved_log_p[lane, saved]
    child = ensemble.child_ptr[beam.saved_node[lane, saved]]
    n_children = ensemble.child_ptr[beam.saved_node[lane, saved] + 1] - child
    most = vbroadcast(key_of(search, beam.saved_node[lane, saved], score))
    for tile in range(0, n_children, LANES):
        floor = best_score[0] if n_best == search.top_r else np.float32(-np.inf)
        lanes = vatleast(vadd(most, vload(log_p, tile)), vbroadcast(floor))
        while lanes != 0:
            position = tile + lowest_lane(lanes)
            lanes &= lanes - 1
            leaf = child + position
            if position >= n_children or ensemble.node_chunk[leaf] >= 0 or not is_allowed(search, leaf):
                continue
            key = key_of(search, leaf, score + log_p[position])
            n_best = keep_best(best_score, best_label, n_best, search.top_r, key, ensemble.node_label[leaf])
    beam.best_size[lane] = n_best


@inlined
def keep_best_means(ensemble: TreeEnsemble, search: Search, first_lane: int, beam: BeamWorkspace) -> None:
    """Put the labels with the best means of a row's lanes in the heap of its first lane, with their keys.

    Every lane's heap has been filled by keep_best_leaves. The trees are added in their order. With thresholds
    a leaf is looked at that nearly reaches its own in its tree, and passes if the mean does.
    """
    n_trees = ensemble.child_ptr[0]
    floor = _floor_of(n_trees, search.top_r, first_lane, beam)
    best_score, best_label, n_best = beam.best_score[first_lane], beam.best_label[first_lane], 0
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
                    mean = _mean_of(ensemble, search, label, tree, bound, first_lane, beam)
                    if mean < np.float32(0.0) or not is_allowed(search, leaf):
                        continue
                    if has_thresholds(search) and np.log(mean) < threshold_of(search.log_threshold, leaf):
                        continue
                    if len(search.weight) > 0:
                        mean *= np.exp(search.weight[leaf])
                    n_best = keep_best(best_score, best_label, n_best, search.top_r, mean, label)
    beam.best_size[first_lane] = n_best


@inlined
def _floor_of(n_trees: int, top_r: int, first_lane: int, beam: BeamWorkspace) -> np.float32:
    """Return a bound below the logarithm of top_r labels' keys; -inf where no tree found so many."""
    floor = np.float32(-np.inf)
    for lane in range(first_lane, first_lane + n_trees):
        if beam.best_size[lane] == top_r:
            floor = max(floor, beam.best_score[lane, 0])
    return np.float32(floor - np.log(np.float32(n_trees)) - _SLACK)


@inlined
def _most_of(search: Search, lane: int, saved: int, beam: BeamWorkspace) -> np.float32:
    """Return what a saved node's child adds its log-probability to before it is compared with its bound.

    That is the least key of an answer in this tree, or with thresholds the least probability.
    """
    if has_thresholds(search):
        return np.float32(beam.saved_score[lane, saved])
    return key_of(search, beam.saved_node[lane, saved], beam.saved_score[lane, saved])


@inlined
def _mean_of(
    ensemble: TreeEnsemble,
    search: Search,
    label: int,
    tree: int,
    floor: np.float32,
    first_lane: int,
    beam: BeamWorkspace,
) -> np.float32:
    """Return a label's mean probability; -1 if a tree before `tree` had its leaf above the floor already."""
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
