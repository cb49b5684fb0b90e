"""What a traversal is asked: the rows, and how to search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.handles import F32_1, I32_1, I64_1, U8_1, handle
from model_store.compiled.vectors import vbroadcast, vload

NO_THRESHOLD, TUNED, NUMBER = 0, 1, 2
"""What the labels of an answer must reach: nothing, each its tuned threshold, or one number for all."""


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
    """How to search. N are the nodes of a label tree; of decision trees the labels, and LANES is 0 then.

    link           one of model_store.ensemble.LINK_CODES
    beam_width     inner nodes kept a level and tree, in [1, the workspace's B]; only beam search reads it
    top_r          labels kept, in [1, the workspace's R]
    is_sure        routing: 1 if a row that is stopped is to have no answer; else it has what was found
    allowed        [N] 0 where no label below the node is allowed; or empty: all are
    weight         [N] label trees: the logarithm of a label's weight at its leaf, elsewhere the greatest
                   below the node; decision trees: the weights; or empty: all weights are 1. Labels are ranked
                   by probability times weight.
    log_threshold  [N + LANES] the logarithm of each node's threshold, at a leaf its label's, elsewhere the
                   least of the children's, and then LANES that count for nothing; or [1]: one for all; or
                   empty: there is none. Labels whose probability reaches their threshold pass, whatever their
                   weight.
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
    """Return the logarithm by which a node is ranked: its score, plus the greatest log-weight below it."""
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
def threshold_of(log_threshold: NDArray[np.float32], place: int) -> np.float32:
    """Return the logarithm of a threshold of thresholds that are not empty, where one may stand for all."""
    return np.float32(log_threshold[place if len(log_threshold) > 1 else 0])


@inlined
def thresholds_of(search: Search, first: int) -> Any:
    """Return the logarithms of the thresholds of nodes first .. first + LANES - 1, as a vector."""
    if len(search.log_threshold) > 1:
        return vload(search.log_threshold, first)
    return vbroadcast(search.log_threshold[0])


@inlined
def with_thresholds(search: Search, log_threshold: NDArray[np.float32]) -> Search:
    """Return a search with other thresholds."""
    link, beam_width, top_r, is_sure, allowed, weight, _ = search
    return Search(link, beam_width, top_r, is_sure, allowed, weight, log_threshold)
