"""Why a label has its probability: the nodes on its path, and what each feature of the row added there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import struct_at
from model_store.compiled.vectors import vstore
from model_store.ensemble import LANES, TreeEnsemble
from service.kernels.search.call import Call
from service.kernels.search.links import log_links
from service.kernels.search.packed_weights import load_weights, word_child, word_weight
from service.kernels.search.query import Rows, Search
from service.kernels.search.scorer import find_blocks, find_rows, find_words, score_at_once
from service.kernels.search.shares import NO_FEATURE, keep_share
from service.kernels.search.workspace import Workspace


@kernel
def explain_leaf(
    call_at: NDArray[np.int64],
    sparse: NDArray[Any],
    dense: NDArray[Any],
    leaf: int,
    path_out: NDArray[np.int32],
    probability_out: NDArray[np.float32],
    score_out: NDArray[np.float32],
    features_out: NDArray[np.int32],
    shares_out: NDArray[np.float32],
) -> None:
    """Walk a leaf's path from below the root to the leaf, of `depth` nodes.

    call_at          of a Call: the row is its first one
    path_out         int32[depth]: the nodes
    probability_out  float32[depth]: of each node given its parent
    score_out        float32[depth]: of each node, the product down to it; in a model of one tree the last has
                     the bits of the label's score in every traversal
    features_out     int32[depth, FEATURES_MAX]: the row's features that add most to the node's margin, by
                     absolute share, NO_FEATURE behind the last one
    shares_out       float32[depth, FEATURES_MAX]: their shares, value * weight; margin = bias + the sum over
                     all features, but for rounding
    Cost: a chunk a node, and a row of the chunk a feature and node.
    """
    call = struct_at(Call, call_at)
    ensemble = struct_at(TreeEnsemble, call.ensemble, (sparse, dense))
    link, work = struct_at(Search, call.search).link, struct_at(Workspace, call.work)
    indices, values = first_row(call)
    depth = len(path_out)
    node = leaf
    for step in range(depth - 1, -1, -1):
        above = ensemble.parent[node]
        path_out[step] = node
        score_at_once(ensemble, above, indices, values, work)
        log_links(link, ensemble.child_ptr[above + 1] - ensemble.child_ptr[above], work.margins)
        score_out[step] = work.margins[node - ensemble.child_ptr[above]]
        keep_most(ensemble, node, indices, values, work, features_out[step], shares_out[step])
        node = above
    total = np.float32(0.0)
    for step in range(depth):
        probability_out[step] = np.exp(score_out[step])
        total += score_out[step]
        score_out[step] = np.exp(total)


@inlined
def first_row(call: Call) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the features and values of the first row of a call."""
    rows = struct_at(Rows, call.rows)
    low, high = rows.indptr[call.first], rows.indptr[call.first + 1]
    return rows.indices[low:high], rows.values[low:high]


@inlined
def keep_most(
    ensemble: TreeEnsemble,
    node: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    work: Workspace,
    features_out: NDArray[np.int32],
    shares_out: NDArray[np.float32],
) -> None:
    """Choose the features of a row that add most to a node's margin; outputs as of `keep_share`."""
    features_out[:] = NO_FEATURE
    for i in range(len(indices)):
        weight = weight_at(ensemble, node, indices[i : i + 1], values[i : i + 1], work)
        keep_share(indices[i], values[i] * weight, features_out, shares_out)


@inlined
def weight_at(
    ensemble: TreeEnsemble,
    node: int,
    feature: NDArray[np.int32],
    value: NDArray[np.float32],
    work: Workspace,
) -> np.float32:
    """Return a node's weight for one feature, 0 where it has none. Overwrites `margins`."""
    above = ensemble.parent[node]
    position = node - ensemble.child_ptr[above]
    find_blocks(ensemble, above, feature, work, 0)
    find_rows(ensemble, above, feature, value, work, 0)
    find_words(ensemble, above, work, 0)
    weight = np.float32(0.0)
    if work.counts[0, 1] > 0:
        tile = position // LANES * LANES
        vstore(work.margins, 0, load_weights(ensemble.dense, work.dense_at[0, 0] + tile))
        weight = work.margins[position - tile]
    elif work.counts[0, 2] > 0:
        first = work.sparse_at[0, 0]
        for at in range(first, first + work.sparse_count[0, 0]):
            if word_child(ensemble.sparse[at]) == position:
                weight = word_weight(ensemble.sparse[at])
    if len(ensemble.node_scale) > 0:
        weight *= ensemble.node_scale[node]
    return weight


@kernel
def depth_of(parent: NDArray[np.int32], node: int) -> int:
    """Return how many steps a node is below its root."""
    depth = 0
    while parent[node] >= 0:
        node = parent[node]
        depth += 1
    return depth
