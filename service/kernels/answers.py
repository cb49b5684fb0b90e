"""From what a traversal found to an answer: labels and probabilities, the best first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.jit import borrowing_inlined as inlined
from service.kernels.heaps import sort_best
from service.kernels.workspace import Workspace


@inlined
def finish_answer(are_logs: bool, n_best: int, work: Workspace) -> int:
    """Sort best_* and, if it holds log-scores, turn them into probabilities; return n_best."""
    sort_best(work.best_score, work.best_label, n_best)
    if are_logs:
        for i in range(n_best):
            work.best_score[i] = np.exp(work.best_score[i])
    return n_best


@inlined
def write_answer(
    n_best: int,
    row: int,
    work: Workspace,
    counts_out: NDArray[np.int64],
    labels_out: NDArray[np.int32],
    scores_out: NDArray[np.float32],
) -> None:
    """Copy a row's answer from best_* to the outputs."""
    counts_out[row] = n_best
    for i in range(n_best):
        labels_out[row, i] = work.best_label[i]
        scores_out[row, i] = work.best_score[i]
