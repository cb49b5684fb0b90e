"""What a label's own classifiers weigh: the weights of its leaf in each label tree, decoded; the strongest by
name, as `xylem models explain` tells them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.bits import BLOCK_BITS, GROUP_BITS, padded_width
from model_store.ensemble import TreeEnsemble
from model_store.names import find_name
from model_store.version import Model
from service.base.errors import UnknownLabel, UnsupportedOption
from service.features import feature_names
from service.features.tables import FeatureNames

_GROUP_BLOCKS = 1 << (GROUP_BITS - BLOCK_BITS)
_BLOCK_FEATURES = 1 << BLOCK_BITS


class LeafWeights(NamedTuple):
    """The classifier of a label's leaf in one tree: it tells the label apart from the leaf's siblings.

    tree, leaf  the tree's number and the leaf's node
    depth       nodes on the path from below the root to the leaf
    siblings    leaves and inner nodes beside it, under the same parent
    bias        the constant term
    features    int32[m]    those with a weight that is not 0, ascending
    weights     float32[m]
    """

    tree: int
    leaf: int
    depth: int
    siblings: int
    bias: float
    features: NDArray[np.int32]
    weights: NDArray[np.float32]


def leaf_weights(ensemble: TreeEnsemble, label: int) -> list[LeafWeights]:
    """Return the classifier of a label's leaf in each label tree that has one, in the order of the trees.

    Cost: a pass over the chunk of the leaf's parent, a tree.
    """
    return [
        _of_leaf(ensemble, tree, leaf)
        for tree, leaf in enumerate(ensemble.label_leaf[:, label].tolist())
        if leaf >= 0
    ]


def mean_weights(leaves: Sequence[LeafWeights]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the features of some classifiers, ascending, and their weights: means, 0 where one has none."""
    features, places = np.unique(np.concatenate([each.features for each in leaves]), return_inverse=True)
    sums = np.bincount(places, np.concatenate([each.weights for each in leaves]), len(features))
    return features, (sums / len(leaves)).astype(np.float32)


def strongest(weights: NDArray[np.float32], top: int) -> NDArray[np.int64]:
    """Return the places of the weights of the largest size, at most `top`; of equals the first."""
    return np.argsort(-np.abs(weights), kind="stable")[:top]


def _of_leaf(ensemble: TreeEnsemble, tree: int, leaf: int) -> LeafWeights:
    parent = int(ensemble.parent[leaf])
    first_child = int(ensemble.child_ptr[parent])
    n_children = int(ensemble.child_ptr[parent + 1]) - first_child
    chunk, position = int(ensemble.node_chunk[parent]), leaf - first_child
    features, is_dense = _features(ensemble, chunk)
    weights = np.zeros(len(features), np.float32)
    weights[is_dense] = _dense_weights(ensemble, chunk, position, n_children)
    weights[~is_dense] = _sparse_weights(ensemble, chunk, position)
    if len(ensemble.node_scale):
        weights *= ensemble.node_scale[leaf]
    used = weights != 0
    depth, node = 0, leaf
    while ensemble.parent[node] >= 0:
        node, depth = int(ensemble.parent[node]), depth + 1
    bias = float(ensemble.node_bias[leaf])
    return LeafWeights(tree, leaf, depth, n_children - 1, bias, features[used], weights[used])


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


def _dense_weights(ensemble: TreeEnsemble, chunk: int, position: int, n_children: int) -> NDArray[np.float32]:
    """Return a child's weight in each dense row of a chunk, not yet scaled."""
    width = padded_width(n_children)
    rows = ensemble.dense[ensemble.dense_ptr[chunk] : ensemble.dense_ptr[chunk + 1]].reshape(-1, width)
    return _as_float(rows[:, position])


def _sparse_weights(ensemble: TreeEnsemble, chunk: int, position: int) -> NDArray[np.float32]:
    """Return a child's weight in each sparse row of a chunk, 0 where it has none, not yet scaled."""
    words = ensemble.sparse[ensemble.sparse_ptr[chunk] : ensemble.sparse_ptr[chunk + 1]]
    row_ptr = ensemble.row_ptr[ensemble.row_start[chunk] : ensemble.row_start[chunk + 1]]
    half = 4 * words.itemsize  # bits: the child's position in the low half, its weight in the high one
    low = words.dtype.type((1 << half) - 1)
    mine = np.flatnonzero((words & low) == position)
    bits = (words[mine] >> words.dtype.type(half)).astype(f"u{words.itemsize // 2}")
    stored = {1: np.int8, 2: np.uint16, 4: np.float32}[bits.itemsize]
    weights = np.zeros(len(row_ptr) - 1, np.float32)
    weights[np.searchsorted(row_ptr, mine, "right") - 1] = _as_float(bits.view(stored))
    return weights


def _as_float(stored: NDArray[np.float32] | NDArray[np.uint16] | NDArray[np.int8]) -> NDArray[np.float32]:
    """Return stored weights as numbers: float32, the upper halves of float32 (uint16), or steps (int8)."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32)


TOP = 20
TOP_MAX = 10_000


def label_features(model: Model, label: str, top: int = TOP) -> dict[str, Any]:
    """Return what a label's own classifiers weigh most, with the keys of `xylem models explain --json`.

    features  means over the trees that have the label, the largest in size first: {feature, weight}
    trees     for each such tree: tree, leaf, depth, siblings, bias, and features as above. The classifier is
              that of the label's leaf: it tells the label apart from the leaf's siblings

    A feature without a name (hashing, raw) is told by its id, as a string. Raises UnknownLabel, and
    UnsupportedOption for models whose labels have no weights of features.
    """
    manifest = model.manifest
    where = manifest.shown
    if manifest.kind != "label-tree" or manifest.link == "softmax":
        found = "decision trees, whose leaves count labels"
        if manifest.link == "softmax":
            found = "softmax nodes, whose weights are of an embedding's dimensions"
        raise UnsupportedOption(
            f"{where}: expected a model whose labels have weights of features, found {found}"
        )
    label_id = find_name(model.labels, label)
    if label_id < 0:
        raise UnknownLabel(f"{where}: expected one of {manifest.n_labels} labels, found {label!r:.80}")
    leaves = leaf_weights(model.ensemble, label_id)
    if not leaves:
        raise UnsupportedOption(
            f"{where}: expected a label that has a leaf in a tree, found {label!r:.80} in none"
        )
    names = feature_names(manifest.features, model.arrays)
    return {
        "model": manifest.model,
        "version": manifest.version,
        "label": label,
        "id": label_id,
        "link": manifest.link,
        "features": _named(*mean_weights(leaves), names, top),
        "trees": [
            {
                "tree": each.tree,
                "leaf": each.leaf,
                "depth": each.depth,
                "siblings": each.siblings,
                "bias": each.bias,
                "features": _named(each.features, each.weights, names, top),
            }
            for each in leaves
        ],
    }


def _named(
    features: NDArray[np.int32], weights: NDArray[np.float32], names: FeatureNames | None, top: int
) -> list[dict[str, Any]]:
    """Return the strongest weights with the names of their features."""
    return [
        {
            "feature": str(features[i]) if names is None else names.name(int(features[i])),
            "weight": float(weights[i]),
        }
        for i in strongest(weights, top).tolist()
    ]
