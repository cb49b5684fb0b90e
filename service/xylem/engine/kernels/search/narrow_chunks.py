"""Chunks of few children, as decision trees have them, are scored in one pass.

All rows of a node of up to DENSE_SHARE children are dense. Where many rows of a block enter such a
node, the chunk's rows are spread over an array by feature (`feature_map.spread_chunk`): for each
feature of a row there is one load, at a place that depends on no other load, and one addition. For
a feature without a row, zeros are added. That changes no bits: a sum that begins with 0 is never
-0, so that adding 0 or -0 leaves it as it is. (A map from features to rows, and a choice between
the row and zeros, took three times as long: 3.6 ns a feature, not 0.9.)
"""

from typing import Any

import numpy as np

from xylem.engine.kernels.search.call import Rows
from xylem.engine.kernels.search.scorer import children_width, finish_margins, place
from xylem.engine.kernels.search.scoring import CallParts
from xylem.engine.kernels.search.workspace import RoutingWorkspace, Workspace
from xylem_store import (
    EIGHT,
    I64,
    TreeEnsemble,
    add_scaled8,
    load8,
    nonallocating_inlined as inlined,
    vstore,
    zero8,
)


@inlined
def is_narrow(ensemble: TreeEnsemble, node: int, costs: I64) -> bool:
    """Return whether the rows of a node's chunk are all dense and at most eight weights wide.

    Return False if costs are requested, because `score_narrow` does not count them.
    """
    chunk = ensemble.node_chunk[node]
    has_sparse = ensemble.row_start[chunk + 1] - ensemble.row_start[chunk] > 1
    return bool(not has_sparse and children_width(ensemble, node) <= EIGHT and len(costs) == 0)


@inlined
def score_narrow(parts: CallParts[RoutingWorkspace], k: int, end: int) -> None:
    """Score entries k .. end - 1 of one node, whose rows are spread, into margins[0] and so on.

    The bits are the same as those of the scorer. Two rows are added at a time, because each
    addition of a row waits for the one before.
    """
    ensemble, _, rows, _, _, work, routing = parts
    node = routing.entry_node[k]
    width = children_width(ensemble, node)
    for entry in range(k, end, 2):
        first_row = routing.entry_row[place(entry)]
        second_row = routing.entry_row[place(min(entry + 1, end - 1))]
        i = rows.indptr[place(first_row)]
        j = rows.indptr[place(second_row)]
        first_end = rows.indptr[place(first_row + 1)]
        second_end = rows.indptr[place(second_row + 1)]
        first = zero8()
        second = zero8()
        n_both = min(first_end - i, second_end - j)
        for e in range(n_both):
            first = _add_feature(first, rows, i + e, width, work)
            second = _add_feature(second, rows, j + e, width, work)
        for e in range(i + n_both, first_end):
            first = _add_feature(first, rows, e, width, work)
        for e in range(j + n_both, second_end):
            second = _add_feature(second, rows, e, width, work)
        vstore(work.margins[entry - k], 0, first)
        vstore(work.margins[min(entry + 1, end - 1) - k], 0, second)
    for slot in range(end - k):
        finish_margins(ensemble, node, np.int64(0), work, slot)


@inlined
def _add_feature(total: Any, rows: Rows, i: int, width: np.int64, work: Workspace) -> Any:
    """Return a row's sums of eight children and its i-th feature's weights times its value."""
    weights = load8(work.narrow_rows, rows.indices[place(i)] * width)
    return add_scaled8(total, rows.values[place(i)], weights)
