"""Beam search: the top_r labels of a row, looking at no more than beam_width inner nodes a level.

Source: Prabhu et al. 2018 (Parabel), tree-model-size.txt section 2.3. A leaf is an answer at whatever level
it stands; the beam holds inner nodes only. In an ensemble each tree has its own beam, and a label's
probability is the mean over the trees, 0 in a tree whose beam missed it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import LANES, TreeEnsemble
from model_store.jit import borrowing_inlined as inlined
from model_store.jit import borrowing_kernel as kernel
from service.kernels.answers import finish_answer, write_answer
from service.kernels.forest import borrow_ensemble
from service.kernels.heaps import keep_best, sort_best
from service.kernels.links import log_link, margin_cut
from service.kernels.scorer import score_in_turn, start_turns
from service.kernels.simd import lowest_lane, vbroadcast, vgreater, vload
from service.kernels.workspace import ALL_INNER, ALL_LEAVES, Workspace, borrow_workspace


@kernel
def beam_rows(
    lent_ensemble: NDArray[np.int64],
    sparse: NDArray[Any],
    dense: NDArray[Any],
    link: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    first: int,
    last: int,
    beam_width: int,
    top_r: int,
    node_mask: NDArray[np.uint8],
    lent_work: NDArray[np.int64],
    counts_out: NDArray[np.int64],
    labels_out: NDArray[np.int32],
    scores_out: NDArray[np.float32],
) -> None:
    """Answer rows first .. last - 1 of compressed sparse rows.

    lent_ensemble  a TreeEnsemble, lent; `sparse` and `dense` are empty samples of its weights' dtypes
    link        one of LINK_CODES
    indices     int32, strictly ascending within a row; values float32, finite
    beam_width  in [1, the workspace's B]; top_r in [1, R]
    node_mask   uint8[N]: 0 where no label below the node is allowed; or empty: all are
    counts_out  int64[n]: how many labels row i has; labels_out int32[n, top_r], scores_out float32[n, top_r]:
                the labels, the best first, and their probabilities; of equal scores the smaller label first
    Stopped, a row has the labels found until then; with several trees the trees not searched count 0.
    Cost: beam_width chunks a level and tree. The answer to a row does not depend on the other rows.
    """
    ensemble = borrow_ensemble(lent_ensemble, (sparse, dense))
    work = borrow_workspace(lent_work, ())
    n_trees = ensemble.child_ptr[0]
    for row in range(first, last):
        work.row[0] = row
        work.stamp[0] += 1
        n_best = 0
        n_seen = 0
        for root in range(n_trees):
            n_best, n_seen = _search_tree(
                ensemble, link, root, indptr, indices, values, beam_width, top_r, node_mask, n_seen, work
            )
        for i in range(n_seen):
            label = ensemble.node_label[work.leaf_seen[i]]
            mean = work.label_sum[label] / np.float32(n_trees)
            n_best = keep_best(work.best_score, work.best_label, n_best, top_r, mean, label)
        n_best = finish_answer(n_trees == 1, n_best, work)
        write_answer(n_best, row, work, counts_out, labels_out, scores_out)


@inlined
def _search_tree(
    ensemble: TreeEnsemble,
    link: int,
    root: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    beam_width: int,
    top_r: int,
    node_mask: NDArray[np.uint8],
    n_seen: int,
    work: Workspace,
) -> tuple[int, int]:
    """Go down one tree; return (labels kept in best_*, leaves in leaf_seen)."""
    work.beam_score[0] = np.float32(0.0)
    work.beam_node[0] = root
    n_beam = 1
    n_best = 0
    while n_beam > 0:
        n_next = 0
        start_turns(work)
        for k in range(n_beam):
            if work.stop[0]:
                return n_best, n_seen
            node, score = work.beam_node[k], work.beam_score[k]
            score_in_turn(ensemble, work.beam_node, work.row, k, n_beam, indptr, indices, values, work)
            next_floor = work.next_score[0] if n_next == beam_width else np.float32(-np.inf)
            best_floor = work.best_score[0] if n_best == top_r else np.float32(-np.inf)
            cut = cut_of(ensemble, link, node, score, next_floor, best_floor, work)
            child = ensemble.child_ptr[node]
            n_children = ensemble.child_ptr[node + 1] - child
            for tile in range(0, n_children, LANES):
                lanes = vgreater(vload(work.margins, tile), vbroadcast(cut))
                while lanes != 0:
                    position = tile + lowest_lane(lanes)
                    lanes &= lanes - 1
                    here = child + position
                    if position >= n_children or (len(node_mask) > 0 and node_mask[here] == 0):
                        continue
                    log_score = score + log_link(link, work.margins[position])
                    if ensemble.node_chunk[here] >= 0:
                        n_next = keep_best(
                            work.next_score, work.next_node, n_next, beam_width, log_score, here
                        )
                    elif ensemble.child_ptr[0] == 1:
                        label = ensemble.node_label[here]
                        n_best = keep_best(work.best_score, work.best_label, n_best, top_r, log_score, label)
                    else:
                        n_seen = _add_leaf(ensemble, here, np.exp(log_score), n_seen, work)
        sort_best(work.next_score, work.next_node, n_next)
        for k in range(n_next):
            work.beam_score[k] = work.next_score[k]
            work.beam_node[k] = work.next_node[k]
        n_beam = n_next
    return n_best, n_seen


@inlined
def cut_of(
    ensemble: TreeEnsemble,
    link: int,
    node: int,
    score: np.float32,
    next_floor: np.float32,
    best_floor: np.float32,
    work: Workspace,
) -> np.float32:
    """Return a margin that a node's child must exceed to enter the next level's beam or the answer.

    By it whole vectors of children are passed over. The floors are the least scores that can enter, -inf
    while there is room.
    """
    below = work.below[ensemble.node_chunk[node]]
    if below == ALL_LEAVES:
        next_floor = best_floor
    elif below == ALL_INNER:
        best_floor = next_floor
    return margin_cut(link, min(next_floor, best_floor) - score)


@inlined
def _add_leaf(
    ensemble: TreeEnsemble, leaf: int, probability: np.float32, n_seen: int, work: Workspace
) -> int:
    """Add a tree's probability of the leaf's label to the label's sum; return the number of labels seen."""
    label = ensemble.node_label[leaf]
    if work.label_stamp[label] != work.stamp[0]:
        work.label_stamp[label] = work.stamp[0]
        work.label_sum[label] = np.float32(0.0)
        work.leaf_seen[n_seen] = leaf
        n_seen += 1
    work.label_sum[label] += probability
    return n_seen
