"""Routing: rows go down all decision trees of an ensemble to their leaves.

Source: Majzoubi and Choromanska 2019, algorithm 2 (several children of a node may receive a row)
and, for *argmax*, the trees of FastXML and LOMtree. A block of rows goes down one tree after the
other, level by level: the rows that enter a node are scored there one after the other, so that each
chunk is read once a block. A single row goes down all trees at once, so that there is always a next
chunk to prefetch. The scorer computes all margins, so a row's answer has the same bits alone and in
any block.
"""

import numpy as np

from xylem.engine.kernels.search.calibrated import calibrate_answers
from xylem.engine.kernels.search.call import ZERO_F32, Call, charge, clear_cost, write_answer
from xylem.engine.kernels.search.feature_map import begin_piece, clear_features, end_of_run
from xylem.engine.kernels.search.narrow_chunks import is_narrow, score_narrow
from xylem.engine.kernels.search.routing_leaves import (
    add_leaves,
    count_and_place,
    rank_labels,
    sort_leaves,
)
from xylem.engine.kernels.search.scorer import children_width, place
from xylem.engine.kernels.search.scoring import (
    IN_TURN,
    MAPPED,
    SPREAD,
    CallParts,
    call_scorer,
    last_at_once,
    parts_of,
)
from xylem.engine.kernels.search.workspace import RoutingWorkspace
from xylem_store import (
    I32,
    I64,
    LANES,
    LINK_CODES,
    Rerank,
    TreeEnsemble,
    lowest_lane,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    prefetch,
    struct_at,
    vbroadcast,
    vgreater,
    vload,
)

_MULTIWAY = LINK_CODES["multiway"]

# Returned instead of a number of leaves if the buffers are too small for a block of rows.
NO_ROOM = -1


@inlined
def go_down(parts: CallParts[RoutingWorkspace], first: int, last: int) -> int:
    """Send the rows first .. last - 1 down all trees; return the number of leaves in leaf_*, or
    NO_ROOM.

    The leaves of a row and tree have ascending ids, because nodes are numbered, and entered, level
    by level. Rows of few features go first: `score_narrow` adds several rows at a time, and is
    fastest if they have equally many.
    """
    ensemble, _, rows, _, answers, work, routing = parts
    n_rows = last - first
    for row in range(first, last):
        clear_cost(answers.costs, row, work)
        routing.leaf_node[row - first] = row
        routing.leaf_row[row - first] = min(n_rows - 1, rows.indptr[row + 1] - rows.indptr[row])
    count_and_place(n_rows, routing.leaf_row, 0, routing.row_ptr, routing)
    n_trees = ensemble.child_ptr[0]
    step = n_trees if n_rows == 1 else 1
    n_leaves = 0
    for tree in range(0, n_trees, step):
        for k in range(n_rows):
            routing.entry_row[k] = routing.sorted_node[k]
            routing.entry_children[k, 0] = 1
        n_entries = 0
        for root in range(tree, tree + step):
            if n_entries != NO_ROOM:
                n_entries, n_leaves = _enter(
                    ensemble, (root, root), (0, n_rows, 0, 0), (n_entries, n_leaves), routing
                )
        while n_entries > 0 and not work.stop[0]:
            for i in range(n_entries):
                routing.entry_node[i] = routing.next_node[i]
                routing.entry_row[i] = routing.next_row[i]
                routing.entry_tree[i] = routing.next_tree[i]
            n_entries = _score_level(parts, n_entries)
            n_entries, n_leaves = _enter_children(ensemble, n_entries, n_leaves, routing)
        if n_entries == NO_ROOM:
            return NO_ROOM
    return n_leaves


