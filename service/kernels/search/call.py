"""What a traversal is handed: one `Call`, whose parts are handles too.

All traversals have the signature `traversal(call)`, and none reads a weight: that does the scorer, which the
call leads to. Who makes a call writes the fixed parts once and keeps it; rows, search and answers change from
call to call, for little: three small kernels write them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import F32_2, I32_2, I64_1, I64_2, U8_1, Handle, handle, write_struct
from service.kernels.search.heaps import sort_best
from service.kernels.search.query import Rows, Search
from service.kernels.search.workspace import Workspace


@handle
class Answers(NamedTuple):
    """Where the answers of n rows go.

    counts  [n]              how many labels a row has
    labels  [n, top_r]       the labels, the best first, of equal scores the smaller id first
    scores  [n, top_r]       probability times weight
    exact   [n]              1 where these are surely the first top_r of all labels that are asked for
    costs   [n, 2] or [0, 2] chunks scored and bytes of their weights read for a row; or not wanted
    """

    counts: I64_1
    labels: I32_2
    scores: F32_2
    exact: U8_1
    costs: I64_2


@inlined
def write_answer(
    answers: Answers,
    row: int,
    are_logs: bool,
    scores: NDArray[np.float32],
    labels: NDArray[np.int32],
    n_best: int,
    is_exact: bool,
) -> None:
    """Write a row's answer from a heap of keep_best, whose scores may be logarithms; the heap is sorted."""
    sort_best(scores, labels, n_best)
    answers.exact[row] = is_exact
    answers.counts[row] = n_best
    for i in range(n_best):
        answers.labels[row, i] = labels[i]
        answers.scores[row, i] = np.exp(scores[i]) if are_logs else scores[i]


@inlined
def clear_cost(costs: NDArray[np.int64], row: int, work: Workspace) -> None:
    """Start to count what a row costs; `costs` as in Answers."""
    if len(costs) > 0:
        work.cost[:] = 0
        costs[row, 0] = 0
        costs[row, 1] = 0


@inlined
def charge(costs: NDArray[np.int64], row: int, work: Workspace, slot: int) -> None:
    """Add what scoring into margins[slot] has cost since the last call to a row, if costs are wanted."""
    if len(costs) > 0:
        costs[row, 0] += work.cost[slot, 0]
        costs[row, 1] += work.cost[slot, 1]
        work.cost[slot, 0] = 0
        work.cost[slot, 1] = 0


@handle
class Call(NamedTuple):
    """Which rows to answer, how, and where: first .. last - 1 of `rows`.

    scorer    the address of the kernel that reads the ensemble's weights (`service.kernels.search.scoring`)
    ensemble  of a TreeEnsemble
    rerank    of a Rerank; only routing reads it
    calibration  of a Calibration: scores are calibrated when they are answered
    rows      of Rows
    search    of a Search
    answers   of Answers
    work      of a Workspace
    entries   of the Entries of `own`
    own       of the traversal's own buffers: a BeamWorkspace, QueueWorkspace or RoutingWorkspace
    """

    first: int
    last: int
    scorer: int
    ensemble: Handle
    rerank: Handle
    calibration: Handle
    rows: Handle
    search: Handle
    answers: Handle
    work: Handle
    entries: Handle
    own: Handle


@kernel
def set_rows(
    rows_at: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
) -> None:
    """Have a handle of Rows lead to these arrays."""
    write_struct(Rows, rows_at, (indptr, indices, values))


@kernel
def set_search(
    search_at: NDArray[np.int64],
    link: int,
    beam_width: int,
    top_r: int,
    is_sure: bool,
    allowed: NDArray[np.uint8],
    weight: NDArray[np.float32],
    log_threshold: NDArray[np.float32],
) -> None:
    """Have a handle of a Search hold these fields."""
    write_struct(Search, search_at, (link, beam_width, top_r, is_sure, allowed, weight, log_threshold))


@kernel
def set_answers(
    answers_at: NDArray[np.int64],
    counts: NDArray[np.int64],
    labels: NDArray[np.int32],
    scores: NDArray[np.float32],
    exact: NDArray[np.uint8],
    costs: NDArray[np.int64],
) -> None:
    """Have a handle of Answers lead to these arrays."""
    write_struct(Answers, answers_at, (counts, labels, scores, exact, costs))
