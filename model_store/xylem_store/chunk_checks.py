"""Checks of chunks: the invariants that kernels rely on, for arrays that may hold any bytes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem_store.compiled.bits import (
    BLOCK_BITS,
    count_below,
    has,
    padded_width,
    popcount,
    split_word,
)
from xylem_store.compiled.decorators import inlined, kernel
from xylem_store.ensemble import TreeEnsemble

CHUNK_WORDS_MAX = (1 << 31) - 1  # the most sparse words of a chunk: row_ptr is int32

Fault = tuple[int, int, int]


@kernel
def check_chunks(e: TreeEnsemble, n_features: int, first: int, last: int) -> Fault:
    """Check the chunks of nodes first .. last - 1, after all other checks of the ensemble.

    Return the first fault.

    e  its `dense` holds the bits of the weights, as unsigned integers
    """
    for n in range(first, last):
        c = e.node_chunk[n]
        if c < 0:
            continue
        n_children = int(e.child_ptr[n + 1]) - int(e.child_ptr[n])
        block = int(e.block_ptr[c])
        word = int(e.sparse_ptr[c])
        weight = int(e.dense_ptr[c])
        row = int(e.row_start[c])
        blocks = e.blocks[block : e.block_ptr[c + 1]]
        row_ptr = e.row_ptr[row : e.row_start[c + 1]]
        sparse = e.sparse[word : e.sparse_ptr[c + 1]]
        dense = e.dense[weight : e.dense_ptr[c + 1]]
        width = padded_width(n_children)
        if n_children > 1 << min(4 * sparse.itemsize, 31):
            return 15, n, n_children
        if len(sparse) > CHUNK_WORDS_MAX:
            return 16, c, len(sparse)
        if len(dense) % width != 0:
            return 17, c, len(dense)
        fault, index, value = _check_directory(e.directory[c], len(blocks), n_features)
        if fault != 0:
            return fault, c if fault == 20 else 2 * len(e.directory[c]) * c + index, value
        last_features = _last_features(e.directory[c], n_features)
        fault, index, value = _check_blocks(
            blocks, last_features, len(row_ptr) - 1, len(dense) // width
        )
        if fault != 0:
            return fault, c if fault > 25 else 4 * block + index, value
        fault, index, value = _check_rows(row_ptr, sparse, n_children)
        if fault != 0:
            return fault, (row if fault == 28 else word) + index, value
        fault, index, value = _check_dense(dense, n_children, width)
        if fault != 0:
            return fault, weight + index, value
    return 0, 0, 0


@inlined
def _last_features(directory: NDArray[np.uint32], n_features: int) -> np.uint32:
    """Return the set of features that a chunk's last block may have.

    These are all 32 features of the block, unless the block is the last one of the D features.
    """
    n_over = n_features & 31
    last = (n_features - 1) >> BLOCK_BITS
    if n_over == 0 or has(directory[last >> BLOCK_BITS, 0], np.uint32(last)) == 0:
        return np.uint32(0xFFFFFFFF)
    return np.uint32((1 << n_over) - 1)


@kernel
def _check_directory(directory: NDArray[np.uint32], n_blocks: int, n_features: int) -> Fault:
    """Check that a chunk's directory, of one entry or more, counts its blocks."""
    blocks = 0
    for group in range(len(directory)):
        if directory[group, 1] != blocks:
            return 18, 2 * group + 1, directory[group, 1]
        blocks += popcount(directory[group, 0])
    last = len(directory) - 1
    end = (n_features + 31) >> BLOCK_BITS
    if end & 31 and popcount(directory[last, 0]) != count_below(directory[last, 0], np.uint32(end)):
        return 19, 2 * last, directory[last, 0]
    if blocks != n_blocks:
        return 20, 0, n_blocks
    return 0, 0, 0


@kernel
def _check_blocks(
    blocks: NDArray[np.uint32], last_features: np.uint32, n_sparse: int, n_dense: int
) -> Fault:
    """Check that a chunk's blocks count its rows, so that no row found through them is outside."""
    sparse = 0
    dense = 0
    for b in range(len(blocks)):
        used = blocks[b, 0]
        is_dense = blocks[b, 1]
        if used == 0:
            return 21, 4 * b, used
        if b == len(blocks) - 1 and used & ~last_features != 0:
            return 22, 4 * b, used
        if is_dense & ~used != 0:
            return 23, 4 * b + 1, is_dense
        if blocks[b, 2] != sparse:
            return 24, 4 * b + 2, blocks[b, 2]
        if blocks[b, 3] != dense:
            return 25, 4 * b + 3, blocks[b, 3]
        sparse += popcount(np.uint32(used & ~is_dense))
        dense += popcount(is_dense)
    if sparse != n_sparse:
        return 26, 0, n_sparse
    if dense != n_dense:
        return 27, 0, n_dense
    return 0, 0, 0


@inlined
def _exponent(itemsize: int) -> int:
    """Return the bits of a weight that are all set in inf and NaN; 0 for int8, without either."""
    if itemsize == 4:
        return 0x7F800000
    return 0x7F80 if itemsize == 2 else 0


@kernel
def _check_rows(row_ptr: NDArray[np.int32], sparse: NDArray[Any], n_children: int) -> Fault:
    """Check that a chunk's sparse rows follow each other and hold children and finite weights."""
    last = len(row_ptr) - 1  # the number of sparse rows that `_check_blocks` found
    if row_ptr[0] != 0:
        return 28, 0, row_ptr[0]
    if row_ptr[last] != len(sparse):
        return 28, last, row_ptr[last]
    exponent = np.uint32(_exponent(sparse.itemsize // 2))
    for row in range(last):
        first = row_ptr[row]
        end = row_ptr[row + 1]
        if end < first or end > len(sparse):
            return 28, row + 1, end
        previous_child = -1
        for i in range(first, end):
            child, bits = split_word(sparse[i], sparse.itemsize)
            if child <= previous_child or child >= n_children:
                return 29, i, int(child)
            previous_child = int(child)
            if exponent != 0 and (bits & exponent) == exponent:
                return 30, i, int(bits)
    return 0, 0, 0


@kernel
def _check_dense(dense_bits: NDArray[Any], n_children: int, width: int) -> Fault:
    """Check that the dense rows of a chunk hold finite weights, and zeros in the padding."""
    exponent = np.uint32(_exponent(dense_bits.itemsize))
    for row in range(0, len(dense_bits), width):
        for i in range(row, row + n_children):
            if exponent != 0 and (dense_bits[i] & exponent) == exponent:
                return 31, i, dense_bits[i]
        for i in range(row + n_children, row + width):
            if dense_bits[i] != 0:
                return 32, i, dense_bits[i]
    return 0, 0, 0
