"""Thresholded prediction: every label whose probability reaches its threshold, up to top_r of them.

Source: plt-fmeasure.txt section 5 and appendix B. A node's threshold is the least among the labels below it;
a queue from the root drops a node whose product is less. With several trees, a label whose mean reaches its
threshold reaches it in some tree, so the queues of the trees find all candidates and their means decide.
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
from service.kernels.heaps import keep_best
from service.kernels.scorer import score_in_turn, start_turns
from service.kernels.scores import label_probability, record_children, start_row
from service.kernels.workspace import Workspace, borrow_workspace


@kernel
def threshold_rows(
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
    log_threshold: NDArray[np.float32],
    node_mask: NDArray[np.uint8],
    lent_work: NDArray[np.int64],
    counts_out: NDArray[np.int64],
    labels_out: NDArray[np.int32],
    scores_out: NDArray[np.float32],
) -> None:
    """Answer rows first .. last - 1 exactly; parameters and outputs as in `beam.beam_rows`, and

    log_threshold  float32[N]: the logarithm of each node's threshold, at a leaf its label's, elsewhere the
                   least of the children's; or float32[1]: one for all. Probability >= threshold passes.
    Stopped, a row has the labels found until then, all of which pass.
    Cost: the chunks of the nodes that pass. The answer to a row does not depend on the other rows.
    """
    ensemble = borrow_ensemble(lent_ensemble, (sparse, dense))
    work = borrow_workspace(lent_work, ())
    for row in range(first, last):
        low, high = indptr[row], indptr[row + 1]
        row_indices, row_values = indices[low:high], values[low:high]
        work.row[0] = row
        n_best, n_seen = _search(
            ensemble, link, indptr, indices, values, top_r, log_threshold, node_mask, work
        )
        for i in range(n_seen):
            if work.stop[0]:
                break
            leaf = work.leaf_seen[i]
            label = ensemble.node_label[leaf]
            mean = label_probability(ensemble, link, label, row_indices, row_values, work)
            if np.log(mean) >= _threshold_of(leaf, log_threshold):
                n_best = keep_best(work.best_score, work.best_label, n_best, top_r, mean, label)
        n_best = finish_answer(ensemble.child_ptr[0] == 1, n_best, work)
        write_answer(n_best, row, work, counts_out, labels_out, scores_out)


@inlined
def _search(
    ensemble: TreeEnsemble,
    link: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    top_r: int,
    log_threshold: NDArray[np.float32],
    node_mask: NDArray[np.uint8],
    work: Workspace,
) -> tuple[int, int]:
    """Go through the queue of the row work.row; return (labels kept in best_*, leaves in leaf_seen).

    With one tree the labels that pass go to best_*; with several, a leaf of each candidate to leaf_seen.
    """
    start_row(ensemble, work)
    start_turns(work)
    n_trees = ensemble.child_ptr[0]
    n_best = 0
    n_seen = 0
    n_front = 0
    for root in range(n_trees):
        work.front_node[n_front] = root
        n_front += 1
    k = 0
    while k < n_front and not work.stop[0]:
        node = work.front_node[k]
        score_in_turn(ensemble, work.front_node, work.row, k, n_front, indptr, indices, values, work)
        record_children(ensemble, link, node, work)
        k += 1
        for child in range(ensemble.child_ptr[node], ensemble.child_ptr[node + 1]):
            score = work.node_score[child]
            if score < _threshold_of(child, log_threshold) or (len(node_mask) > 0 and node_mask[child] == 0):
                continue
            if ensemble.node_chunk[child] >= 0:
                work.front_node[n_front] = child
                n_front += 1
                continue
            label = ensemble.node_label[child]
            if n_trees == 1:
                n_best = keep_best(work.best_score, work.best_label, n_best, top_r, score, label)
            elif work.label_stamp[label] != work.stamp[0]:
                work.label_stamp[label] = work.stamp[0]
                work.leaf_seen[n_seen] = child
                n_seen += 1
    return n_best, n_seen


@inlined
def _threshold_of(node: int, log_threshold: NDArray[np.float32]) -> np.float32:
    """Return the logarithm of the node's threshold."""
    return np.float32(log_threshold[node if len(log_threshold) > 1 else 0])
