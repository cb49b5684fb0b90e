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
from xylem.engine.kernels.search.call import Call, charge, clear_cost, write_answer
from xylem.engine.kernels.search.feature_map import begin_piece, clear_features
from xylem.engine.kernels.search.narrow_chunks import is_narrow, score_narrow
from xylem.engine.kernels.search.routing_leaves import add_leaves, rank_labels, sort_leaves
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
    F32,
    I64,
    LINK_CODES,
    Rerank,
    TreeEnsemble,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
)

_MULTIWAY = LINK_CODES["multiway"]
_ZERO = np.float32(0.0)

# Returned instead of a number of leaves if the buffers are too small for a block of rows.
NO_ROOM = -1


@inlined
def go_down(parts: CallParts[RoutingWorkspace], first: int, last: int) -> int:
    """Send the rows first .. last - 1 down all trees; return the number of leaves in leaf_*, or
    NO_ROOM.

    The leaves of a row and tree have ascending ids, because nodes are numbered, and entered, level
    by level.
    """
    ensemble = parts.ensemble
    routing = parts.traversal_buffers
    work = parts.work
    for row in range(first, last):
        clear_cost(parts.answers.costs, row, work)
    n_trees = ensemble.child_ptr[0]
    step = n_trees if last - first == 1 else 1
    n_leaves = 0
    for tree in range(0, n_trees, step):
        if n_leaves + (last - first) * step > len(routing.leaf_node):
            return NO_ROOM
        n_entries = 0
        for root in range(tree, tree + step):
            for row in range(first, last):
                n_entries, n_leaves = _enter(
                    ensemble, root, row, root, n_entries, n_leaves, 1, routing
                )
        while n_entries > 0 and not work.stop[0]:
            _next_level(ensemble, n_entries, last - first, routing)
            n_entries, n_leaves = _score_level(parts, n_entries, n_leaves)
            if n_entries == NO_ROOM:
                return NO_ROOM
    return n_leaves


@inlined
def _score_level(
    parts: CallParts[RoutingWorkspace], n_entries: int, n_leaves: int
) -> tuple[int, int]:
    """Score the entries of a level, and let their rows enter children.

    Return (the number of entries of the next level or NO_ROOM, the number of leaves). Entries of
    one node are adjacent.
    """
    ensemble, scorer, rows, _, answers, work, routing = parts
    row_features = len(rows.indices) // (len(rows.indptr) - 1)
    n_next = 0
    k = 0
    while k < n_entries and not work.stop[0]:
        node = routing.entry_node[k]
        end, is_mapped = begin_piece(ensemble, routing.entry_node, k, n_entries, row_features, work)
        is_in_one_pass = is_mapped and is_narrow(ensemble, node, answers.costs)
        if is_mapped:
            call_scorer(scorer, SPREAD, node, is_in_one_pass, 0)
        while k < end and not work.stop[0] and n_next != NO_ROOM:
            call_end = last_at_once(work, k, end)
            if is_in_one_pass:
                score_narrow(parts, k, call_end)
            elif is_mapped:
                call_scorer(scorer, MAPPED, k, call_end, 0)
            else:
                call_scorer(scorer, IN_TURN, k, call_end, end)
            for entry in range(k, call_end):
                if not _is_room(ensemble, entry, n_next, n_leaves, routing):
                    n_next = NO_ROOM
                    break
                charge(answers.costs, routing.entry_row[entry], work, entry - k)
                n_next, n_leaves = _enter_children(
                    parts, entry, n_next, n_leaves, work.margins[entry - k]
                )
            k = call_end
        if is_in_one_pass:
            clear_features(ensemble, node, work.narrow_rows, int(children_width(ensemble, node)))
        elif is_mapped:
            clear_features(ensemble, node, work.feature_row, 1)
        if n_next == NO_ROOM:
            break
    return n_next, n_leaves


