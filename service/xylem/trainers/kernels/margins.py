"""Margins of a row by the weights of a node, and the steps of the tail's weights."""

from typing import Any

import numpy as np

from xylem.engine import place
from xylem.trainers.kernels.problem import Integer, Problem
from xylem_store import (
    F32,
    LANES,
    inlined,
    nonallocating_inlined,
    vadd,
    vbroadcast,
    vload,
    vmul,
    vstore,
)


@nonallocating_inlined
def _tail_value(problem: Problem, i: Integer, j: Integer) -> Any:
    """Return value j of the tail of row i in every lane."""
    return vbroadcast(problem.tails[place(i), place(j)])


@nonallocating_inlined
def tail_margins(problem: Problem, weights: F32, i: Integer) -> Any:
    """Return what the tail of row i adds to w . x.

    It is computed as four sums: in a single sum, every addition would wait for the previous one.
    """
    n = problem.tails.shape[1]
    sum_0 = vbroadcast(0.0)
    sum_1 = vbroadcast(0.0)
    sum_2 = vbroadcast(0.0)
    sum_3 = vbroadcast(0.0)
    offset = (len(weights) - 1 - n) * LANES
    j = 0
    while j + 3 < n:
        sum_0 = vadd(sum_0, vmul(_tail_value(problem, i, j), vload(weights, offset)))
        sum_1 = vadd(sum_1, vmul(_tail_value(problem, i, j + 1), vload(weights, offset + LANES)))
        sum_2 = vadd(
            sum_2, vmul(_tail_value(problem, i, j + 2), vload(weights, offset + 2 * LANES))
        )
        sum_3 = vadd(
            sum_3, vmul(_tail_value(problem, i, j + 3), vload(weights, offset + 3 * LANES))
        )
        offset += 4 * LANES
        j += 4
    while j < n:
        sum_0 = vadd(sum_0, vmul(_tail_value(problem, i, j), vload(weights, offset)))
        offset += LANES
        j += 1
    return vadd(vadd(sum_0, sum_1), vadd(sum_2, sum_3))


@nonallocating_inlined
def add_tail(problem: Problem, weights: F32, i: Integer, step: Any) -> None:
    """Add step * x of the tail of row i to the weights of each child."""
    offset = (len(weights) - 1 - problem.tails.shape[1]) * LANES
    for j in range(problem.tails.shape[1]):
        vstore(
            weights, offset, vadd(vload(weights, offset), vmul(_tail_value(problem, i, j), step))
        )
        offset += LANES


@inlined
def margin_of(problem: Problem, weights: F32, i: Integer) -> Any:
    """Return w . x + b of row i for one child.

    It is computed as four sums: in a single sum, every addition would wait for the previous one.
    """
    a = weights[len(weights) - 1]
    b = np.float32(0)
    c = np.float32(0)
    d = np.float32(0)
    e = problem.indptr[place(i)]
    last = problem.indptr[place(i + 1)]
    while e + 3 < last:
        a += problem.values[place(e)] * weights[place(problem.features[place(e)])]
        b += problem.values[place(e + 1)] * weights[place(problem.features[place(e + 1)])]
        c += problem.values[place(e + 2)] * weights[place(problem.features[place(e + 2)])]
        d += problem.values[place(e + 3)] * weights[place(problem.features[place(e + 3)])]
        e += 4
    while e < last:
        a += problem.values[place(e)] * weights[place(problem.features[place(e)])]
        e += 1
    first = len(weights) - 1 - problem.tails.shape[1]
    for j in range(problem.tails.shape[1]):
        b += problem.tails[place(i), place(j)] * weights[place(first + j)]
    return (a + b) + (c + d)
