"""Exact top-R: a priority queue of inner nodes, the best first, until no node left can hold a better label.

Source: plt-fmeasure.txt section 5 (uniform-cost search). With several trees the nodes of all share the queue:
a label that no tree has reached yet is, in every tree, below some queued node, so its mean is at most the
best queued score; and a label whose mean is m has probability >= m in some tree, so nodes below m can be
dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import TreeEnsemble
from model_store.jit import borrowing_inlined as inlined
from model_store.jit import borrowing_kernel as kernel
from service.kernels.answers import finish_answer, write_answer
from service.kernels.forest import borrow_ensemble
from service.kernels.heaps import keep_best, pop_frontier, push_frontier
from service.kernels.scores import expand, label_probability, start_row
from service.kernels.workspace import Workspace, borrow_workspace


@kernel
def best_first_rows(
    lent_ensemble: NDArray[np.int64],
    sparse: NDArray[Any],
    dense: NDArray[Any],
    link: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    first: int,
    last: int,
    top_r: int,
    node_mask: NDArray[np.uint8],
    lent_work: NDArray[np.int64],
    counts_out: NDArray[np.int64],
    labels_out: NDArray[np.int32],
    scores_out: NDArray[np.float32],
) -> None:
    """Answer rows first .. last - 1 exactly; parameters and outputs as in `beam.beam_rows`.

    Stopped, a row has the labels that are surely the first of its answer. The workspace is one made for exact
    traversals. Cost: at worst every chunk, as a rule few more than the answer's paths. The answer to a row
    does not depend on the other rows.
    """
    ensemble = borrow_ensemble(lent_ensemble, (sparse, dense))
    work = borrow_workspace(lent_work, ())
    for row in range(first, last):
        low, high = indptr[row], indptr[row + 1]
        n_best = _search(ensemble, link, indices[low:high], values[low:high], top_r, node_mask, work)
        write_answer(n_best, row, work, counts_out, labels_out, scores_out)


@inlined
def _search(
    ensemble: TreeEnsemble,
    link: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    top_r: int,
    node_mask: NDArray[np.uint8],
    work: Workspace,
) -> int:
    """Leave the best labels of one row, sorted, in best_*; return their number.

    best_* holds log-scores for one tree, probabilities for several.
    """
    start_row(ensemble, work)
    n_trees = ensemble.child_ptr[0]
    n_front = 0
    n_best = 0
    floor = np.float32(-np.inf)
    for root in range(n_trees):
        n_front = push_frontier(work.front_score, work.front_node, n_front, np.float32(0.0), root)
    while n_front > 0 and work.front_score[0] >= floor and not work.stop[0]:
        node = work.front_node[0]
        n_front = pop_frontier(work.front_score, work.front_node, n_front)
        expand(ensemble, link, node, indices, values, work)
        for child in range(ensemble.child_ptr[node], ensemble.child_ptr[node + 1]):
            score = work.node_score[child]
            if score < floor or (len(node_mask) > 0 and node_mask[child] == 0):
                continue
            if ensemble.node_chunk[child] >= 0:
                n_front = push_frontier(work.front_score, work.front_node, n_front, score, child)
                continue
            label = ensemble.node_label[child]
            if n_trees > 1:
                if work.label_stamp[label] == work.stamp[0]:
                    continue
                work.label_stamp[label] = work.stamp[0]
                score = label_probability(ensemble, link, label, indices, values, work)
            n_best = keep_best(work.best_score, work.best_label, n_best, top_r, score, label)
            if n_best == top_r:
                floor = work.best_score[0] if n_trees == 1 else np.log(work.best_score[0])
    n_best = finish_answer(n_trees == 1, n_best, work)
    if n_front > 0 and work.front_score[0] >= floor:
        n_best = _drop_unsure(n_best, np.exp(work.front_score[0]), work)
    return n_best


@inlined
def _drop_unsure(n_best: int, unseen: np.float32, work: Workspace) -> int:
    """Return how many of best_* are better than all labels unseen, whose scores are at most `unseen`."""
    while n_best > 0 and work.best_score[n_best - 1] <= unseen:
        n_best -= 1
    return n_best
