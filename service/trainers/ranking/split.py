"""Parting the rows of a node so that each side has one ranking of the labels that serves its rows well."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from service.kernels.training.random import next_random
from service.trainers.node_labels import localise_labels

ROUNDS_MAX = 100
"""Rankings and sides are alternated at most so often; some ten rounds are usual."""

GAIN_MIN = 1e-6
"""The alternation ends when a round raises the mean nDCG of a row by less."""


class Gains(NamedTuple):
    """The labels of a node's n rows, renumbered from 0, and what each is worth at the top of a ranking.

    ptr    int64[n + 1]
    label  int32[nnz]    ranks of labels, below len(used)
    gain   float64[nnz]  > 0: the label's weight / the ideal DCG of the row
    used   int32[k]      label of each rank, ascending
    """

    ptr: NDArray[np.int64]
    label: NDArray[np.int32]
    gain: NDArray[np.float64]
    used: NDArray[np.int32]


@kernel
def gains_of(
    label_ptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    rows: NDArray[np.int32],
    label_weight: NDArray[np.float32],
    ideal: NDArray[np.float64],
    seen: NDArray[np.int32],
) -> Gains:
    """Return the gains of the labels of `rows`.

    Source: Prabhu, Varma 2014, equation 1 (label_weight 1), and Jain et al. 2016, section 4 (1 / propensity):
    the ideal DCG of a row of k labels is the sum of the first k discounts, whatever their weights.

    labels        ascending within a row
    label_weight  float32[K]
    ideal         float64[K + 1]  sum of the first k discounts
    seen          int32[K], workspace: zero at the call and on return
    """
    ptr, label, used = localise_labels(label_ptr, labels, rows, seen)
    gain = np.empty(len(label), np.float64)
    for i in range(len(rows)):
        share = ideal[ptr[i + 1] - ptr[i]]
        for at in range(ptr[i], ptr[i + 1]):
            gain[at] = label_weight[used[label[at]]] / share
    return Gains(ptr, label, gain, used)


@inlined
def _rank(
    gains: Gains, side: NDArray[np.uint8], discount: NDArray[np.float64], lead_out: NDArray[np.float64]
) -> float:
    """Rank the labels of each side by falling gain (ties: smaller label first); return the sum of DCGs.

    lead_out  float64[k]  how much higher the second side discounts each label than the first
    """
    sums = np.zeros((2, len(gains.used)))
    for i in range(len(side)):
        for e in range(gains.ptr[i], gains.ptr[i + 1]):
            sums[side[i], gains.label[e]] += gains.gain[e]
    total = 0.0
    lead_out[:] = 0.0
    for s in range(2):
        order = np.argsort(-sums[s], kind="mergesort")
        sign = 2.0 * s - 1.0
        for place in range(len(order)):
            total += discount[place] * sums[s, order[place]]
            lead_out[order[place]] += sign * discount[place]
    return total


@kernel
def split_by_ranking(
    gains: Gains, discount: NDArray[np.float64], side: NDArray[np.uint8], totals_out: NDArray[np.float64]
) -> int:
    """Alternate between the best ranking of each side and the best side of each row; return the rounds.

    Source: Prabhu, Varma 2014, section 4.2, algorithm 2 with w = 0: equation 7 (the ranking that is best for
    a side sorts the labels by their summed gains) and equations 8-10 (a row goes to the side whose ranking
    gives it the higher nDCG). A row that both serve alike stays.

    discount    float64[>= k]  1 / log2(2 + place), falling
    side        uint8[n]       0 or 1 at the call; overwritten
    totals_out  float64[ROUNDS_MAX]  the sum of nDCGs before each round's new sides; it never falls

    Cost: a round reads the labels of the rows twice and sorts the node's labels twice.
    """
    n_rows = len(side)
    lead = np.empty(len(gains.used))
    for step in range(ROUNDS_MAX):
        totals_out[step] = _rank(gains, side, discount, lead)
        for i in range(n_rows):
            more = 0.0
            for e in range(gains.ptr[i], gains.ptr[i + 1]):
                more += gains.gain[e] * lead[gains.label[e]]
            if more != 0.0:
                side[i] = more > 0.0
        if step and totals_out[step] - totals_out[step - 1] < GAIN_MIN * n_rows:
            return step + 1
    return ROUNDS_MAX


@kernel
def toss_sides(side_out: NDArray[np.uint8], state: NDArray[np.uint64]) -> None:
    """Give each row a random side."""
    for i in range(len(side_out)):
        side_out[i] = next_random(state) >> np.uint64(63)
