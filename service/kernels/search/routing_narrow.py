"""Scoring a chunk that the feature map holds, and whose rows are all dense and narrow, in one pass.

Decision trees have few children a node, and all rows of a node of up to DENSE_SHARE children are dense. Then
there is nothing to find first and nothing to put in order: each feature of the row is looked up and its row
added at once, a feature without a row as the zeros that follow the last row. That changes no bits: a sum
that begins with 0 is never -0, so that adding 0 or -0 leaves it as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.vectors_of_eight import EIGHT, add_scaled8, load8, store8, zero8
from model_store.ensemble import LANES, TreeEnsemble
from service.kernels.search.query import Rows
from service.kernels.search.scorer import children_width, finish_margins, place
from service.kernels.search.workspace import Workspace


@inlined
def is_narrow(ensemble: TreeEnsemble, node: int) -> bool:
    """Return whether the rows of a node's chunk are all dense and at most eight weights wide."""
    chunk = ensemble.node_chunk[node]
    has_sparse = ensemble.row_start[chunk + 1] - ensemble.row_start[chunk] > 1
    return bool(not has_sparse and children_width(ensemble, node) <= EIGHT)


@inlined
def add_narrow_rows(
    ensemble: TreeEnsemble, dense: NDArray[Any], node: int, row: int, rows: Rows, work: Workspace, slot: int
) -> None:
    """Do what `scoring.score_narrow` says for one row, into margins[slot].

    The bits and the costs are those of `score_mapped`.
    """
    chunk = ensemble.node_chunk[node]
    width = children_width(ensemble, node)
    feature_row = work.feature_row
    before = ensemble.dense_ptr[chunk] - width
    zeros = np.int64(len(dense) - LANES)
    total = zero8()
    n_dense = np.int64(0)
    for i in range(rows.indptr[row], rows.indptr[row + 1]):
        entry = np.int64(feature_row[place(rows.indices[place(i)])])
        at = before - entry * width if entry < 0 else zeros
        total = add_scaled8(total, rows.values[place(i)], load8(dense, at))
        n_dense += np.int64(entry < 0)
    store8(work.margins[slot], 0, total)
    finish_margins(ensemble, node, n_dense * width * dense.itemsize, work, slot)
