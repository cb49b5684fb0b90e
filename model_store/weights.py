"""The types in which weights are stored: from float32, in which every ensemble is built, to fewer bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.bits import padded_width
from model_store.compiled.decorators import kernel
from model_store.ensemble import TreeEnsemble, Weights

CHILDREN_MAX: dict[Weights, int] = {"float32": (1 << 31) - 2, "bfloat16": 1 << 16, "int8": 1 << 8}
"""A sparse word has so many positions of children."""

INT8_MOST = 127
"""int8 weights go from -127 to 127: a child's largest weight is stored as one of these."""

_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)


def store_weights(ensemble: TreeEnsemble, weights: Weights) -> TreeEnsemble:
    """Return a float32 ensemble with its weights rounded to fewer bits; everything else is shared.

    bfloat16: to nearest, ties to even. int8: to the nearest multiple of the 127th part of the child's
    largest weight. Raises ValueError when a node has more children than a word can tell apart. Cost: a few
    passes over the weights. Deterministic.
    """
    if weights not in CHILDREN_MAX:
        raise ValueError(f"expected weights of {', '.join(CHILDREN_MAX)}, found {weights!r}")
    n_children, most = np.diff(ensemble.child_ptr), CHILDREN_MAX[weights]
    node = int(n_children.argmax())
    if n_children[node] > most:
        raise ValueError(
            f"node {node}: expected at most {most} children for {weights}, found {n_children[node]}"
        )
    if weights == "float32":
        return ensemble
    children = ensemble.sparse & _LOW
    sparse = (ensemble.sparse >> _HIGH).astype(np.uint32).view(np.float32)
    if weights == "bfloat16":
        words = children.astype(np.uint32) | to_bfloat16(sparse).astype(np.uint32) << np.uint32(16)
        return ensemble._replace(sparse=words, dense=to_bfloat16(ensemble.dense))
    scale = np.zeros(len(ensemble.parent), np.float32)
    bits = np.empty(len(sparse), np.uint8)
    dense = np.zeros(len(ensemble.dense), np.int8)
    _to_int8(ensemble, children, sparse, scale, bits, dense)
    words = children.astype(np.uint16) | bits.astype(np.uint16) << np.uint16(8)
    return ensemble._replace(sparse=words, dense=dense, node_scale=scale)


def to_bfloat16(weights: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the upper halves of the weights' bits, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    odd = bits >> np.uint32(16) & np.uint32(1)
    return ((bits.astype(np.uint64) + np.uint64(0x7FFF) + odd) >> np.uint64(16)).astype(np.uint16)


@kernel
def _to_int8(
    ensemble: TreeEnsemble,
    children: NDArray[np.uint64],
    sparse: NDArray[np.float32],
    scale_out: NDArray[np.float32],
    bits_out: NDArray[np.uint8],
    dense_out: NDArray[np.int8],
) -> None:
    """Fill in each node's scale and the bits of all weights, chunk by chunk."""
    for node in range(len(ensemble.parent)):
        chunk = ensemble.node_chunk[node]
        if chunk < 0:
            continue
        child = ensemble.child_ptr[node]
        n_children = ensemble.child_ptr[node + 1] - child
        width = padded_width(n_children)
        words = range(ensemble.sparse_ptr[chunk], ensemble.sparse_ptr[chunk + 1])
        rows = range(ensemble.dense_ptr[chunk], ensemble.dense_ptr[chunk + 1], width)
        scale = scale_out[child : child + n_children]
        for i in words:
            scale[children[i]] = max(scale[children[i]], abs(sparse[i]))
        for row in rows:
            for j in range(n_children):
                scale[j] = max(scale[j], abs(ensemble.dense[row + j]))
        for j in range(n_children):
            scale[j] /= np.float32(INT8_MOST)
        for i in words:
            bits_out[i] = np.uint8(_units(sparse[i], scale[children[i]]))
        for row in rows:
            for j in range(n_children):
                dense_out[row + j] = _units(ensemble.dense[row + j], scale[j])


@kernel
def _units(weight: np.float32, scale: np.float32) -> np.int8:
    """Return the whole number of steps that is nearest to a weight, ties to even."""
    if scale <= 0:
        return np.int8(0)
    return np.int8(min(max(np.rint(weight / scale), -INT8_MOST), INT8_MOST))
