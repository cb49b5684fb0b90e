"""From what a traversal found to an answer: labels and scores, the best first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.handles import F32_2, I32_2, I64_1, I64_2, U8_1, handle
from service.kernels.search.heaps import sort_best
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
