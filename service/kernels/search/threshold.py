"""Thresholded prediction: every label whose probability reaches its threshold, up to top_r of them.

Source: Jasinska et al. 2016 section 5 and appendix B. A node's threshold is the least among the labels below
it; a queue from the root drops a node whose product is less. With several trees, a label whose mean reaches
its threshold reaches it in some tree, so the queues of the trees find all candidates and their means decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import struct_at
from model_store.ensemble import TreeEnsemble
from service.kernels.search.answers import Answers, charge, clear_cost, write_answer
from service.kernels.search.calibrated import calibrate_answers
from service.kernels.search.call import Call
from service.kernels.search.heaps import keep_best
from service.kernels.search.query import Search, is_allowed, key_of, threshold_of
from service.kernels.search.scores import QueueWorkspace, label_probability, record_children, start_row
from service.kernels.search.scoring import Scorer, last_at_once, score_in_turn, start_turns
from service.kernels.search.workspace import Workspace


@kernel
def threshold_rows(call_at: NDArray[np.int64]) -> None:
    """Answer the rows of a Call exactly; its `own` is a QueueWorkspace. Its search has thresholds.

    Stopped, a row has the labels found until then, all of which pass.
    Cost: the chunks of the nodes that pass. The answer to a row does not depend on the other rows.
    """
    call = struct_at(Call, call_at)
    ensemble, scorer = struct_at(TreeEnsemble, call.ensemble), Scorer(call.scorer, call_at)
    search, answers = struct_at(Search, call.search), struct_at(Answers, call.answers)
    work, queue = struct_at(Workspace, call.work), struct_at(QueueWorkspace, call.own)
    are_logs = ensemble.child_ptr[0] == 1
    for row in range(call.first, call.last):
        clear_cost(answers.costs, row, work)
        start_row(ensemble, row, queue)
        n_best, n_seen = _search(ensemble, search, scorer, queue, work)
        n_best = _keep_means(ensemble, search, n_best, n_seen, scorer, queue, work)
        for slot in range(len(work.cost)):
            charge(answers.costs, row, work, slot)
        is_exact = not work.stop[0]
        write_answer(answers, row, are_logs, queue.best_score, queue.best_label, n_best, is_exact)
    calibrate_answers(call, search, answers)


@inlined
def _search(
    ensemble: TreeEnsemble, search: Search, scorer: Scorer, queue: QueueWorkspace, work: Workspace
) -> tuple[int, int]:
    """Go through the queue of a row; return (labels kept in best_*, leaves in leaf_seen).

    With one tree the labels that pass go to best_*; with several, a leaf of each candidate to leaf_seen.
    """
    start_turns(work, 0)
    n_trees = ensemble.child_ptr[0]
    n_best = 0
    n_seen = 0
    n_front = 0
    for root in range(n_trees):
        queue.front_node[n_front] = root
        n_front += 1
    k = 0
    while k < n_front and not work.stop[0]:
        end = last_at_once(work, k, n_front)
        score_in_turn(scorer, k, end, n_front)
        for at in range(k, end):
            node = queue.front_node[at]
            record_children(ensemble, search.link, node, queue, work.margins[at - k])
            for child in range(ensemble.child_ptr[node], ensemble.child_ptr[node + 1]):
                score = queue.node_score[child]
                if score < threshold_of(search.log_threshold, child) or not is_allowed(search, child):
                    continue
                if ensemble.node_chunk[child] >= 0:
                    queue.front_node[n_front] = child
                    n_front += 1
                    continue
                label = ensemble.node_label[child]
                if n_trees == 1:
                    key = key_of(search, child, score)
                    n_best = keep_best(queue.best_score, queue.best_label, n_best, search.top_r, key, label)
                elif queue.label_stamp[label] != queue.stamp[0]:
                    queue.label_stamp[label] = queue.stamp[0]
                    queue.leaf_seen[n_seen] = child
                    n_seen += 1
        k = end
    return n_best, n_seen


@inlined
def _keep_means(
    ensemble: TreeEnsemble,
    search: Search,
    n_best: int,
    n_seen: int,
    scorer: Scorer,
    queue: QueueWorkspace,
    work: Workspace,
) -> int:
    """Add the labels of leaf_seen whose mean over the trees passes to best_*; return their number."""
    for i in range(n_seen):
        if work.stop[0]:
            break
        leaf = queue.leaf_seen[i]
        label = ensemble.node_label[leaf]
        key = label_probability(ensemble, search.link, label, scorer, queue, work)
        if np.log(key) < threshold_of(search.log_threshold, leaf):
            continue
        if len(search.weight) > 0:
            key *= np.exp(search.weight[leaf])
        n_best = keep_best(queue.best_score, queue.best_label, n_best, search.top_r, key, label)
    return n_best
