"""What a trained label tree takes: its weights against flat one-vs-rest, and how features fall away by depth.

Source: Lin, Liu and Lin 2024, "Exploring Space Efficiency in a Tree-based Linear Model for Extreme
Multi-label Classification", section 6 and appendix E (equations 44 and 45, figures 4 to 7), of the ensemble
as it is stored, where `service.trainers.size` bounds the same before the training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import TreeEnsemble

WEIGHT_BYTES = 12
"""A weight of a tree in equation 20: feature, child and value, as `xylem estimate` counts it."""

FLAT_WEIGHT_BYTES = 8
"""A weight of flat one-vs-rest: feature and value."""

_DEPTHS_MAX = 200
"""So many depths are told: a report has a finite length."""


def size_report(ensemble: TreeEnsemble) -> dict[str, Any]:
    """Return what there is to tell of the size of label trees, as JSON takes it.

    weights        stored, zeros not counted
    bytes          of all arrays of the ensemble
    ovr_bytes      of flat one-vs-rest: features used at the root times labels with a leaf, 8 bytes each
    ratio_to_ovr   equation 20: weights, WEIGHT_BYTES each, over ovr_bytes; what `xylem estimate` bounds
    stored_to_ovr  bytes over ovr_bytes
    depths         for each depth of inner nodes: how many, their children, features used on average, and
                   below the roots alpha: features used at a node over those used at its parent, averaged
                   with the number of children as weights

    Cost: a pass over the blocks and the weights.
    """
    used = _features_used(ensemble)
    depth = _depths(ensemble)
    n_children = np.diff(ensemble.child_ptr)
    n_trees = int(ensemble.child_ptr[0])
    alpha = used / np.maximum(1, used[ensemble.parent])  # equation 44, below the roots
    lines = []
    for d in range(min(_DEPTHS_MAX, int(depth[n_children > 0].max(initial=-1)) + 1)):
        here = np.flatnonzero((depth == d) & (n_children > 0))
        line = {
            "depth": d,
            "nodes": len(here),
            "children": int(n_children[here].sum()),
            "features_mean": round(float(used[here].mean()), 1),
        }
        if d:
            line["alpha"] = round(float(np.average(alpha[here], weights=n_children[here])), 5)
        lines.append(line)
    n_bytes = sum(array.nbytes for array in ensemble)
    n_labels = int((ensemble.label_leaf >= 0).any(axis=0).sum())
    ovr_bytes = FLAT_WEIGHT_BYTES * int(used[:n_trees].max()) * n_labels
    n_weights = len(ensemble.sparse) + int(np.count_nonzero(ensemble.dense))
    return {
        "weights": n_weights,
        "bytes": n_bytes,
        "ovr_bytes": ovr_bytes,
        "ratio_to_ovr": round(n_weights * WEIGHT_BYTES / max(1, ovr_bytes), 5),
        "stored_to_ovr": round(n_bytes / max(1, ovr_bytes), 5),
        "depths": lines,
    }


def _features_used(ensemble: TreeEnsemble) -> NDArray[np.int64]:
    """Return int64[N]: the features of each inner node's chunk; 0 at leaves."""
    chunk = np.repeat(np.arange(len(ensemble.directory)), np.diff(ensemble.block_ptr))
    per_chunk = np.bincount(chunk, np.bitwise_count(ensemble.blocks[:, 0]), len(ensemble.directory))
    used = np.zeros(len(ensemble.parent), np.int64)
    used[ensemble.node_chunk >= 0] = per_chunk.astype(np.int64)
    return used


def _depths(ensemble: TreeEnsemble) -> NDArray[np.int64]:
    """Return int64[N]: the number of edges from the root to each node."""
    depth = np.zeros(len(ensemble.parent), np.int64)
    first, last, level = int(ensemble.child_ptr[0]), int(ensemble.child_ptr[ensemble.child_ptr[0]]), 1
    while first < last:
        depth[first:last] = level
        first, last, level = last, int(ensemble.child_ptr[last]), level + 1
    return depth