@inlined
def _is_room(
    ensemble: TreeEnsemble, k: int, n_next: int, n_leaves: int, routing: RoutingWorkspace
) -> bool:
    """Return whether there is room for all children of the k-th entry's node."""
    node = routing.entry_node[k]
    n_children = ensemble.child_ptr[node + 1] - ensemble.child_ptr[node]
    return bool(
        n_next + n_children <= len(routing.next_node)
        and n_leaves + n_children <= len(routing.leaf_node)
    )


@inlined
def _enter_children(
    parts: CallParts[RoutingWorkspace], k: int, n_next: int, n_leaves: int, margins: F32
) -> tuple[int, int]:
    """Let the k-th entry's row enter children of its node, by their margins.

    Return (n_next, n_leaves), the new numbers of entries of the next level and of leaves.
    """
    ensemble = parts.ensemble
    routing = parts.traversal_buffers
    node = routing.entry_node[k]
    row = routing.entry_row[k]
    tree = routing.entry_tree[k]
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    n_positive = 0
    if parts.search.link == _MULTIWAY:
        for j in range(n_children):
            is_positive = int(margins[place(j)] > _ZERO)
            n_positive += is_positive
            n_next, n_leaves = _enter(
                ensemble, child + j, row, tree, n_next, n_leaves, is_positive, routing
            )
    if n_positive > 0:
        return n_next, n_leaves
    best = 0
    for j in range(1, n_children):
        if margins[j] > margins[best] or np.isnan(margins[best]):
            best = j
    return _enter(ensemble, child + best, row, tree, n_next, n_leaves, 1, routing)


@inlined
def _enter(
    ensemble: TreeEnsemble,
    node: int,
    row: int,
    tree: int,
    n_next: int,
    n_leaves: int,
    enters: int,
    routing: RoutingWorkspace,
) -> tuple[int, int]:
    """Let a row enter a node of a tree if `enters` is 1, not 0.

    Return (n_next, n_leaves) as `_enter_children` does. The row is written in any case, and counts
    only if it enters: a branch would be mispredicted at every other child.
    """
    routing.next_node[place(n_next)] = node
    routing.next_row[place(n_next)] = row
    routing.next_tree[place(n_next)] = tree
    routing.leaf_node[place(n_leaves)] = node
    routing.leaf_row[place(n_leaves)] = row
    routing.leaf_tree[place(n_leaves)] = tree
    is_inner = int(ensemble.node_chunk[place(node)] >= 0)
    is_filled = int(ensemble.leaf_ptr[place(node + 1)] > ensemble.leaf_ptr[place(node)])
    return n_next + enters * is_inner, n_leaves + enters * is_filled


@inlined
def _next_level(
    ensemble: TreeEnsemble, n_next: int, n_rows: int, routing: RoutingWorkspace
) -> None:
    """Make the next level's entries of next_*, ordered by node, then by row.

    It is a counting sort over the chunks of the level, which are numbered in the order of their
    nodes. The nodes of a single row are in order already.
    """
    if n_rows == 1:
        for i in range(n_next):
            routing.entry_node[i] = routing.next_node[i]
            routing.entry_row[i] = routing.next_row[i]
            routing.entry_tree[i] = routing.next_tree[i]
        return
    ends = routing.chunk_ptr
    node_chunk = ensemble.node_chunk
    lowest = len(ends)
    highest = 0
    for i in range(n_next):
        chunk = node_chunk[routing.next_node[i]]
        lowest = min(lowest, chunk)
        highest = max(highest, chunk)
    ends[lowest : highest + 2] = 0
    for i in range(n_next):
        ends[node_chunk[routing.next_node[i]] + 1] += 1
    for chunk in range(lowest, highest + 1):
        ends[chunk + 1] += ends[chunk]
    for i in range(n_next):
        chunk = node_chunk[routing.next_node[i]]
        position = ends[chunk]
        ends[chunk] += 1
        routing.entry_node[position] = routing.next_node[i]
        routing.entry_row[position] = routing.next_row[i]
        routing.entry_tree[position] = routing.next_tree[i]


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
