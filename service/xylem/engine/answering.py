"""Predictions of many rows: they are computed on several threads, and then gathered."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from xylem.base import offsets, writeable as writeable
from xylem_store import F32, I32, I64, U8

# Stands for the costs of rows where they are not requested.
NO_COSTS = np.empty((0, 2), np.int64)


class Predictions(NamedTuple):
    """Predictions: row i has labels[ptr[i] : ptr[i + 1]], the best first, equal scores by label id.

    ptr     int64[n + 1]
    labels  int32[..]
    scores  float32[..]   probabilities in [0, 1], calibrated if the model is; with weights, the
            model's own probability times weight
    exact   uint8[n]      1 where these are proved to be the best labels, with a threshold the best
            of those that reach it; 0 where a beam or a stopped search may have missed one
    costs   int64[n, 2]   inner nodes scored for a row, and bytes of their weights read; empty if
            not requested
    """

    ptr: I64
    labels: I32
    scores: F32
    exact: U8
    costs: I64


def in_parts(answer: Callable[[int, int], None], n_rows: int, threads: int) -> None:
    """Call answer(first, last) for equal parts of the rows, one part for each thread.

    Smaller parts would even out a slow thread, but a chunk is read once for all rows of a part:
    with four parts a thread two threads were 1.4 to 1.6 times as fast as one, with one part 1.7 to
    1.9 times.
    """
    cuts = [n_rows * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(answer, cuts[:-1], cuts[1:]))


def empty_answers(n_rows: int, top_r: int) -> tuple[I64, I32, F32, U8]:
    """Return empty arrays for n_rows answers: counts, labels, scores and exact.

    Shapes: [n_rows], [n_rows, top_r], [n_rows, top_r] and [n_rows].
    """
    return (
        np.empty(n_rows, np.int64),
        np.empty((n_rows, top_r), np.int32),
        np.empty((n_rows, top_r), np.float32),
        np.empty(n_rows, np.uint8),
    )


def gather(counts: I64, labels: I32, scores: F32, exact: U8, costs: I64) -> Predictions:
    """Return the predictions, without the unused places of the arrays that `empty_answers` made."""
    ptr = offsets(counts)
    if ptr[-1] == labels.size:
        return Predictions(ptr, labels.reshape(-1), scores.reshape(-1), exact, costs)
    used = np.arange(labels.shape[1]) < counts[:, None]
    return Predictions(ptr, labels[used], scores[used], exact, costs)
