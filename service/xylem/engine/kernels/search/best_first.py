"""Exact searches with a queue of inner nodes: for the best labels, or for all labels that reach
their thresholds.

Source: Jasinska et al. 2016, section 5 (uniform-cost search) and appendix B. With several trees all
their nodes share one queue.

The best labels: a label that no tree has reached yet is, in every tree, below some queued node, so
its mean is at most the best queued score; and a label whose mean is m has a probability >= m in
some tree, so nodes of a lower score than m can be dropped. With weights, a node's key is its score
times the greatest weight below it, which is a bound in the same way.

With thresholds: a node's threshold is the least one among the labels below it; a node whose score
is less is dropped. A label whose mean reaches its threshold also reaches it in some tree, so the
search finds all candidates, and their means decide.
"""

import numpy as np

from xylem.engine.kernels.search.calibrated import calibrate_answers
from xylem.engine.kernels.search.call import (
    Answers,
    Call,
    charge,
    clear_cost,
    is_allowed,
    key_of,
    threshold_of,
    write_answer,
)
from xylem.engine.kernels.search.heaps import keep_best, pop_frontier, push_frontier
from xylem.engine.kernels.search.scores import (
    QueueWorkspace,
    expand,
    label_probability,
    record_children,
    start_row,
)
from xylem.engine.kernels.search.scoring import (
    IN_TURN,
    CallParts,
    call_scorer,
    last_at_once,
    parts_of,
    start_turns,
)
from xylem_store import (
    I64,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
)


@kernel
def best_first_rows(call_at: I64) -> None:
    """Answer the rows of a Call exactly, whose `traversal_buffers` are a QueueWorkspace.

    Thresholds have no effect. If the search is stopped, a row's answer has only the labels that are
    already proved to be the best ones. Cost: at worst every chunk, usually few more than those on
    the answer's paths. The answer to a row does not depend on the other rows.
    """
    call = struct_at(Call, call_at)
    parts = parts_of(call_at, QueueWorkspace)
    ensemble, _, _, search, answers, work, queue = parts
    are_logs = ensemble.child_ptr[0] == 1
    for row in range(call.first, call.last):
        clear_cost(answers.costs, row, work)
        n_best = _search(parts, row)
        charge(answers.costs, row, work, 0)
        is_exact = queue.entry_score[0] == np.float32(-np.inf)
        write_answer(answers, row, are_logs, queue.best_score, queue.best_label, n_best, is_exact)
        if not is_exact:
            answers.counts[row] = _n_sure(answers, row, n_best, queue.entry_score[0])
    calibrate_answers(call, search, answers)


@inlined
def _search(parts: CallParts[QueueWorkspace], row: int) -> int:
    """Put the best labels of one row into the heap best_*; return their number.

    best_* holds logarithms of keys if there is one tree, keys if there are several. Afterwards
    entry_score[0] is the logarithm of a bound on the keys of all labels not seen, or -inf if none
    of them can be better than those found.
    """
    ensemble, _, _, search, _, work, queue = parts
    start_row(ensemble, row, queue)
    n_trees = ensemble.child_ptr[0]
    n_front = 0
    n_best = 0
    floor = np.float32(-np.inf)
    for root in range(n_trees):
        key = key_of(search, root, np.float32(0.0))
        n_front = push_frontier(queue.entry_score, queue.entry_node, n_front, key, root)
    while n_front > 0 and queue.entry_score[0] >= floor and not work.stop[0]:
        node = queue.entry_node[0]
        n_front = pop_frontier(queue.entry_score, queue.entry_node, n_front)
        expand(parts, node)
        for child in range(ensemble.child_ptr[node], ensemble.child_ptr[node + 1]):
            key = key_of(search, child, queue.node_score[child])
            if key < floor or not is_allowed(search, child):
                continue
            if ensemble.node_chunk[child] >= 0:
                n_front = push_frontier(queue.entry_score, queue.entry_node, n_front, key, child)
                continue
            label = ensemble.node_label[child]
            if n_trees > 1:
                if queue.label_stamp[label] == queue.stamp[0]:
                    continue
                queue.label_stamp[label] = queue.stamp[0]
                key = label_probability(parts, label)
                if len(search.weight) > 0:
                    key *= np.exp(search.weight[child])
            n_best = keep_best(queue.best_score, queue.best_label, n_best, search.top_r, key, label)
            if n_best == search.top_r:
                floor = queue.best_score[0] if n_trees == 1 else np.log(queue.best_score[0])
    if n_front == 0 or queue.entry_score[0] < floor:
        queue.entry_score[0] = np.float32(-np.inf)
    return n_best


