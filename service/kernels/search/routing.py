"""Routing: rows go down all decision trees of an ensemble to their leaves.

Source: Majzoubi and Choromanska 2019, algorithm 2 (several children of a node may receive a row) and, for
*argmax*, the trees of FastXML and LOMtree. A block of rows goes down one tree after the other, level by
level: the rows that enter a node are scored there one after the other, so that each chunk is read once a
block. A row alone goes down all trees at once, so that there is always a next chunk to ask for. The margins
are the scorer's, so a row's answer has the same bits alone and in any block.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import struct_at
from model_store.ensemble import TreeEnsemble
from model_store.extras import Rerank
from service.kernels.search.calibrated import calibrate_answers
from service.kernels.search.call import Answers, Call, clear_cost
from service.kernels.search.query import Rows, Search
from service.kernels.search.routing_leaves import add_leaves, rank_labels, sort_leaves
from service.kernels.search.routing_levels import NO_ROOM, go_down
from service.kernels.search.routing_workspace import RoutingWorkspace
from service.kernels.search.scoring import Scorer
from service.kernels.search.workspace import Workspace


@kernel
def route_rows(call_at: NDArray[np.int64]) -> None:
    """Answer the rows of a Call, whose `own` is a RoutingWorkspace; its rows go down together.

    The candidates are re-ranked if the call's `rerank` is not NO_RERANK. Labels of score > 0 are answered.
    A block that finds no room (rows that enter many children) is halved; one row always finds it.
    Cost: the chunks of the nodes entered, at least depth a tree, at worst all; the labels of the leaves
    reached; to re-rank, the mean rows of those labels. The answer to a row does not depend on the others.
    """
    call = struct_at(Call, call_at)
    ensemble, scorer = struct_at(TreeEnsemble, call.ensemble), Scorer(call.scorer, call_at)
    rows, search = struct_at(Rows, call.rows), struct_at(Search, call.search)
    rerank, answers = struct_at(Rerank, call.rerank), struct_at(Answers, call.answers)
    work, routing = struct_at(Workspace, call.work), struct_at(RoutingWorkspace, call.own)
    n_rows = len(routing.row_ptr) - 1
    row = call.first
    while row < call.last and not work.stop[0]:
        end = min(call.last, row + n_rows)
        n_leaves = go_down(ensemble, search.link, rows, row, end, scorer, routing, work, answers.costs)
        if n_leaves == NO_ROOM:
            n_rows = max(1, (end - row) >> 1)
            continue
        sort_leaves(n_leaves, row, end - row, routing)
        for here in range(row, end):
            n_best = _rank(ensemble, rerank, rows, here, here - row, search, routing)
            is_stopped = work.stop[0] != 0
            answers.exact[here] = not is_stopped
            answers.counts[here] = 0 if search.is_sure and is_stopped else n_best
            for i in range(n_best):
                answers.labels[here, i] = routing.best_label[i]
                answers.scores[here, i] = routing.best_score[i]
        row = end
    for here in range(row, call.last):
        answers.exact[here] = 0
        answers.counts[here] = 0
        clear_cost(answers.costs, here, work)
    calibrate_answers(call, search, answers)


@inlined
def _rank(
    ensemble: TreeEnsemble,
    rerank: Rerank,
    rows: Rows,
    row: int,
    place: int,
    search: Search,
    routing: RoutingWorkspace,
) -> int:
    """Leave the best labels of the block's place-th row, sorted, in best_*; return their number."""
    low, high = rows.indptr[row], rows.indptr[row + 1]
    n_seen = add_leaves(ensemble, routing, routing.row_ptr[place], routing.row_ptr[place + 1])
    return rank_labels(
        ensemble.child_ptr[0], n_seen, rows.indices[low:high], rows.values[low:high], rerank, search, routing
    )


@kernel
def reach_leaves(call_at: NDArray[np.int64]) -> int:
    """Leave the leaves that a row reaches, but for empty ones, in leaf_node and leaf_tree; return how many.

    By ascending leaf. The row is the first one of a Call as `route_rows` takes it, whose costs are wanted by
    nobody.
    """
    call = struct_at(Call, call_at)
    ensemble, scorer = struct_at(TreeEnsemble, call.ensemble), Scorer(call.scorer, call_at)
    rows, search = struct_at(Rows, call.rows), struct_at(Search, call.search)
    work, routing = struct_at(Workspace, call.work), struct_at(RoutingWorkspace, call.own)
    costs = struct_at(Answers, call.answers).costs
    first = call.first
    return go_down(ensemble, search.link, rows, first, first + 1, scorer, routing, work, costs)
