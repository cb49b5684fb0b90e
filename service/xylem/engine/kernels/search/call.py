"""What a traversal is handed: one `Call`, whose parts, rows, search and answers, are handles too.

All traversals have the signature `traversal(call)`, and none reads a weight: that does the scorer,
which the call leads to. Who makes a call writes the fixed parts once and keeps it; rows, search and
answers change from call to call, for little: three small kernels write them.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.engine.kernels.search.heaps import sort_best
from xylem.engine.kernels.search.workspace import Workspace
from xylem_store import (
    F32,
    F32_1,
    F32_2,
    I32,
    I32_1,
    I32_2,
    I64,
    I64_1,
    I64_2,
    U8,
    U8_1,
    Handle,
    handle,
    vbroadcast,
    vload,
    write_struct,
)
from xylem_store import nonallocating_inlined as inlined
from xylem_store import nonallocating_kernel as kernel

NO_THRESHOLD = 0
TUNED = 1
NUMBER = 2
"""What the labels of an answer must reach: nothing, each its
tuned threshold, or one number for all.
"""


@handle
class Rows(NamedTuple):
    """Compressed sparse rows.

    indptr   [n + 1]
    indices  [..]     strictly ascending within a row, each in [0, D)
    values   [..]     finite
    """

    indptr: I64_1
    indices: I32_1
    values: F32_1


@handle
class Search(NamedTuple):
    """How to search. N are the nodes of a label tree; of decision
    trees the labels, and LANES is 0 then.

    link           one of xylem_store.ensemble.LINK_CODES
    beam_width     inner nodes kept a level and tree, in [1, the workspace's B]; only beam search
                   reads it
    top_r          labels kept, in [1, the workspace's R]
    is_sure        routing: 1 if a row that is stopped is to have no answer; else it has what was
                   found
    allowed        [N] 0 where no label below the node is allowed; or empty: all are
    weight         [N] label trees: the logarithm of a label's weight at its leaf, elsewhere the
                   greatest below the node; decision trees: the weights; or empty: all weights are
                   1. Labels are ranked by probability times weight.
    log_threshold  [N + LANES] the logarithm of each node's threshold, at a leaf its label's,
                   elsewhere the least of the children's, and then LANES that count for nothing; or
                   [1]: one for all; or empty: there is none. Labels whose probability reaches their
                   threshold pass, whatever their weight.
    """

    link: int
    beam_width: int
    top_r: int
    is_sure: int
    allowed: U8_1
    weight: F32_1
    log_threshold: F32_1


@inlined
def key_of(search: Search, node: int, score: np.float32) -> np.float32:
    """Return the logarithm by which a node is ranked: its score,
    plus the greatest log-weight below it.
    """
    if len(search.weight) > 0:
        return np.float32(score + search.weight[node])
    return score


@inlined
def is_allowed(search: Search, node: int) -> bool:
    """Return whether any label below a node is allowed."""
    return bool(len(search.allowed) == 0 or search.allowed[node] != 0)


@inlined
def has_thresholds(search: Search) -> bool:
    """Return whether labels must reach a threshold."""
    return len(search.log_threshold) > 0


@inlined
def threshold_of(log_threshold: F32, place: int) -> np.float32:
    """Return the logarithm of a threshold of thresholds that are not
    empty, where one may stand for all.
    """
    return np.float32(log_threshold[place if len(log_threshold) > 1 else 0])


@inlined
def thresholds_of(search: Search, first: int) -> Any:
    """Return the logarithms of the thresholds of nodes first .. first + LANES - 1, as a vector."""
    if len(search.log_threshold) > 1:
        return vload(search.log_threshold, first)
    return vbroadcast(search.log_threshold[0])


@handle
class Answers(NamedTuple):
    """Where the answers of n rows go.

    counts  [n]              how many labels a row has
    labels  [n, top_r]       the labels, the best first, of equal scores the smaller id first
    scores  [n, top_r]       probability times weight
    exact   [n]              1 where these are surely the first top_r of all labels that are asked
            for
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
    scores: F32,
    labels: I32,
    n_best: int,
    is_exact: bool,
) -> None:
    """Write a row's answer from a heap of keep_best, whose scores may
    be logarithms; the heap is sorted.
    """
    sort_best(scores, labels, n_best)
    answers.exact[row] = is_exact
    answers.counts[row] = n_best
    for i in range(n_best):
        answers.labels[row, i] = labels[i]
        answers.scores[row, i] = np.exp(scores[i]) if are_logs else scores[i]


@inlined
def clear_cost(costs: I64, row: int, work: Workspace) -> None:
    """Start to count what a row costs; `costs` as in Answers."""
    if len(costs) > 0:
        work.cost[:] = 0
        costs[row, 0] = 0
        costs[row, 1] = 0


@inlined
def charge(costs: I64, row: int, work: Workspace, slot: int) -> None:
    """Add what scoring into margins[slot] has cost since the last
    call to a row, if costs are wanted.
    """
    if len(costs) > 0:
        costs[row, 0] += work.cost[slot, 0]
        costs[row, 1] += work.cost[slot, 1]
        work.cost[slot, 0] = 0
        work.cost[slot, 1] = 0


@handle
class Call(NamedTuple):
    """Which rows to answer, how, and where: first .. last - 1 of `rows`.

    scorer    the address of the kernel that reads the ensemble's weights (`scoring`)
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
def set_rows(rows_at: I64, indptr: I64, indices: I32, values: F32) -> None:
    """Have a handle of Rows lead to these arrays."""
    write_struct(Rows, rows_at, (indptr, indices, values))


@kernel
def set_search(
    search_at: I64,
    link: int,
    beam_width: int,
    top_r: int,
    is_sure: bool,
    allowed: U8,
    weight: F32,
    log_threshold: F32,
) -> None:
    """Have a handle of a Search hold these fields."""
    write_struct(
        Search, search_at, (link, beam_width, top_r, is_sure, allowed, weight, log_threshold)
    )


@kernel
def set_answers(
    answers_at: I64, counts: I64, labels: I32, scores: F32, exact: U8, costs: I64
) -> None:
    """Have a handle of Answers lead to these arrays."""
    write_struct(Answers, answers_at, (counts, labels, scores, exact, costs))
