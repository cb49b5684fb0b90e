"""Beam search for many rows at once, chunk by chunk: each chunk that any row needs is read once a level.

The answers are those of `beam`, bit for bit: the same scorer adds the same numbers in the same order, and the
heaps keep the same entries whatever the order in which they are offered. For one tree; rows are taken in
blocks, so that memory does not grow with them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import LANES, TreeEnsemble
from model_store.jit import borrowing_inlined as inlined
from model_store.jit import borrowing_kernel as kernel
from service.kernels.beam import cut_of
from service.kernels.forest import borrow_ensemble
from service.kernels.heaps import keep_best, sort_best
from service.kernels.lending import Kinds, borrower
from service.kernels.links import log_link
from service.kernels.scorer import score_in_turn, start_turns
from service.kernels.simd import lowest_lane, vbroadcast, vgreater, vload
from service.kernels.workspace import Workspace, borrow_workspace


class BlockWorkspace(NamedTuple):
    """The buffers for a block of n rows, beam width B, top_r R, C chunks.

    entry_node/row/score    int32/int32/float32[n * B]  the (node, row) pairs of a level, by node
    next_score/node         float32/int32[n, B]         each row's heap of inner nodes of the next level
    next_size               int32[n]
    best_score/label        float32/int32[n, R]         each row's heap of labels: the answer
    best_size               int32[n]
    chunk_ptr               int32[C + 1]                where the pairs of a chunk go
    """

    entry_node: NDArray[np.int32]
    entry_row: NDArray[np.int32]
    entry_score: NDArray[np.float32]
    next_score: NDArray[np.float32]
    next_node: NDArray[np.int32]
    next_size: NDArray[np.int32]
    best_score: NDArray[np.float32]
    best_label: NDArray[np.int32]
    best_size: NDArray[np.int32]
    chunk_ptr: NDArray[np.int32]


BLOCK_KINDS: Kinds = {
    "entry_node": (np.int32, 1),
    "entry_row": (np.int32, 1),
    "entry_score": (np.float32, 1),
    "next_score": (np.float32, 2),
    "next_node": (np.int32, 2),
    "next_size": (np.int32, 1),
    "best_score": (np.float32, 2),
    "best_label": (np.int32, 2),
    "best_size": (np.int32, 1),
    "chunk_ptr": (np.int32, 1),
}

borrow_block = borrower(BlockWorkspace, BLOCK_KINDS)


def make_block(ensemble: TreeEnsemble, *, n_rows: int, beam_width: int, top_r: int) -> BlockWorkspace:
    """Allocate the buffers for blocks of up to n_rows rows."""
    return BlockWorkspace(
        entry_node=np.empty(n_rows * beam_width, np.int32),
        entry_row=np.empty(n_rows * beam_width, np.int32),
        entry_score=np.empty(n_rows * beam_width, np.float32),
        next_score=np.empty((n_rows, beam_width), np.float32),
        next_node=np.empty((n_rows, beam_width), np.int32),
        next_size=np.zeros(n_rows, np.int32),
        best_score=np.empty((n_rows, top_r), np.float32),
        best_label=np.empty((n_rows, top_r), np.int32),
        best_size=np.zeros(n_rows, np.int32),
        chunk_ptr=np.zeros(len(ensemble.directory) + 1, np.int32),
    )


@kernel
def beam_block(
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
    lent_block: NDArray[np.int64],
    counts_out: NDArray[np.int64],
    labels_out: NDArray[np.int32],
    scores_out: NDArray[np.float32],
) -> None:
    """Answer rows first .. last - 1, no more than the block has room for, of a model of one tree.

    Parameters and outputs as in `beam.beam_rows`; beam_width and top_r are those of the block.
    """
    ensemble = borrow_ensemble(lent_ensemble, (sparse, dense))
    work = borrow_workspace(lent_work, ())
    block = borrow_block(lent_block, ())
    n_rows = last - first
    n_entries = n_rows
    for i in range(n_rows):
        block.best_size[i] = 0
        block.next_size[i] = 0
        block.entry_node[i] = 0
        block.entry_row[i] = first + i
        block.entry_score[i] = np.float32(0.0)
    while n_entries > 0 and not work.stop[0]:
        start_turns(work)
        for k in range(n_entries):
            if work.stop[0]:
                break
            score_in_turn(
                ensemble, block.entry_node, block.entry_row, k, n_entries, indptr, indices, values, work
            )
            _offer_children(ensemble, link, block, k, first, beam_width, top_r, node_mask, work)
        n_entries = _next_level(ensemble, block, first, n_rows)
    for i in range(n_rows):
        n_best = block.best_size[i]
        sort_best(block.best_score[i], block.best_label[i], n_best)
        counts_out[first + i] = n_best
        for j in range(n_best):
            labels_out[first + i, j] = block.best_label[i, j]
            scores_out[first + i, j] = np.exp(block.best_score[i, j])


@inlined
def _offer_children(
    ensemble: TreeEnsemble,
    link: int,
    block: BlockWorkspace,
    k: int,
    first: int,
    beam_width: int,
    top_r: int,
    node_mask: NDArray[np.uint8],
    work: Workspace,
) -> None:
    """Offer the children of the k-th pair, whose margins are known, to its row's heaps."""
    node, score, row = block.entry_node[k], block.entry_score[k], block.entry_row[k] - first
    next_score, next_node, n_next = block.next_score[row], block.next_node[row], block.next_size[row]
    best_score, best_label, n_best = block.best_score[row], block.best_label[row], block.best_size[row]
    next_floor = next_score[0] if n_next == beam_width else np.float32(-np.inf)
    best_floor = best_score[0] if n_best == top_r else np.float32(-np.inf)
    cut = vbroadcast(cut_of(ensemble, link, node, score, next_floor, best_floor, work))
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    for tile in range(0, n_children, LANES):
        lanes = vgreater(vload(work.margins, tile), cut)
        while lanes != 0:
            position = tile + lowest_lane(lanes)
            lanes &= lanes - 1
            here = child + position
            if position >= n_children or (len(node_mask) > 0 and node_mask[here] == 0):
                continue
            log_score = score + log_link(link, work.margins[position])
            if ensemble.node_chunk[here] >= 0:
                n_next = keep_best(next_score, next_node, n_next, beam_width, log_score, here)
            else:
                label = ensemble.node_label[here]
                n_best = keep_best(best_score, best_label, n_best, top_r, log_score, label)
    block.next_size[row] = n_next
    block.best_size[row] = n_best


@inlined
def _next_level(ensemble: TreeEnsemble, block: BlockWorkspace, first: int, n_rows: int) -> int:
    """Turn the rows' heaps of inner nodes into the pairs of the next level, by chunk; return their number.

    A counting sort: chunks are numbered as their nodes are, and of one chunk the rows ascend.
    """
    ends = block.chunk_ptr
    for chunk in range(len(ends)):
        ends[chunk] = 0
    for row in range(n_rows):
        for i in range(block.next_size[row]):
            ends[ensemble.node_chunk[block.next_node[row, i]] + 1] += 1
    for chunk in range(1, len(ends)):
        ends[chunk] += ends[chunk - 1]
    n_entries = int(ends[len(ends) - 1])
    for row in range(n_rows):
        for i in range(block.next_size[row]):
            node = block.next_node[row, i]
            at = ends[ensemble.node_chunk[node]]
            ends[ensemble.node_chunk[node]] += 1
            block.entry_node[at] = node
            block.entry_row[at] = first + row
            block.entry_score[at] = block.next_score[row, i]
        block.next_size[row] = 0
    return n_entries
