"""What a traversal is asked: the rows, and how to search. Kernels make these of their arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import borrowing_inlined as inlined
from model_store.compiled.vectors import vbroadcast, vload

NO_THRESHOLD, TUNED, NUMBER = 0, 1, 2
"""What the labels of an answer must reach: nothing, each its tuned threshold, or one number for all."""


class Rows(NamedTuple):
    """Compressed sparse rows.

    indptr   int64[n + 1]
    indices  int32[..]    strictly ascending within a row, each in [0, D)
    values   float32[..]  finite
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]


class Search(NamedTuple):
    """How to search.

    link        one of model_store.ensemble.LINK_CODES
    beam_width  inner nodes kept a level and tree, in [1, the workspace's B]
    top_r       labels kept, in [1, the workspace's R]
    node_mask   uint8[N]: 0 where no label below the node is allowed; or empty: all are
    log_weight  float32[N]: the logarithm of a label's weight at its leaf, elsewhere the greatest below the
                node; or empty: all weights are 1. Labels are ranked by probability times weight.
    log_threshold  float32[N + LANES]: the logarithm of each node's threshold, at a leaf its label's,
                elsewhere the least of the children's, and then LANES that count for nothing; or float32[1]:
                one for all; or empty: there is none. Labels whose probability reaches their threshold pass,
                whatever their weight.
    """

    link: int
    beam_width: int
    top_r: int
    node_mask: NDArray[np.uint8]
    log_weight: NDArray[np.float32]
    log_threshold: NDArray[np.float32]


@inlined
def key_of(search: Search, node: int, score: np.float32) -> np.float32:
    """Return the logarithm by which a node is ranked: its score, plus the greatest log-weight below it."""
    if len(search.log_weight) > 0:
        return np.float32(score + search.log_weight[node])
    return score


@inlined
def is_allowed(search: Search, node: int) -> bool:
    """Return whether any label below a node is allowed."""
    return bool(len(search.node_mask) == 0 or search.node_mask[node] != 0)


@inlined
def has_thresholds(search: Search) -> bool:
    """Return whether labels must reach a threshold."""
    return len(search.log_threshold) > 0


@inlined
def threshold_of(log_threshold: NDArray[np.float32], place: int) -> np.float32:
    """Return the logarithm of a threshold of thresholds that are not empty, where one may stand for all."""
    return np.float32(log_threshold[place if len(log_threshold) > 1 else 0])


@inlined
def thresholds_of(search: Search, first: int) -> Any:
    """Return the logarithms of the thresholds of nodes first .. first + LANES - 1, as a vector."""
    if len(search.log_threshold) > 1:
        return vload(search.log_threshold, first)
    return vbroadcast(search.log_threshold[0])
