"""LdSM: what a node's split leaves for the tree: the kept weights, and each child's rows and labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.kernels.training.pruning import pack_tile
from service.trainers.ldsm.split import Split


class Children(NamedTuple):
    """The children of a node and their regressors.

    features     int32[f]      ascending: those with a weight that is not 0
    weight_ptr   int64[f + 1]  the weights of each feature
    child        int32[..], weight float32[..]
    rows         int32[..]     the rows of each child, ascending, one child after the other
    label_ptr    int64[n_children + 1]  the labels of each child's rows
    label        int32[..]     ascending within a child
    counts       int32[..]     rows of the child that carry the label
    priorities   int64[n_children]  sum - max of the counts: 0 when one label says all (LdSM, algorithm 1)
    """

    features: NDArray[np.int32]
    weight_ptr: NDArray[np.int64]
    child: NDArray[np.int32]
    weight: NDArray[np.float32]
    rows: NDArray[np.int32]
    label_ptr: NDArray[np.int64]
    label: NDArray[np.int32]
    counts: NDArray[np.int32]
    priorities: NDArray[np.int64]


@kernel
def _kept_features(split: Split) -> NDArray[np.int64]:
    """Return the places of the features with weights that are not 0, by ascending feature."""
    n_features = len(split.features)
    kept = np.empty(n_features, np.int64)
    n_kept = 0
    for k in range(n_features):
        kept[n_kept] = (np.int64(split.features[k]) << 32) | k  # sorted much faster than by np.argsort
        for m in range(split.n_children):
            if split.weights[k, m] != 0:
                n_kept += 1
                break
    return np.sort(kept[:n_kept]) & 0xFFFFFFFF


@kernel
def share_out(rows: NDArray[np.int32], split: Split) -> Children:
    """Return the children of a split that has some.

    rows  int32[n], ascending: the node's

    Cost: children * (rows + labels + features).
    """
    kept = _kept_features(split)
    n_weights = np.empty(len(kept), np.int32)
    lane, weight = pack_tile(split.weights, kept, split.n_children, 0.0, n_weights)
    weight_ptr = np.zeros(len(kept) + 1, np.int64)
    for k in range(len(kept)):
        weight_ptr[k + 1] = weight_ptr[k] + n_weights[k]
    child_rows = np.empty(split.sizes[: split.n_children].sum(), np.int32)
    label_ptr = np.zeros(split.n_children + 1, np.int64)
    label = np.empty(split.n_children * len(split.labels), np.int32)
    counts = np.empty(len(label), np.int32)
    priorities = np.zeros(split.n_children, np.int64)
    n_rows, n_labels = 0, 0
    for m in range(split.n_children):
        for i in range(len(rows)):
            if (split.directions[i] >> m) & 1:
                child_rows[n_rows] = rows[i]
                n_rows += 1
        most = 0
        for k in range(len(split.labels)):
            n_carry = split.counts[k, m]
            if n_carry > 0:
                label[n_labels] = split.labels[k]
                counts[n_labels] = n_carry
                n_labels += 1
                priorities[m] += n_carry
                most = max(most, n_carry)
        priorities[m] -= most
        label_ptr[m + 1] = n_labels
    features = split.features[kept]
    child = lane.astype(np.int32)
    leaves = label_ptr, label[:n_labels].copy(), counts[:n_labels].copy(), priorities
    return Children(features, weight_ptr, child, weight, child_rows, *leaves)
