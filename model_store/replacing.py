"""Chunks of a built ensemble taken out as a trainer leaves them, and others put in; the rest stays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.build import build_ensemble, forest_order, topology_of
from model_store.compiled.bits import BLOCK_BITS, GROUP_BITS, padded_width
from model_store.ensemble import LANES, Chunk, Tree, TreeEnsemble, Weights
from model_store.first_trees import take_ranges

_GROUP_BLOCKS = 1 << (GROUP_BITS - BLOCK_BITS)
_BLOCK_FEATURES = 1 << BLOCK_BITS


class OldTree(NamedTuple):
    """The shape of a tree of an ensemble, its nodes numbered as in `Tree`.

    nodes  int64[n]  their numbers in the ensemble, ascending
    """

    child_ptr: NDArray[np.int32]
    node_label: NDArray[np.int32]
    nodes: NDArray[np.int64]


class NewTree(NamedTuple):
    """A tree of an ensemble that is to be, in terms of an old one.

    tree   its chunks are those that are new; None also at nodes whose chunk is an old one
    chunk  int32[n]  the number of the old chunk that a node keeps with all its children, else -1
    node   int64[n]  the old node whose scorer, in its parent's chunk, a node keeps; else -1
    """

    tree: Tree
    chunk: NDArray[np.int32]
    node: NDArray[np.int64]


def trees_of(ensemble: TreeEnsemble) -> list[OldTree]:
    """Return the shapes of the trees of an ensemble."""
    n_trees, parent = int(ensemble.child_ptr[0]), ensemble.parent
    tree_of = np.arange(len(parent))
    while (above := parent[tree_of]).max() >= 0:
        tree_of = np.where(above >= 0, above, tree_of)
    counts = np.diff(ensemble.child_ptr)
    found = []
    for tree in range(n_trees):
        nodes = np.flatnonzero(tree_of == tree)
        child_ptr = (1 + np.concatenate([[0], np.cumsum(counts[nodes])])).astype(np.int32)
        found.append(OldTree(child_ptr, ensemble.node_label[nodes], nodes))
    return found


def chunk_of(ensemble: TreeEnsemble, node: int) -> Chunk:
    """Return the scorers of an inner node's children, as numbers; weights of 0 are left out.

    Cost: a pass over the chunk.
    """
    first, last = int(ensemble.child_ptr[node]), int(ensemble.child_ptr[node + 1])
    number = int(ensemble.node_chunk[node])
    features, is_dense = _features(ensemble, number)
    width = padded_width(last - first)
    dense = ensemble.dense[ensemble.dense_ptr[number] : ensemble.dense_ptr[number + 1]].reshape(-1, width)
    dense_row, dense_child = np.nonzero(dense[:, : last - first])
    words = ensemble.sparse[ensemble.sparse_ptr[number] : ensemble.sparse_ptr[number + 1]]
    sizes = np.diff(ensemble.row_ptr[ensemble.row_start[number] : ensemble.row_start[number + 1]])
    half = 4 * words.itemsize  # bits: the child's position in the low half, its weight in the high one
    low = words.dtype.type((1 << half) - 1)
    bits = (words >> words.dtype.type(half)).astype(f"u{words.itemsize // 2}")
    stored = {1: np.int8, 2: np.uint16, 4: np.float32}[bits.itemsize]
    row = np.concatenate([np.flatnonzero(is_dense)[dense_row], np.repeat(np.flatnonzero(~is_dense), sizes)])
    child = np.concatenate([dense_child, words & low]).astype(np.int32)
    weight = np.concatenate([_as_float(dense[dense_row, dense_child]), _as_float(bits.view(stored))])
    if len(ensemble.node_scale):
        weight = weight * ensemble.node_scale[first:last][child]
    order = np.argsort(row, kind="stable")
    order = order[weight[order] != 0]
    kept, row_ptr = np.unique(row[order], return_index=True)
    return Chunk(
        features[kept],
        np.append(row_ptr, len(order)).astype(np.int64),
        child[order],
        weight[order],
        ensemble.node_bias[first:last].copy(),
    )


def _features(ensemble: TreeEnsemble, chunk: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the features that a chunk has a row for, ascending, and whether that row is dense."""
    blocks = ensemble.blocks[ensemble.block_ptr[chunk] : ensemble.block_ptr[chunk + 1]]
    groups, places = np.nonzero(_bits(ensemble.directory[chunk, :, 0]))
    number = groups * _GROUP_BLOCKS + places
    block, place = np.nonzero(_bits(blocks[:, 0]))
    features = (number[block] * _BLOCK_FEATURES + place).astype(np.int32)
    return features, _bits(blocks[:, 1])[block, place]


