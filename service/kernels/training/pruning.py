"""From dense weights of tiles to the sparse chunk of a node, small weights left out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel


@kernel
def pack_tile(
    weights: NDArray[np.float32],
    ascending: NDArray[np.int64],
    n_children: int,
    prune: float,
    counts_out: NDArray[np.int32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the weights of a tile that are kept (not 0, |w| >= prune), by ascending feature, then child.

    counts_out  int32[m]  kept weights of each feature, in the order of `ascending`
    """
    nnz = 0
    for k in range(len(ascending)):
        count = 0
        for c in range(n_children):
            w = weights[ascending[k], c]
            if w != 0 and abs(w) >= prune:
                count += 1
        counts_out[k] = count
        nnz += count
    lane = np.empty(nnz, np.uint8)
    kept = np.empty(nnz, np.float32)
    at = 0
    for k in range(len(ascending)):
        if counts_out[k]:
            for c in range(n_children):
                w = weights[ascending[k], c]
                if w != 0 and abs(w) >= prune:
                    lane[at] = c
                    kept[at] = w
                    at += 1
    return lane, kept


@kernel
def place_tile(
    counts: NDArray[np.int32],
    lane: NDArray[np.uint8],
    kept: NDArray[np.float32],
    first_child: int,
    next_out: NDArray[np.int64],
    child_out: NDArray[np.int32],
    weight_out: NDArray[np.float32],
) -> None:
    """Append a tile's weights to the rows of the node's chunk; next_out[k] is the end of row k so far."""
    at = 0
    for k in range(len(counts)):
        for _ in range(counts[k]):
            child_out[next_out[k]] = first_child + lane[at]
            weight_out[next_out[k]] = kept[at]
            next_out[k] += 1
            at += 1
