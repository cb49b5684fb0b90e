"""The argument of every traversal: the handle of a `Call`, whose parts (rows, search, answers) are
handles too.

All traversals have the signature `traversal(call)`. None of them reads a weight: the scorer does,
whose address is in the Call. A Call is used again and again, and its fixed parts are written once.
Only rows, search and answers change from call to call; three small kernels write them, which costs
little.
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
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    vbroadcast,
    vload,
    word_of,
    write_struct,
)

# Kinds of thresholds: none, a tuned threshold for each label, or one number for all labels.
NO_THRESHOLD = 0
TUNED = 1
NUMBER = 2


ZERO_F32 = np.float32(0.0)
ONE_F32 = np.float32(1.0)


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
    """The options of a search.

    N is the number of nodes of a label tree. For decision trees it is the number of labels, and the
    LANES below are 0 then.

    link           one of xylem_store.ensemble.LINK_CODES
    beam_width     inner nodes kept in each level and tree, in [1, the workspace's B]; only beam
                   search reads it
    top_r          labels kept, in [1, the workspace's R]
    is_sure        only routing reads it: 1 if a row whose search is stopped gets no answer, 0 if it
                   gets what was found so far
    allowed        [N] 0 where no label below the node is allowed; empty if all labels are
    weight         [N] label trees: at a leaf the logarithm of its label's weight, elsewhere the
                   greatest one below the node; decision trees: the weights; empty if all weights
                   are 1. Labels are ranked by probability times weight.
    log_threshold  [N + LANES] label trees: at a leaf the logarithm of its label's threshold,
                   elsewhere the least of the children's; LANES unused values follow, because
                   vectors are read whole. [1]: one threshold for all labels. Empty: none. Labels
                   whose probability reaches their threshold pass, whatever their weight.
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
    """Return a node's key, the logarithm by which nodes are ranked.

    It is the node's log-score plus the greatest log-weight below the node.
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
    """Return the logarithm of the threshold at `place`; `log_threshold` is not empty.

    If it has only one element, that is the threshold of every place.
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
    """The output arrays for the answers of n rows.

    counts  [n]              how many labels a row has
    labels  [n, top_r]       the labels, the best first, of equal scores the smaller id first
    scores  [n, top_r]       probability times weight
    exact   [n]              1 where these are proved to be the best top_r of all requested labels
    costs   [n, 2] or [0, 2] chunks scored for a row, and bytes of their weights read; [0, 2] if not
            requested
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
    """Write a row's answer from a heap of `keep_best`, which is sorted in place.

    are_logs  whether the heap's scores are logarithms
    """
    sort_best(scores, labels, n_best)
    answers.exact[row] = is_exact
    answers.counts[row] = n_best
    for i in range(n_best):
        answers.labels[row, i] = labels[i]
        answers.scores[row, i] = np.exp(scores[i]) if are_logs else scores[i]


@inlined
def clear_cost(costs: I64, row: int, work: Workspace) -> None:
    """Set the costs of a row to 0; `costs` as in Answers."""
    if len(costs) > 0:
        work.cost[:] = 0
        costs[row, 0] = 0
        costs[row, 1] = 0


@inlined
def charge(costs: I64, row: int, work: Workspace, slot: int) -> None:
    """Add the costs of filling margins[slot], which are in cost[slot], to the costs of a row.

    Afterwards cost[slot] is 0. Nothing is done if costs are not requested.
    """
    if len(costs) > 0:
        costs[row, 0] += work.cost[slot, 0]
        costs[row, 1] += work.cost[slot, 1]
        work.cost[slot, 0] = 0
        work.cost[slot, 1] = 0


@handle
class Call(NamedTuple):
    """The arguments of a traversal, which answers the rows first .. last - 1 of `rows`.

    scorer       the address of the kernel that reads the ensemble's weights (`scoring`)
    ensemble     the handle of a TreeEnsemble
    rerank       of a Rerank; only routing reads it
    calibration  of a Calibration: scores are calibrated when they are answered
    rows         of Rows
    search       of a Search
    answers      of Answers
    work         of a Workspace
    entries      of the Entries of `traversal_buffers`
    traversal_buffers
                 of the buffers that only this traversal uses: a BeamWorkspace, QueueWorkspace,
                 RoutingWorkspace or CombinedWorkspace
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
    traversal_buffers: Handle


# The words of a call's handle that hold the first row to answer, and the end of the rows.
FIRST = word_of(Call, "first")
LAST = word_of(Call, "last")


@kernel
def set_rows(rows_at: I64, indptr: I64, indices: I32, values: F32) -> None:
    """Make a handle of Rows refer to these arrays."""
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
    """Write these fields to a handle of a Search."""
    write_struct(
        Search, search_at, (link, beam_width, top_r, is_sure, allowed, weight, log_threshold)
    )


@kernel
def set_answers(
    answers_at: I64, counts: I64, labels: I32, scores: F32, exact: U8, costs: I64
) -> None:
    """Make a handle of Answers refer to these arrays."""
    write_struct(Answers, answers_at, (counts, labels, scores, exact, costs))
