"""The scorer computes the margins of a chunk's children for one row. All traversals call it, by way
of `scoring`, and nothing else reads weights.

It has four steps. Each prefetches the cache lines that the next step reads, so that several chunks
can be fetched at the same time: `find_blocks` counts bits in the chunk's directory, `find_rows`
counts bits in the blocks found, `find_words` looks up where the sparse rows lie, and
`score_children` adds up the rows. None of the first three has a branch that depends on the data. A
chunk that many rows of a batch need is spread over a map from features to rows instead
(`feature_map`), which replaces the first two steps. The additions have a fixed order (sparse rows,
then dense rows, each by ascending feature, then the bias), so that a margin has the same bits in
every traversal.

The last features of a model may have a dense row in every chunk: the *tail*, as the vectors of
texts have, or rows that are all dense. A row that has all of them needs no look-ups for them: their
weights are the last dense rows of the chunk, one after the other. They are added last, which is
where they would be added anyway, so that the bits are the same.

Chunks of few children are scored in one pass: see `narrow_chunks`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.engine.kernels.search.call import Rows
from xylem.engine.kernels.search.tail import add_tails, n_before_tail, note_tail
from xylem.engine.kernels.search.workspace import STAGES, Entries, Workspace
from xylem_store import (
    BLOCK_BITS,
    F32,
    GROUP_BITS,
    I32,
    LANES,
    TreeEnsemble,
    count_below,
    has,
    nonallocating_inlined as inlined,
    padded_width,
    prefetch,
    split_word,
    vadd,
    vbroadcast,
    vload,
    vmul,
    vstore,
)

_16 = np.uint32(16)


@inlined
def number_of(bits: np.uint32, n_bytes: int) -> np.float32:
    """Return the number that has these bits: a float32, bfloat16 or int8, of 4, 2 or 1 bytes."""
    if n_bytes == 4:
        return np.float32(np.uint32(bits).view(np.float32))
    if n_bytes == 2:
        return np.float32(np.uint32(bits << _16).view(np.float32))
    return np.float32(np.int8(bits))


_LINE = 64
_TAIL_AHEAD = 256  # how many weights of the tail are fetched before they are added
_BLOCK_BITS = np.uint32(BLOCK_BITS)
_GROUP_BITS = np.uint32(GROUP_BITS)


class ScorerParts(NamedTuple):
    """The structs and arrays that the scorer reads and writes.

    sparse, dense   the ensemble's arrays with their types, which the ensemble's own fields lack
                    here
    """

    ensemble: TreeEnsemble
    sparse: NDArray[Any]
    dense: NDArray[Any]
    rows: Rows
    entries: Entries
    work: Workspace


@inlined
def find_blocks(
    ensemble: TreeEnsemble, node: int, indices: I32, work: Workspace, stage: int
) -> None:
    """Find the blocks of a row's features in the chunk of an inner node, but for the tail."""
    chunk = ensemble.node_chunk[node]
    directory = ensemble.directory[chunk]
    block_at = work.block_at[stage]
    block_item = work.block_item[stage]
    first = ensemble.block_ptr[chunk]
    n_found = np.int64(0)
    for i in range(n_before_tail(indices, work)):
        block = np.uint32(indices[i]) >> _BLOCK_BITS
        group = np.uint32(indices[i]) >> _GROUP_BITS
        blocks = directory[group, 0]
        index = first + directory[group, 1] + count_below(blocks, block)
        block_at[place(n_found)] = index
        block_item[place(n_found)] = i
        n_found += has(blocks, block)
        prefetch(ensemble.blocks, 4 * index)
    work.counts[stage, 0] = n_found