@inlined
def _score_level(parts: CallParts[RoutingWorkspace], n_entries: int) -> int:
    """Score the entries of a level, and choose the children that their rows enter.

    Return the number of entries scored: fewer if the search is stopped. Entries of one node are
    adjacent.
    """
    ensemble, scorer, rows, _, answers, work, routing = parts
    row_features = len(rows.indices) // (len(rows.indptr) - 1)
    k = 0
    while k < n_entries and not work.stop[0]:
        node = routing.entry_node[k]
        end, is_mapped = begin_piece(ensemble, routing.entry_node, k, n_entries, row_features, work)
        is_in_one_pass = is_mapped and is_narrow(ensemble, node, answers.costs)
        if is_mapped:
            call_scorer(scorer, SPREAD, node, is_in_one_pass, 0)
        while k < end and not work.stop[0]:
            call_end = last_at_once(work, k, end)
            if is_in_one_pass:
                score_narrow(parts, k, call_end)
            elif is_mapped:
                call_scorer(scorer, MAPPED, k, call_end, 0)
            else:
                call_scorer(scorer, IN_TURN, k, call_end, end)
            for entry in range(k, call_end):
                charge(answers.costs, routing.entry_row[entry], work, entry - k)
            step = call_end - k if is_mapped else 1
            for entry in range(k, call_end, step):
                _choose_children(parts, entry, entry + step, entry - k)
            k = call_end
        if is_in_one_pass:
            clear_features(ensemble, node, work.narrow_rows, int(children_width(ensemble, node)))
        elif is_mapped:
            clear_features(ensemble, node, work.feature_row, 1)
    return k