@inlined
def _n_sure(answers: Answers, row: int, n_best: int, log_unseen: np.float32) -> int:
    """Return how many labels of a row's answer are better than every label not seen."""
    unseen = np.exp(log_unseen)
    while n_best > 0 and answers.scores[row, n_best - 1] <= unseen:
        n_best -= 1
    return n_best


@kernel
def threshold_rows(call_at: I64) -> None:
    """Answer the rows of a Call exactly, whose search has thresholds.

    Its `traversal_buffers` are a QueueWorkspace. If the search is stopped, a row has the labels
    found so far, all of which reach their thresholds. Cost: the chunks of the nodes that reach
    their thresholds. The answer to a row does not depend on the other rows.
    """
    call = struct_at(Call, call_at)
    parts = parts_of(call_at, QueueWorkspace)
    ensemble, _, _, search, answers, work, queue = parts
    are_logs = ensemble.child_ptr[0] == 1
    for row in range(call.first, call.last):
        clear_cost(answers.costs, row, work)
        start_row(ensemble, row, queue)
        n_best, n_seen = _search_above(parts)
        n_best = _keep_means(parts, n_best, n_seen)
        for slot in range(len(work.cost)):
            charge(answers.costs, row, work, slot)
        is_exact = not work.stop[0]
        write_answer(answers, row, are_logs, queue.best_score, queue.best_label, n_best, is_exact)
    calibrate_answers(call, search, answers)


@inlined
def _search_above(parts: CallParts[QueueWorkspace]) -> tuple[int, int]:
    """Search all nodes that reach their thresholds; return (labels in best_*, leaves in leaf_seen).

    With one tree the labels that pass go to best_*; with several, a leaf of each candidate goes to
    leaf_seen.
    """
    ensemble, scorer, _, search, _, work, queue = parts
    start_turns(work, 0)
    n_trees = ensemble.child_ptr[0]
    n_best = 0
    n_seen = 0
    n_front = 0
    for root in range(n_trees):
        queue.entry_node[n_front] = root
        n_front += 1
    k = 0
    while k < n_front and not work.stop[0]:
        end = last_at_once(work, k, n_front)
        call_scorer(scorer, IN_TURN, k, end, n_front)
        for entry in range(k, end):
            node = queue.entry_node[entry]
            record_children(parts, node, work.margins[entry - k])
            for child in range(ensemble.child_ptr[node], ensemble.child_ptr[node + 1]):
                score = queue.node_score[child]
                if score < threshold_of(search.log_threshold, child) or not is_allowed(
                    search, child
                ):
                    continue
                if ensemble.node_chunk[child] >= 0:
                    queue.entry_node[n_front] = child
                    n_front += 1
                    continue
                label = ensemble.node_label[child]
                if n_trees == 1:
                    key = key_of(search, child, score)
                    n_best = keep_best(
                        queue.best_score, queue.best_label, n_best, search.top_r, key, label
                    )
                elif queue.label_stamp[label] != queue.stamp[0]:
                    queue.label_stamp[label] = queue.stamp[0]
                    queue.leaf_seen[n_seen] = child
                    n_seen += 1
        k = end
    return n_best, n_seen


@inlined
def _keep_means(parts: CallParts[QueueWorkspace], n_best: int, n_seen: int) -> int:
    """Offer to best_* the labels of leaf_seen whose mean over the trees reaches the threshold.

    Return the number of labels in best_*.
    """
    ensemble, _, _, search, _, work, queue = parts
    for i in range(n_seen):
        if work.stop[0]:
            break
        leaf = queue.leaf_seen[i]
        label = ensemble.node_label[leaf]
        key = label_probability(parts, label)
        if np.log(key) < threshold_of(search.log_threshold, leaf):
            continue
        if len(search.weight) > 0:
            key *= np.exp(search.weight[leaf])
        n_best = keep_best(queue.best_score, queue.best_label, n_best, search.top_r, key, label)
    return n_best