@inlined
def find_rows(parts: ScorerParts, node: int, low: int, high: int, stage: int) -> None:
    """Find the dense rows, and the numbers of the sparse rows, of elements low .. high - 1.

    It reads the blocks that `find_blocks` has found.
    """
    ensemble, _, dense, rows, _, work = parts
    indices = rows.indices[low:high]
    values = rows.values[low:high]
    note_tail(work, stage, low, n_before_tail(indices, work), high)
    if work.counts[stage, 4] > 0:
        # the processor fetches what follows; to ask for all of it takes as long as to add it
        for ahead in range(0, _TAIL_AHEAD, _LINE // dense.itemsize):
            prefetch(dense, _tail_rows(ensemble, node, work, stage) + ahead)
    chunk = ensemble.node_chunk[node]
    width = children_width(ensemble, node)
    first_dense = ensemble.dense_ptr[chunk]
    first_sparse = ensemble.row_start[chunk]
    block_at = work.block_at[stage]
    block_item = work.block_item[stage]
    dense_at = work.dense_at[stage]
    dense_value = work.dense_value[stage]
    sparse_at = work.sparse_at[stage]
    sparse_value = work.sparse_value[stage]
    n_sparse = np.int64(0)
    n_dense = np.int64(0)
    for block_hit in range(work.counts[stage, 0]):
        index = place(block_at[block_hit])
        place_in_row = place(block_item[block_hit])
        feature = np.uint32(indices[place_in_row])
        value = values[place_in_row]
        all_rows = ensemble.blocks[index, 0]
        dense_rows = ensemble.blocks[index, 1]
        is_row = has(all_rows, feature)
        is_dense = has(dense_rows, feature)
        n_dense_below = count_below(dense_rows, feature)
        n_below = count_below(all_rows, feature)
        dense_at[place(n_dense)] = (
            first_dense + (np.int64(ensemble.blocks[index, 3]) + n_dense_below) * width
        )
        dense_value[place(n_dense)] = value
        n_dense += is_dense
        sparse_at[place(n_sparse)] = (
            first_sparse + ensemble.blocks[index, 2] + n_below - n_dense_below
        )
        sparse_value[place(n_sparse)] = value
        n_sparse += is_row - is_dense
    line = _LINE // dense.itemsize
    for hit in range(n_dense):
        for ahead in range(0, width, line):
            prefetch(dense, dense_at[hit] + ahead)
    for hit in range(n_sparse):
        prefetch(ensemble.row_ptr, sparse_at[hit])
    work.counts[stage, 1] = n_dense
    work.counts[stage, 2] = n_sparse


@inlined
def _tail_rows(ensemble: TreeEnsemble, node: int, work: Workspace, stage: int) -> np.int64:
    """Return where the dense rows of a row's tail begin: they are the last ones of a chunk."""
    end = ensemble.dense_ptr[ensemble.node_chunk[node] + 1]
    return np.int64(end - work.counts[stage, 4] * children_width(ensemble, node))


@inlined
def find_words(
    ensemble: TreeEnsemble, sparse: NDArray[Any], node: int, work: Workspace, stage: int
) -> None:
    """Find the words of the sparse rows that `find_rows` has found."""
    first = ensemble.sparse_ptr[ensemble.node_chunk[node]]
    sparse_at = work.sparse_at[stage]
    sparse_count = work.sparse_count[stage]
    for hit in range(work.counts[stage, 2]):
        index = place(sparse_at[hit])
        begin = ensemble.row_ptr[index]
        end = ensemble.row_ptr[index + place(1)]
        sparse_at[hit] = first + begin
        sparse_count[hit] = end - begin
        prefetch(sparse, first + begin)
        prefetch(sparse, first + end - 1)


@inlined
def score_children(parts: ScorerParts, node: int, stage: int, slot: int) -> None:
    """Compute the margins of a node's children from the rows found, into margins[slot].

    They are padded with zeros.
    """
    n_bytes = add_rows(parts, node, stage, slot)
    finish_margins(parts.ensemble, node, n_bytes, parts.work, slot)


@inlined
def add_rows(parts: ScorerParts, node: int, stage: int, slot: int) -> np.int64:
    """Add up the rows found, into margins[slot]; return the bytes of their weights.

    The sums are padded with zeros.
    """
    n_bytes = add_looked_up(parts, node, stage, slot)
    return n_bytes + add_tail_rows(parts, node, (stage, stage), (slot, slot))


@inlined
def add_looked_up(parts: ScorerParts, node: int, stage: int, slot: int) -> np.int64:
    """Do as `add_rows`, without the tail."""
    ensemble, sparse, dense, _, _, work = parts
    width = children_width(ensemble, node)
    margins = work.margins[slot]
    for j in range(max(int(width), LANES)):
        margins[j] = np.float32(0.0)
    n_words = _add_sparse_rows(sparse, work, stage, margins)
    n_dense = work.counts[stage, 1]
    if n_dense > 0:
        _add_dense_rows(dense, width, work, stage, margins)
        for j in range(int(width), LANES):  # vectors also read the rows after a narrow row
            margins[j] = np.float32(0.0)
    return np.int64(n_words * sparse.itemsize + n_dense * width * dense.itemsize)


@inlined
def add_tail_rows(
    parts: ScorerParts, node: int, stages: tuple[int, int], slots: tuple[int, int]
) -> np.int64:
    """Add the tails of two rows, which are of one length, into their margins, or of one row.

    stages, slots  of the two rows, or twice of the same one

    Returns the bytes of the weights of one row.
    """
    ensemble, _, dense, rows, _, work = parts
    n_tail = work.counts[stages[0], 4]
    if n_tail == 0:
        return np.int64(0)
    width = children_width(ensemble, node)
    starts = (work.counts[stages[0], 3], work.counts[stages[1], 3])
    add_tails(
        dense,
        _tail_rows(ensemble, node, work, stages[0]),
        width,
        (rows.values[starts[0] : starts[0] + n_tail], rows.values[starts[1] : starts[1] + n_tail]),
        (work.margins[slots[0]], work.margins[slots[1]]),
        slots[0] != slots[1],
    )
    for slot in slots:
        for j in range(int(width), LANES):
            work.margins[slot, j] = np.float32(0.0)
    return np.int64(n_tail * width * dense.itemsize)


@inlined
def finish_margins(
    ensemble: TreeEnsemble, node: int, n_bytes: np.int64, work: Workspace, slot: int
) -> None:
    """Scale the sums of a node's children and add their biases, in margins[slot].

    Count the node, and n_bytes bytes of weights, as costs.
    """
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    margins = work.margins[slot]
    scale_sums(ensemble, node, work, slot)
    for j in range(n_children):
        margins[j] += ensemble.node_bias[place(child + j)]
    work.cost[slot, 0] += 1
    work.cost[slot, 1] += n_bytes + n_children * ensemble.node_bias.itemsize


@inlined
def scale_sums(ensemble: TreeEnsemble, node: int, work: Workspace, slot: int) -> None:
    """Scale the sums of a node's children, if the ensemble has scales for its weights."""
    if len(ensemble.node_scale) > 0:
        child = ensemble.child_ptr[node]
        for j in range(ensemble.child_ptr[node + 1] - child):
            work.margins[slot, j] *= ensemble.node_scale[place(child + j)]


@inlined
def _add_sparse_rows(sparse: NDArray[Any], work: Workspace, stage: int, margins: F32) -> np.int64:
    """Add the sparse rows found to `margins`; return the number of their words."""
    sparse_at = work.sparse_at[stage]
    sparse_value = work.sparse_value[stage]
    n_words = np.int64(0)
    for hit in range(work.counts[stage, 2]):
        value = sparse_value[hit]
        first_word = sparse_at[hit]
        n_words += work.sparse_count[stage, hit]
        for i in range(work.sparse_count[stage, hit]):
            child, bits = split_word(sparse[place(first_word + i)], sparse.itemsize)
            margins[child] += value * number_of(bits, sparse.itemsize // 2)
    return n_words


@inlined
def _add_dense_rows(
    dense: NDArray[Any], width: np.int64, work: Workspace, stage: int, margins: F32
) -> None:
    """Add the dense rows found to `margins`, four vectors of children at a time where possible.

    With a single vector, every addition would wait for the one before it.
    """
    dense_at = work.dense_at[stage]
    dense_value = work.dense_value[stage]
    n_dense = work.counts[stage, 1]
    tile = 0
    while tile + 4 * LANES <= width:
        first = vload(margins, tile)
        second = vload(margins, tile + LANES)
        third = vload(margins, tile + 2 * LANES)
        fourth = vload(margins, tile + 3 * LANES)
        for hit in range(n_dense):
            position = dense_at[hit] + tile
            value = vbroadcast(dense_value[hit])
            first = vadd(first, vmul(value, vload(dense, position)))
            second = vadd(second, vmul(value, vload(dense, position + LANES)))
            third = vadd(third, vmul(value, vload(dense, position + 2 * LANES)))
            fourth = vadd(fourth, vmul(value, vload(dense, position + 3 * LANES)))
        vstore(margins, tile, first)
        vstore(margins, tile + LANES, second)
        vstore(margins, tile + 2 * LANES, third)
        vstore(margins, tile + 3 * LANES, fourth)
        tile += 4 * LANES
    for tail in range(tile, width, LANES):
        total = vload(margins, tail)
        for hit in range(n_dense):
            weights = vload(dense, dense_at[hit] + tail)
            total = vadd(total, vmul(vbroadcast(dense_value[hit]), weights))
        vstore(margins, tail, total)


@inlined
def place(index: int | np.integer[Any]) -> np.uint64:
    """Return an index as an unsigned integer.

    For signed indices numba adds code to every access, which adds the length to negative ones.
    """
    return np.uint64(index)


@inlined
def score_next(parts: ScorerParts, k: int, n_entries: int, slot: int) -> None:
    """Score the k-th entry as `scoring.IN_TURN` says, into margins[slot].

    The first three steps are done for the entries after it: for k + 3, k + 2 and k + 1.
    """
    ensemble, sparse, _, rows, entries, work = parts
    turns = work.turns
    while turns[0] < min(n_entries, k + 4):
        low, high = _row_bounds(entries, turns[0], rows)
        find_blocks(
            ensemble, entries.node[turns[0]], rows.indices[low:high], work, turns[0] % STAGES
        )
        turns[0] += 1
    while turns[1] < min(n_entries, k + 3):
        low, high = _row_bounds(entries, turns[1], rows)
        node = entries.node[turns[1]]
        stage = turns[1] % STAGES
        find_rows(parts, node, low, high, stage)
        turns[1] += 1
    while turns[2] < min(n_entries, k + 2):
        find_words(ensemble, sparse, entries.node[turns[2]], work, turns[2] % STAGES)
        turns[2] += 1
    score_children(parts, entries.node[k], k % STAGES, slot)


@inlined
def _row_bounds(entries: Entries, k: int, rows: Rows) -> tuple[int, int]:
    """Return where the row of the k-th entry begins and ends."""
    row = entries.row[k if len(entries.row) > 1 else 0]
    return rows.indptr[row], rows.indptr[row + 1]


@inlined
def find_all(parts: ScorerParts, node: int, low: int, high: int) -> None:
    """Find the rows and words in a node's chunk for elements low .. high - 1 of `rows`.

    The three steps are done at once, for this chunk only.
    """
    ensemble, sparse, _, rows, _, work = parts
    find_blocks(ensemble, node, rows.indices[low:high], work, 0)
    find_rows(parts, node, low, high, 0)
    find_words(ensemble, sparse, node, work, 0)


@inlined
def children_width(ensemble: TreeEnsemble, node: int) -> np.int64:
    """Return the width of a dense row of a node's chunk: the number of children, padded."""
    return np.int64(padded_width(ensemble.child_ptr[node + 1] - ensemble.child_ptr[node]))