@inlined
def _choose_children(parts: CallParts[RoutingWorkspace], k: int, end: int, first_slot: int) -> None:
    """Write the sets of children that the rows of entries k .. end - 1 of one node enter.

    Their margins are in the slots from first_slot on.
    """
    ensemble = parts.ensemble
    routing = parts.traversal_buffers
    node = routing.entry_node[k]
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    prefetch(ensemble.node_chunk, child)
    prefetch(ensemble.leaf_ptr, child)
    for entry in range(k, end):
        margins = parts.work.margins[first_slot + entry - k]
        all_children = 0
        for word in range(routing.entry_children.shape[1]):
            children = 0
            if parts.search.link == _MULTIWAY:
                positive = vgreater(vload(margins, word * LANES), vbroadcast(ZERO_F32))
                children = positive & ((1 << min(LANES, max(0, n_children - word * LANES))) - 1)
            routing.entry_children[place(entry), word] = children
            all_children |= children
        if all_children == 0:
            best = 0
            largest = margins[0]
            for j in range(1, n_children):
                margin = margins[place(j)]
                is_larger = (margin > largest) | np.isnan(largest)
                best = j if is_larger else best
                largest = margin if is_larger else largest
            routing.entry_children[place(entry), best // LANES] = 1 << (best % LANES)


@inlined
def _enter_children(
    ensemble: TreeEnsemble, n_entries: int, n_leaves: int, routing: RoutingWorkspace
) -> tuple[int, int]:
    """Let the rows of a level's entries enter the children chosen.

    Return (the number of entries of the next level or NO_ROOM, the number of leaves). The next
    level is ordered by node, then as this one: all rows enter a child before any enters the next.
    """
    n_next = 0
    k = 0
    while k < n_entries and n_next != NO_ROOM:
        node = routing.entry_node[k]
        tree = routing.entry_tree[k]
        end = end_of_run(routing.entry_node, k, n_entries)
        child = ensemble.child_ptr[node]
        for word in range(routing.entry_children.shape[1]):
            chosen = np.int64(0)
            for entry in range(k, end):
                chosen |= routing.entry_children[place(entry), word]
            while chosen != 0 and n_next != NO_ROOM:
                lane = lowest_lane(chosen)
                chosen &= chosen - 1
                n_next, n_leaves = _enter(
                    ensemble,
                    (child + word * LANES + lane, tree),
                    (k, end, word, lane),
                    (n_next, n_leaves),
                    routing,
                )
        k = end
    return n_next, n_leaves


@inlined
def _enter(
    ensemble: TreeEnsemble,
    target: tuple[int, int],
    candidates: tuple[int, int, int, int],
    counts: tuple[int, int],
    routing: RoutingWorkspace,
) -> tuple[int, int]:
    """Let rows of a node's entries enter one of its children, or rows a root.

    Return the numbers of entries of the next level and of leaves; the first is NO_ROOM if there is
    no room for all candidates.

    target      the node entered, and its tree
    candidates  the first entry, the one after the last, and the element and bit of entry_children
                that say which of their rows enter
    counts      the numbers before
    """
    node, tree = target
    first, last, _, _ = candidates
    n_next, n_leaves = counts
    n_rows = last - first
    if n_next + n_rows > len(routing.next_node) or n_leaves + n_rows > len(routing.leaf_node):
        return NO_ROOM, n_leaves
    if ensemble.node_chunk[place(node)] >= 0:
        n_rows = _choose_rows(routing, candidates, n_next, routing.next_row)
        routing.next_node[n_next : n_next + n_rows] = node
        routing.next_tree[n_next : n_next + n_rows] = tree
        return n_next + n_rows, n_leaves
    if ensemble.leaf_ptr[place(node + 1)] > ensemble.leaf_ptr[place(node)]:
        n_rows = _choose_rows(routing, candidates, n_leaves, routing.leaf_row)
        routing.leaf_node[n_leaves : n_leaves + n_rows] = node
        routing.leaf_tree[n_leaves : n_leaves + n_rows] = tree
        n_leaves += n_rows
    return n_next, n_leaves


@inlined
def _choose_rows(
    routing: RoutingWorkspace, candidates: tuple[int, int, int, int], position: int, rows_out: I32
) -> int:
    """Write the rows of the candidates that enter from a position on; return their number.

    Every row is written, and counts only if it enters: the processor cannot predict a branch here.
    """
    first, last, word, lane = candidates
    n_chosen = 0
    for k in range(first, last):
        rows_out[place(position + n_chosen)] = routing.entry_row[place(k)]
        n_chosen += (routing.entry_children[place(k), word] >> lane) & 1
    return n_chosen


@kernel
def route_rows(call_at: I64) -> None:
    """Answer the rows of a Call, whose `traversal_buffers` are a RoutingWorkspace.

    The rows of a block go down the trees together. The candidates are re-ranked if the call's
    `rerank` is not NO_RERANK. Only labels of score > 0 are answered. A block for which the buffers
    have no room (its rows enter many children) is halved; for one row there is always room. Cost:
    the chunks of the nodes entered, at least the depth of each tree, at worst all; the labels of
    the leaves reached; to re-rank, the mean rows of those labels. The answer to a row does not
    depend on the other rows.
    """
    call = struct_at(Call, call_at)
    parts = parts_of(call_at, RoutingWorkspace)
    ensemble, _, _, search, answers, work, routing = parts
    rerank = struct_at(Rerank, call.rerank)
    n_rows = len(routing.row_ptr) - 2
    row = call.first
    while row < call.last and not work.stop[0]:
        end = min(call.last, row + n_rows)
        n_leaves = go_down(parts, row, end)
        if n_leaves == NO_ROOM:
            n_rows = max(1, (end - row) >> 1)
            continue
        sort_leaves(n_leaves, row, end - row, routing)
        for block_row in range(row, end):
            first = routing.row_ptr[block_row - row]
            last = routing.row_ptr[block_row - row + 1]
            n_best = rank_labels(
                parts, add_leaves(ensemble, routing, first, last), block_row, rerank
            )
            is_exact = work.stop[0] == 0
            n_best = n_best if is_exact or not search.is_sure else 0
            write_answer(
                answers, block_row, False, routing.best_score, routing.best_label, n_best, is_exact
            )
        row = end
    for block_row in range(row, call.last):
        answers.exact[block_row] = 0
        answers.counts[block_row] = 0
        clear_cost(answers.costs, block_row, work)
    calibrate_answers(call, search, answers)
