"""Routing: rows go down all decision trees of an ensemble to their leaves.

Source: ldsm.txt algorithm 5 (several children of a node may receive a row) and, for *argmax*, the trees of
FastXML and LOMtree. A block of rows goes down one tree after the other, level by level: the rows that enter a
node are scored there one after the other, so that each chunk is read once a block. A row alone goes down
all trees at once, so that there is always a next chunk to ask for. The margins are the scorer's, so a row's
answer has the same bits alone and in any block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import borrowing_inlined as inlined
from model_store.compiled.decorators import borrowing_kernel as kernel
from model_store.ensemble import LINK_CODES, TreeEnsemble
from model_store.rerank import Tail
from service.kernels.search.answers import charge, clear_cost
from service.kernels.search.ensemble_handle import borrow_ensemble
from service.kernels.search.feature_map import (
    end_of_run,
    end_of_turn,
    is_worth_mapping,
    map_features,
    score_mapped,
    unmap_features,
)
from service.kernels.search.query import Rows
from service.kernels.search.routing_leaves import Wanted, add_leaves, rank_labels
from service.kernels.search.routing_narrow import is_narrow, score_narrow
from service.kernels.search.routing_rerank import borrow_tail
from service.kernels.search.routing_workspace import RoutingWorkspace, borrow_routing
from service.kernels.search.scorer import score_in_turn, start_turns
from service.kernels.search.workspace import Workspace, borrow_workspace

_MULTIWAY = LINK_CODES["multiway"]
_ZERO = np.float32(0.0)
_NO_ROOM = -1


@kernel
def route_rows(
    lent_ensemble: NDArray[np.int64],
    sparse: NDArray[Any],
    dense: NDArray[Any],
    lent_tail: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    first: int,
    last: int,
    link: int,
    block_rows: int,
    top_r: int,
    log_threshold: NDArray[np.float32],
    allowed: NDArray[np.uint8],
    weight: NDArray[np.float32],
    is_sure: bool,
    lent_work: NDArray[np.int64],
    lent_routing: NDArray[np.int64],
    counts_out: NDArray[np.int64],
    labels_out: NDArray[np.int32],
    scores_out: NDArray[np.float32],
    costs_out: NDArray[np.int64],
) -> None:
    """Answer rows first .. last - 1 of compressed sparse rows.

    lent_ensemble  a TreeEnsemble of decision trees, lent; `sparse` and `dense` are empty samples of its
                   weights' dtypes
    lent_tail   a Tail, lent: its candidates are re-ranked; or NO_TAIL
    indices     int32, strictly ascending within a row; values float32, finite
    link        the routing rule, multiway or argmax, as in LINK_CODES
    block_rows  how many rows to send down together, in [1, the routing workspace's]
    top_r .. weight  as in routing_leaves.Wanted
    is_sure     whether a stopped row is to have no answer: else it has what the leaves reached until then say
    counts_out  int64[n]: how many labels row i has; labels_out int32[n, top_r], scores_out float32[n, top_r]:
                the labels of score > 0, the best first, of equal scores the smaller label first
    costs_out   as in answers.Answers
    A block that finds no room (rows that enter many children) is halved; one row always finds it.
    Cost: the chunks of the nodes entered, at least depth a tree, at worst all; the labels of the leaves
    reached; with a tail, the mean rows of those labels. The answer to a row does not depend on the others.
    """
    ensemble = borrow_ensemble(lent_ensemble, (sparse, dense))
    tail = borrow_tail(lent_tail, ())
    work = borrow_workspace(lent_work, ())
    routing = borrow_routing(lent_routing, ())
    rows = Rows(indptr, indices, values)
    wanted = Wanted(top_r, log_threshold, allowed, weight)
    n_rows = block_rows
    row = first
    while row < last and not work.stop[0]:
        end = min(last, row + n_rows)
        n_leaves = _go_down(ensemble, link, rows, row, end, routing, work, costs_out)
        if n_leaves == _NO_ROOM:
            n_rows = max(1, (end - row) >> 1)
            continue
        _sort_leaves(n_leaves, row, end - row, routing)
        for here in range(row, end):
            n_best = _rank(ensemble, tail, rows, here, here - row, wanted, routing)
            counts_out[here] = 0 if is_sure and work.stop[0] else n_best
            for i in range(n_best):
                labels_out[here, i] = routing.best_label[i]
                scores_out[here, i] = routing.best_score[i]
        row = end
    for here in range(row, last):
        counts_out[here] = 0
        clear_cost(costs_out, here, work)


@inlined
def _rank(
    ensemble: TreeEnsemble,
    tail: Tail,
    rows: Rows,
    row: int,
    place: int,
    wanted: Wanted,
    routing: RoutingWorkspace,
) -> int:
    """Leave the best labels of the block's place-th row, sorted, in best_*; return their number."""
    low, high = rows.indptr[row], rows.indptr[row + 1]
    n_seen = add_leaves(ensemble, routing, routing.row_ptr[place], routing.row_ptr[place + 1])
    return rank_labels(
        ensemble.child_ptr[0], n_seen, rows.indices[low:high], rows.values[low:high], tail, wanted, routing
    )


@kernel
def reach_leaves(
    lent_ensemble: NDArray[np.int64],
    sparse: NDArray[Any],
    dense: NDArray[Any],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    row: int,
    link: int,
    lent_work: NDArray[np.int64],
    lent_routing: NDArray[np.int64],
    costs_out: NDArray[np.int64],
) -> int:
    """Leave the leaves that one row reaches, but for empty ones, in leaf_node and leaf_tree; return how many.

    By ascending leaf. Parameters as in `route_rows`.
    """
    ensemble = borrow_ensemble(lent_ensemble, (sparse, dense))
    work = borrow_workspace(lent_work, ())
    routing = borrow_routing(lent_routing, ())
    rows = Rows(indptr, indices, values)
    return _go_down(ensemble, link, rows, row, row + 1, routing, work, costs_out)


@inlined
def _go_down(
    ensemble: TreeEnsemble,
    link: int,
    rows: Rows,
    first: int,
    last: int,
    routing: RoutingWorkspace,
    work: Workspace,
    costs_out: NDArray[np.int64],
) -> int:
    """Send rows first .. last - 1 down all trees; return the number of leaves in leaf_*, or _NO_ROOM.

    The leaves of a row and tree come by ascending id: nodes are numbered level by level, and entered so.
    """
    for row in range(first, last):
        clear_cost(costs_out, row, work)
    n_trees = ensemble.child_ptr[0]
    step = n_trees if last - first == 1 else 1
    n_leaves = 0
    for tree in range(0, n_trees, step):
        n_leaves = _go_down_trees(
            ensemble, link, rows, first, last, tree, tree + step, n_leaves, routing, work, costs_out
        )
        if n_leaves == _NO_ROOM:
            break
    return n_leaves


@inlined
def _go_down_trees(
    ensemble: TreeEnsemble,
    link: int,
    rows: Rows,
    first: int,
    last: int,
    first_tree: int,
    last_tree: int,
    n_leaves: int,
    routing: RoutingWorkspace,
    work: Workspace,
    costs_out: NDArray[np.int64],
) -> int:
    """Send rows first .. last - 1 down some trees; return the number of leaves in leaf_*, or _NO_ROOM."""
    if n_leaves + (last - first) * (last_tree - first_tree) > len(routing.leaf_node):
        return _NO_ROOM
    n_entries, n_leaves = _enter_roots(ensemble, first, last, first_tree, last_tree, n_leaves, routing)
    while n_entries > 0 and not work.stop[0]:
        n_next, n_leaves = _score_level(ensemble, link, rows, n_entries, n_leaves, routing, work, costs_out)
        if n_next == _NO_ROOM:
            return _NO_ROOM
        _next_level(ensemble, n_next, last - first, routing)
        n_entries = n_next
    return n_leaves


@inlined
def _score_level(
    ensemble: TreeEnsemble,
    link: int,
    rows: Rows,
    n_entries: int,
    n_leaves: int,
    routing: RoutingWorkspace,
    work: Workspace,
    costs_out: NDArray[np.int64],
) -> tuple[int, int]:
    """Score the entries of a level and have their rows enter children; return (n_next or _NO_ROOM, n_leaves).

    Entries of one node follow each other. A chunk that enough of them need is spread over the feature map;
    those between two such chunks go through the scorer in turn.
    """
    first_row = routing.entry_row[0]
    row_features = rows.indptr[first_row + 1] - rows.indptr[first_row]
    n_next = 0
    k = 0
    while k < n_entries and not work.stop[0]:
        node, end = routing.entry_node[k], end_of_run(routing.entry_node, k, n_entries)
        is_mapped = is_worth_mapping(ensemble, node, (end - k) * row_features, work)
        is_in_one_pass = is_mapped and is_narrow(ensemble, node)
        if is_mapped:
            map_features(ensemble, node, work.feature_row)
        else:
            end = end_of_turn(ensemble, routing.entry_node, end, n_entries, row_features, work)
            start_turns(work, k)
        while k < end and not work.stop[0]:
            if not _is_room(ensemble, k, n_next, n_leaves, routing):
                n_next = _NO_ROOM
                break
            if is_in_one_pass:
                score_narrow(ensemble, node, routing.entry_row[k], rows, work)
            elif is_mapped:
                score_mapped(ensemble, node, routing.entry_row[k], rows, work)
            else:
                score_in_turn(ensemble, routing.entry_node, routing.entry_row, k, end, rows, work)
            charge(costs_out, routing.entry_row[k], work)
            n_next, n_leaves = _enter_children(ensemble, link, k, n_next, n_leaves, routing, work)
            k += 1
        if is_mapped:
            unmap_features(ensemble, node, work.feature_row)
        if n_next == _NO_ROOM:
            break
    return n_next, n_leaves


@inlined
def _is_room(ensemble: TreeEnsemble, k: int, n_next: int, n_leaves: int, routing: RoutingWorkspace) -> bool:
    """Return whether there is room for all children of the k-th entry's node."""
    node = routing.entry_node[k]
    n_children = ensemble.child_ptr[node + 1] - ensemble.child_ptr[node]
    has_entries = n_next + n_children <= len(routing.next_node)
    return bool(has_entries and n_leaves + n_children <= len(routing.leaf_node))


@inlined
def _enter_roots(
    ensemble: TreeEnsemble,
    first: int,
    last: int,
    first_tree: int,
    last_tree: int,
    n_leaves: int,
    routing: RoutingWorkspace,
) -> tuple[int, int]:
    """Have rows enter roots; return (inner nodes entered, leaves reached). A root may be a leaf."""
    n_entries = 0
    for tree in range(first_tree, last_tree):
        for row in range(first, last):
            if ensemble.node_chunk[tree] >= 0:
                routing.entry_node[n_entries] = tree
                routing.entry_row[n_entries] = row
                routing.entry_tree[n_entries] = tree
                n_entries += 1
            elif ensemble.leaf_ptr[tree + 1] > ensemble.leaf_ptr[tree]:
                routing.leaf_node[n_leaves] = tree
                routing.leaf_row[n_leaves] = row
                routing.leaf_tree[n_leaves] = tree
                n_leaves += 1
    return n_entries, n_leaves


@inlined
def _enter_children(
    ensemble: TreeEnsemble,
    link: int,
    k: int,
    n_next: int,
    n_leaves: int,
    routing: RoutingWorkspace,
    work: Workspace,
) -> tuple[int, int]:
    """Have the k-th entry's row enter children of its node by their margins; return (n_next, n_leaves)."""
    margins = work.margins
    node = routing.entry_node[k]
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    best = 0
    for j in range(1, n_children):
        if margins[j] > margins[best] or np.isnan(margins[best]):
            best = j
    if link != _MULTIWAY or not margins[best] > _ZERO:
        return _enter(ensemble, child + best, k, n_next, n_leaves, routing)
    for j in range(n_children):
        if margins[j] > _ZERO:
            n_next, n_leaves = _enter(ensemble, child + j, k, n_next, n_leaves, routing)
    return n_next, n_leaves


@inlined
def _enter(
    ensemble: TreeEnsemble, node: int, k: int, n_next: int, n_leaves: int, routing: RoutingWorkspace
) -> tuple[int, int]:
    """Have the k-th entry's row enter a node; return (n_next, n_leaves)."""
    if ensemble.node_chunk[node] >= 0:
        routing.next_node[n_next] = node
        routing.next_row[n_next] = routing.entry_row[k]
        routing.next_tree[n_next] = routing.entry_tree[k]
        return n_next + 1, n_leaves
    if ensemble.leaf_ptr[node + 1] > ensemble.leaf_ptr[node]:
        routing.leaf_node[n_leaves] = node
        routing.leaf_row[n_leaves] = routing.entry_row[k]
        routing.leaf_tree[n_leaves] = routing.entry_tree[k]
        return n_next, n_leaves + 1
    return n_next, n_leaves


@inlined
def _next_level(ensemble: TreeEnsemble, n_next: int, n_rows: int, routing: RoutingWorkspace) -> None:
    """Make the entries of the next level of next_*: by node, of a node by row.

    A counting sort over the chunks of the level, for chunks are numbered as their nodes are. The nodes of one
    row are in order already.
    """
    if n_rows == 1:
        for i in range(n_next):
            routing.entry_node[i] = routing.next_node[i]
            routing.entry_row[i] = routing.next_row[i]
            routing.entry_tree[i] = routing.next_tree[i]
        return
    ends, node_chunk = routing.chunk_ptr, ensemble.node_chunk
    lowest, highest = len(ends), 0
    for i in range(n_next):
        chunk = node_chunk[routing.next_node[i]]
        lowest = min(lowest, chunk)
        highest = max(highest, chunk)
    for chunk in range(lowest, highest + 2):
        ends[chunk] = 0
    for i in range(n_next):
        ends[node_chunk[routing.next_node[i]] + 1] += 1
    for chunk in range(lowest, highest + 1):
        ends[chunk + 1] += ends[chunk]
    for i in range(n_next):
        chunk = node_chunk[routing.next_node[i]]
        at = ends[chunk]
        ends[chunk] += 1
        routing.entry_node[at] = routing.next_node[i]
        routing.entry_row[at] = routing.next_row[i]
        routing.entry_tree[at] = routing.next_tree[i]


@inlined
def _sort_leaves(n_leaves: int, first: int, n_rows: int, routing: RoutingWorkspace) -> None:
    """Fill leaf_order and row_ptr: by row, of a row by tree, of a tree by leaf.

    A counting sort: of a row alone by tree, of several by row, for these come tree by tree.
    """
    if n_rows == 1:
        _count_and_place(n_leaves, routing.leaf_tree, 0, len(routing.tree_leaves), routing.tree_ptr, routing)
        routing.row_ptr[0] = 0
        routing.row_ptr[1] = n_leaves
    else:
        _count_and_place(n_leaves, routing.leaf_row, first, n_rows, routing.row_ptr, routing)


@inlined
def _count_and_place(
    n_leaves: int,
    keys: NDArray[np.int32],
    least: int,
    n_keys: int,
    ends: NDArray[np.int32],
    routing: RoutingWorkspace,
) -> None:
    """Fill leaf_order by key, leaves of one key in their order, and `ends` with where each key begins."""
    for i in range(n_keys + 1):
        ends[i] = 0
    for i in range(n_leaves):
        ends[keys[i] - least + 1] += 1
    for i in range(n_keys):
        ends[i + 1] += ends[i]
    for i in range(n_leaves - 1, -1, -1):
        key = keys[i] - least
        ends[key + 1] -= 1
        routing.leaf_order[ends[key + 1]] = i
    for i in range(n_keys):
        ends[i] = ends[i + 1]
    ends[n_keys] = n_leaves
