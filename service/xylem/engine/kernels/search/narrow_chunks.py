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
from xylem.engine.kernels.search.scorer import children_width, place, scale_sums
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

    The bits are the same as those of the scorer. Four rows are added at a time, because each
    addition of a row waits for the one before.
    """
    ensemble, _, rows, _, _, work, routing = parts
    node = routing.entry_node[k]
    width = children_width(ensemble, node)
    for entry in range(k, end, 4):
        first_begin, first_end = _features_of(parts, entry, end)
        second_begin, second_end = _features_of(parts, entry + 1, end)
        third_begin, third_end = _features_of(parts, entry + 2, end)
        fourth_begin, fourth_end = _features_of(parts, entry + 3, end)
        first = zero8()
        second = zero8()
        third = zero8()
        fourth = zero8()
        n_all = min(
            min(first_end - first_begin, second_end - second_begin),
            min(third_end - third_begin, fourth_end - fourth_begin),
        )
        for e in range(n_all):
            first = _add_feature(first, rows, first_begin + e, width, work)
            second = _add_feature(second, rows, second_begin + e, width, work)
            third = _add_feature(third, rows, third_begin + e, width, work)
            fourth = _add_feature(fourth, rows, fourth_begin + e, width, work)
        for e in range(first_begin + n_all, first_end):
            first = _add_feature(first, rows, e, width, work)
        for e in range(second_begin + n_all, second_end):
            second = _add_feature(second, rows, e, width, work)
        for e in range(third_begin + n_all, third_end):
            third = _add_feature(third, rows, e, width, work)
        for e in range(fourth_begin + n_all, fourth_end):
            fourth = _add_feature(fourth, rows, e, width, work)
        vstore(work.margins[entry - k], 0, first)
        vstore(work.margins[min(entry + 1, end - 1) - k], 0, second)
        vstore(work.margins[min(entry + 2, end - 1) - k], 0, third)
        vstore(work.margins[min(entry + 3, end - 1) - k], 0, fourth)
    # the biases become a vector at the end of the array, which no feature uses: in the ensemble
    # there may be fewer than eight numbers from the first one on
    bias_at = len(work.narrow_rows) - EIGHT
    child = ensemble.child_ptr[node]
    for j in range(ensemble.child_ptr[node + 1] - child):
        work.narrow_rows[place(bias_at + j)] = ensemble.node_bias[place(child + j)]
    biases = load8(work.narrow_rows, bias_at)
    vstore(work.narrow_rows, bias_at, zero8())
    for slot in range(end - k):
        scale_sums(ensemble, node, work, slot)
        margins = work.margins[slot]
        vstore(margins, 0, add_scaled8(load8(margins, 0), np.float32(1.0), biases))


@inlined
def _features_of(parts: CallParts[RoutingWorkspace], entry: int, end: int) -> tuple[int, int]:
    """Return where the features of an entry's row begin and end; from `end` on of the last one."""
    row = parts.traversal_buffers.entry_row[place(min(entry, end - 1))]
    return parts.rows.indptr[place(row)], parts.rows.indptr[place(row + 1)]


@inlined
def _add_feature(total: Any, rows: Rows, i: int, width: np.int64, work: Workspace) -> Any:
    """Return a row's sums of eight children and its i-th feature's weights times its value."""
    weights = load8(work.narrow_rows, rows.indices[place(i)] * width)
    return add_scaled8(total, rows.values[place(i)], weights)