def _bits(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return the bits of words, the lowest first, bool[n, 32]."""
    as_bytes = np.ascontiguousarray(words, "<u4").view(np.uint8)
    return np.unpackbits(as_bytes, bitorder="little").reshape(-1, 32).astype(np.bool_)


def _as_float(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Return stored weights as numbers: float32, the upper halves of float32 (uint16), or steps (int8)."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32)


def replace_trees(
    old: TreeEnsemble, trees: list[NewTree], n_labels: int, n_features: int, weights: Weights
) -> TreeEnsemble:
    """Return the ensemble of new trees; old chunks are copied as they stand, new ones packed beside them.

    weights  the type of the old ensemble's. Raises ValueError as `build_ensemble` does. Cost: the bytes of
    the result twice. Deterministic.
    """
    plain = [each.tree for each in trees]
    tree_of, local_of = forest_order(plain)
    topology = topology_of(plain, tree_of, local_of, n_labels)
    kept_chunk, kept_node = np.empty(len(tree_of), np.int64), np.empty(len(tree_of), np.int64)
    for number, each in enumerate(trees):
        here = tree_of == number
        kept_chunk[here], kept_node[here] = each.chunk[local_of[here]], each.node[local_of[here]]
    inner = np.flatnonzero(topology["node_chunk"] >= 0)
    is_new = kept_chunk[inner] < 0
    stars = [_star(plain[tree_of[i]].chunks[local_of[i]]) for i in inner[is_new].tolist()]
    more = build_ensemble(stars, 1, n_features, weights) if stars else None
    bias, scale = (
        np.zeros(len(tree_of), np.float32),
        np.zeros(len(old.node_scale) and len(tree_of), np.float32),
    )
    first, last = topology["child_ptr"][inner], topology["child_ptr"][inner + 1]
    of_new = np.concatenate([np.empty(0, np.int64), *map(np.arange, first[is_new], last[is_new])])
    if more is not None:
        bias[of_new] = more.node_bias[len(stars) :]
        scale[of_new[: len(scale)]] = more.node_scale[len(stars) :] if len(scale) else 0
    stays = np.flatnonzero(kept_node >= 0)
    bias[stays] = old.node_bias[kept_node[stays]]
    if len(scale):  # what was read from int8 becomes the same steps, of a scale that may differ in a last bit
        scale[stays] = old.node_scale[kept_node[stays]]
    source = kept_chunk[inner]
    source[is_new] = len(old.directory) + np.arange(len(stars))
    return old._replace(**topology, node_bias=bias, node_scale=scale, **_joined_chunks(old, more, source))


def _star(chunk: Chunk | None) -> Tree:
    """Return a tree of one inner node, without labels."""
    if chunk is None:
        raise ValueError("expected a chunk, old or new, at each node that has children")
    n_nodes = len(chunk.bias) + 1
    child_ptr = np.full(n_nodes + 1, n_nodes, np.int32)
    child_ptr[0] = 1
    return Tree(child_ptr, np.full(n_nodes, -1, np.int32), [chunk, *[None] * (n_nodes - 1)])


def _joined_chunks(
    old: TreeEnsemble, more: TreeEnsemble | None, source: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of chunks: those of these numbers, counted through both ensembles."""
    both = [old] if more is None else [old, more]
    found: dict[str, NDArray[Any]] = {"directory": np.concatenate([each.directory for each in both])[source]}
    pairs = {"block_ptr": "blocks", "row_start": "row_ptr", "sparse_ptr": "sparse", "dense_ptr": "dense"}
    for ptr, values in pairs.items():
        sizes = np.concatenate([np.diff(getattr(each, ptr)) for each in both])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        joined = np.concatenate([getattr(each, values)[: getattr(each, ptr)[-1]] for each in both])
        found[ptr], found[values] = take_ranges(starts, joined, source)
    found["dense"] = np.concatenate([found["dense"], np.zeros(LANES, old.dense.dtype)])
    return found
