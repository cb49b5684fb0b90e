"""Read a built ensemble back: the shapes of its trees, and its chunks as a trainer leaves them."""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store.compiled.bits import BLOCK_BITS, padded_width, split_word
from xylem_store.compiled.decorators import kernel
from xylem_store.compiled.handles import I32, I64, Bools
from xylem_store.ensemble import Chunk, TreeEnsemble

_BLOCK_FEATURES = 1 << BLOCK_BITS


class OldTree(NamedTuple):
    """The shape of a tree of an ensemble, its nodes numbered as in `Tree`.

    nodes  int64[n]  their numbers in the ensemble, ascending
    """

    child_ptr: NDArray[np.int32]
    node_label: NDArray[np.int32]
    nodes: NDArray[np.int64]


def trees_of(ensemble: TreeEnsemble) -> list[OldTree]:
    """Return the shapes of the trees of an ensemble."""
    tree_of = np.arange(len(ensemble.parent))
    while (parents := ensemble.parent[tree_of]).max() >= 0:
        tree_of = np.where(parents >= 0, parents, tree_of)
    counts = np.diff(ensemble.child_ptr)
    trees = []
    for tree in range(int(ensemble.child_ptr[0])):
        nodes = np.flatnonzero(tree_of == tree)
        child_ptr = 1 + np.concatenate([[0], np.cumsum(counts[nodes])])
        trees.append(OldTree(child_ptr.astype(np.int32), ensemble.node_label[nodes], nodes))
    return trees


def tree_digest(ensemble: TreeEnsemble) -> str:
    """Return 64 hexadecimal digits that identify the shape of the trees and the leaves' labels."""
    return hashlib.sha256(
        b"".join(
            np.ascontiguousarray(part).tobytes()
            for part in (ensemble.child_ptr, ensemble.node_label)
        )
    ).hexdigest()


def chunk_of(ensemble: TreeEnsemble, node: int) -> Chunk:
    """Return the scorers of an inner node's children in float32; weights of 0 are left out.

    Cost: a pass over the chunk.
    """
    first = int(ensemble.child_ptr[node])
    last = int(ensemble.child_ptr[node + 1])
    number = int(ensemble.node_chunk[node])
    blocks = ensemble.blocks[ensemble.block_ptr[number] : ensemble.block_ptr[number + 1]]
    group = np.flatnonzero(_bits(ensemble.directory[number, :, 0]))
    bits = np.flatnonzero(_bits(blocks[:, 0]))
    features = (group[bits >> BLOCK_BITS] * _BLOCK_FEATURES + bits % _BLOCK_FEATURES).astype(
        np.int32
    )
    is_dense = _bits(blocks[:, 1])[bits]
    width = padded_width(last - first)
    words = ensemble.sparse[ensemble.sparse_ptr[number] : ensemble.sparse_ptr[number + 1]]
    # bytes of half a word: the child's position is in the low half, its weight in the high one
    half = words.itemsize // 2
    dense = ensemble.dense[ensemble.dense_ptr[number] : ensemble.dense_ptr[number + 1]].reshape(
        -1, width
    )
    ends = ensemble.row_ptr[ensemble.row_start[number] : ensemble.row_start[number + 1]]
    row_ptr = np.zeros(len(features) + 1, np.int64)
    n_max = len(words) + (last - first) * len(dense)
    child = np.empty(n_max, np.int32)
    weights = np.empty(n_max, f"u{half}")
    n = _unpack(
        is_dense, words, ends, dense.view(weights.dtype), last - first, row_ptr, child, weights
    )
    weight = as_float(weights[:n].view(dense.dtype))
    child = child[:n]
    is_nonempty = np.diff(row_ptr) > 0
    if len(ensemble.node_scale):
        weight = weight * ensemble.node_scale[first:last][child]
    return Chunk(
        features[is_nonempty],
        np.append(row_ptr[:-1][is_nonempty], n),
        child,
        weight,
        ensemble.node_bias[first:last].copy(),
    )


@kernel
def _unpack(
    is_dense: Bools,
    words: NDArray[Any],
    ends: I32,
    dense: NDArray[Any],
    n_children: int,
    row_ptr_out: I64,
    child_out: I32,
    bits_out: NDArray[Any],
) -> int:
    """Write the bits of a chunk's weights that are not 0, row by row, and return their number.

    words  of the sparse rows, those of sparse row k from ends[k] on
    dense  bits, [dense rows, width]
    """
    n = 0
    n_sparse = 0
    n_dense = 0
    magnitude_mask = np.uint32(
        (1 << 8 * bits_out.itemsize - 1) - 1
    )  # all bits but the sign: -0.0 counts as 0
    for row in range(len(is_dense)):
        if is_dense[row]:
            for c in range(n_children):
                child_out[n] = c
                bits_out[n] = dense[n_dense, c]
                n += np.uint32(dense[n_dense, c]) & magnitude_mask != 0
            n_dense += 1
        else:
            for i in range(ends[n_sparse], ends[n_sparse + 1]):
                child_out[n], bits_out[n] = split_word(words[i], words.itemsize)
                n += bits_out[n] & magnitude_mask != 0
            n_sparse += 1
        row_ptr_out[row + 1] = n
    return n


def dense_weights(ensemble: TreeEnsemble, node: int, n_features: int) -> NDArray[np.float64]:
    """Return the weights of an inner node's children, float64[children, n_features].

    n_features  the chunk has a dense row for each of them, as in a softmax tree

    Cost: a pass over the chunk.
    """
    first, last = ensemble.child_ptr[node : node + 2].tolist()
    chunk = int(ensemble.node_chunk[node])
    begin, end = ensemble.dense_ptr[chunk : chunk + 2].tolist()
    rows = as_float(ensemble.dense[begin:end]).reshape(n_features, -1)[:, : last - first]
    weights: NDArray[np.float64] = rows.T.astype(np.float64)
    return weights * ensemble.node_scale[first:last, None] if len(ensemble.node_scale) else weights


def _bits(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return the bits of n words, bool[32 n], the lowest bit of each word first."""
    return np.unpackbits(np.ascontiguousarray(words, "<u4").view(np.uint8), bitorder="little").view(
        np.bool_
    )


def as_float(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Return stored weights as float32.

    stored  float32, uint16 (the upper halves of float32), or int8 (steps, which are not scaled
            here)
    """
    return (
        (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if stored.dtype == np.uint16
        else stored.astype(np.float32)
    )
