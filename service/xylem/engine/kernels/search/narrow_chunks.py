"""Chunks of few children, as decision trees have them, are scored in one pass.

All rows of a node of up to DENSE_SHARE children are dense. Such a chunk, spread over the map from
features to rows, is scored in one pass (`add_narrow_rows`): each feature is looked up and its row
added at once. For a feature without a row, the zeros that follow the last row are added. That
changes no bits: a sum that begins with 0 is never -0, so that adding 0 or -0 leaves it as it is.
"""

import numpy as np

from xylem.engine.kernels.search.scorer import ScorerParts, children_width, finish_margins, place
from xylem_store import (
    EIGHT,
    LANES,
    TreeEnsemble,
    add_scaled8,
    load8,
    nonallocating_inlined as inlined,
    vstore,
    zero8,
)


@inlined
def is_narrow(ensemble: TreeEnsemble, node: int) -> bool:
    """Return whether the rows of a node's chunk are all dense and at most eight weights wide."""
    chunk = ensemble.node_chunk[node]
    has_sparse = ensemble.row_start[chunk + 1] - ensemble.row_start[chunk] > 1
    return bool(not has_sparse and children_width(ensemble, node) <= EIGHT)


@inlined
def add_narrow_rows(parts: ScorerParts, node: int, row: int, slot: int) -> None:
    """Score a node for one row as `scoring.NARROW` says, into margins[slot].

    The bits and the costs are the same as with MAPPED.
    """
    ensemble, _, dense, rows, _, work = parts
    chunk = ensemble.node_chunk[node]
    width = children_width(ensemble, node)
    feature_row = work.feature_row
    base = ensemble.dense_ptr[chunk] - width
    zeros = np.int64(len(dense) - LANES)
    total = zero8()
    n_dense = np.int64(0)
    for i in range(rows.indptr[row], rows.indptr[row + 1]):
        entry = np.int64(feature_row[place(rows.indices[place(i)])])
        position = base - entry * width if entry < 0 else zeros
        total = add_scaled8(total, rows.values[place(i)], load8(dense, position))
        n_dense += np.int64(entry < 0)
    vstore(work.margins[slot], 0, total)
    finish_margins(ensemble, node, n_dense * width * dense.itemsize, work, slot)
