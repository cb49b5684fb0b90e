"""The labels of the rows of a decision tree's node, renumbered from 0."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel


class NodeLabels(NamedTuple):
    """The labels of a node's n rows, renumbered.

    ptr    int64[n + 1]
    ranks  int32[nnz]    positions in `used`
    used   int32[k]      the labels that occur, ascending
    """

    ptr: NDArray[np.int64]
    ranks: NDArray[np.int32]
    used: NDArray[np.int32]


@kernel
def localise_labels(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], rows: NDArray[np.int32], rank: NDArray[np.int32]
) -> NodeLabels:
    """Copy the labels of a node's rows and renumber them.

    rank  int32[n_labels], workspace: zero at the call and on return
    """
    nnz = 0
    for row in rows:
        nnz += indptr[row + 1] - indptr[row]
    found = np.empty(min(nnz, len(rank)), np.int32)
    n_used = 0
    for row in rows:
        for e in range(indptr[row], indptr[row + 1]):
            if rank[indices[e]] == 0:
                rank[indices[e]] = 1
                found[n_used] = indices[e]
                n_used += 1
    used = np.sort(found[:n_used])
    for k in range(n_used):
        rank[used[k]] = k
    ptr = np.empty(len(rows) + 1, np.int64)
    ptr[0] = 0
    ranks = np.empty(nnz, np.int32)
    at = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            ranks[at] = rank[indices[e]]
            at += 1
        ptr[i + 1] = at
    for label in used:
        rank[label] = 0
    return NodeLabels(ptr, ranks, used)
