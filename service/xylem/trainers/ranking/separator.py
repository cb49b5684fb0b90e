"""A sparse linear separator of two sides: logistic regression with an L1 penalty, trained by
coordinate descent.

For the rows of a node, y = +1 on the second side and -1 on the first, the solver finds the w (its
last element is the constant term, penalised like the others) that minimises

    f(w) = |w|_1 + sum over rows of cost(y) * log(1 + exp(-y * w . (x, 1)))

Source of all steps: Yuan, Ho, Lin 2012, "An improved GLMNET for L1-regularized logistic regression"
(JMLR 13), the algorithm of LIBLINEAR's solver 6. Everything is float64 but the values of the rows.
"""

import math
from typing import NamedTuple

import numpy as np

from xylem.base import SparseRows
from xylem.trainers.kernels.problem import distinct_of
from xylem.trainers.kernels.random import random_below
from xylem_store import F32, F64, I32, I64, U8, U64, inlined, kernel

# Most passes of coordinate descent over the features in a Newton step.
PASSES_MAX = 10

HALVINGS_MAX = 20  # a Newton step is halved at most this many times until it lowers the objective
_RIDGE = 1e-12  # added to every second derivative, so that none is 0
_STEP_MAX = 10.0  # largest change of a coordinate in one step
_DECREASE = 0.01  # a step must bring this share of the decrease that its linear model predicts


class Columns(NamedTuple):
    """The rows of a node by feature: n rows, m - 1 features.

    The last column has a one in every row, for the constant term.

    ptr      int64[m + 1]
    row      int32[nnz]    0 .. n - 1, ascending within a column
    value    float32[nnz]
    feature  int32[m]      feature of each column; -1 at the last one
    """

    ptr: I64
    row: I32
    value: F32
    feature: I32


@kernel
def columns_of(x: SparseRows, rows: I32, counts: I32) -> Columns:
    """Return the columns of some rows of x.

    counts  int32[n_features], workspace: zero at the call and on return
    """
    indptr, indices, values, _, _ = x
    distinct, nnz = distinct_of(indptr, indices, rows, counts)
    n_used = len(distinct)
    feature = np.empty(n_used + 1, np.int32)
    feature[:n_used] = np.sort(distinct)
    feature[n_used] = -1
    ptr = np.empty(n_used + 2, np.int64)
    ptr[0] = 0
    for k in range(n_used):
        ptr[k + 1] = ptr[k] + counts[feature[k]]
        counts[feature[k]] = k
    ptr[n_used + 1] = nnz + len(rows)
    next_entry = ptr[:-1].copy()
    row_out = np.empty(nnz + len(rows), np.int32)
    value_out = np.empty(nnz + len(rows), np.float32)
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            k = counts[indices[e]]
            row_out[next_entry[k]] = i
            value_out[next_entry[k]] = values[e]
            next_entry[k] += 1
        row_out[nnz + i] = i
        value_out[nnz + i] = 1.0
    counts[feature[:n_used]] = 0
    return Columns(ptr, row_out, value_out, feature)


class _State(NamedTuple):
    """The variables of the solver; n rows, m columns.

    weight     float64[m]
    target     float64[m]  minimiser of the quadratic model; equal to weight between Newton steps
    gradient   float64[m]  first derivative of the loss
    curvature  float64[m]  second derivative of the loss
    order      int32[m]    the columns, active ones first
    margin     float64[n]  w . (x, 1)
    slope      float64[n]  first derivative of the row's loss by its margin
    bend       float64[n]  second derivative of the row's loss by its margin
    move       float64[n]  (target - weight) . (x, 1)
    pull       float64[n]  bend * move
    """

    weight: F64
    target: F64
    gradient: F64
    curvature: F64
    order: I32
    margin: F64
    slope: F64
    bend: F64
    move: F64
    pull: F64


@inlined
def _softplus(x: float) -> float:
    """Return log(1 + exp(x))."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@inlined
def _violation(weight: float, gradient: float) -> float:
    """Return the distance of 0 from the subdifferential of the objective along one coordinate."""
    if weight > 0.0:
        return abs(gradient + 1.0)
    if weight < 0.0:
        return abs(gradient - 1.0)
    return max(abs(gradient) - 1.0, 0.0)


@inlined
def _differentiate(columns: Columns, state: _State, slack: float) -> tuple[int, float, float]:
    """Compute the gradient and curvature of every column, and find the active columns.

    A column is not active if its weight is 0 and its gradient is too small for it to leave 0, by a
    margin of `slack`; it goes to the end of `order`. Returns (the number of active columns, the
    largest violation, the sum of the violations).
    """
    n_active = len(state.order)
    worst = 0.0
    total = 0.0
    s = 0
    while s < n_active:
        j = state.order[s]
        gradient = 0.0
        curvature = _RIDGE
        for e in range(columns.ptr[j], columns.ptr[j + 1]):
            x = np.float64(columns.value[e])
            i = columns.row[e]
            gradient += x * state.slope[i]
            curvature += x * x * state.bend[i]
        state.gradient[j] = gradient
        state.curvature[j] = curvature
        if state.weight[j] == 0.0 and abs(gradient) < 1.0 - slack:
            n_active -= 1
            state.order[s] = state.order[n_active]
            state.order[n_active] = j
            continue
        violation = _violation(state.weight[j], gradient)
        worst = max(worst, violation)
        total += violation
        s += 1
    return n_active, worst, total


@inlined
def _descend(columns: Columns, state: _State, n_active: int, tolerance: float, random: U64) -> int:
    """Minimise the quadratic model by coordinate descent; return the number of passes.

    Each pass visits the first n_active columns of `order` in random order. Columns that are far
    from leaving 0 are skipped until the others are done.

    tolerance  a pass is the last one if the sum of the violations is at most this
    """
    n_rows = len(state.margin)
    n_live = n_active
    slack = np.inf
    for pass_number in range(PASSES_MAX):
        worst = 0.0
        total = 0.0
        s = 0
        while s < n_live:
            other = s + random_below(random, n_live - s)
            j = state.order[other]
            state.order[other] = state.order[s]
            state.order[s] = j
            first = columns.ptr[j]
            last = columns.ptr[j + 1]
            gradient = state.gradient[j] + (state.target[j] - state.weight[j]) * _RIDGE
            for e in range(first, last):
                gradient += columns.value[e] * state.pull[columns.row[e]]
            old = state.target[j]
            if old == 0.0 and abs(gradient) < 1.0 - slack:
                n_live -= 1
                state.order[s] = state.order[n_live]
                state.order[n_live] = j
                continue
            violation = _violation(old, gradient)
            worst = max(worst, violation)
            total += violation
            curvature = state.curvature[j]
            if gradient + 1.0 < curvature * old:
                step = -(gradient + 1.0) / curvature
            elif gradient - 1.0 > curvature * old:
                step = -(gradient - 1.0) / curvature
            else:
                step = -old
            if abs(step) >= _RIDGE:
                step = min(max(step, -_STEP_MAX), _STEP_MAX)
                state.target[j] = old + step
                for e in range(first, last):
                    i = columns.row[e]
                    change = columns.value[e] * step
                    state.move[i] += change
                    state.pull[i] += change * state.bend[i]
            s += 1
        slack = worst / n_rows
        if total <= tolerance:
            if n_live == n_active:
                return pass_number + 1
            n_live = n_active
            slack = np.inf
    return PASSES_MAX


@inlined
def _step(state: _State, side: U8, cost: F64) -> bool:
    """Move the weights towards the target, with a step that lowers the objective enough.

    Returns False if HALVINGS_MAX halvings do not give such a step.
    """
    predicted = 0.0
    norm = 0.0
    for j in range(len(state.weight)):
        norm += abs(state.weight[j])
        predicted += state.gradient[j] * (state.target[j] - state.weight[j]) + abs(state.target[j])
    predicted -= norm
    share = 1.0
    for _ in range(HALVINGS_MAX):
        change = -norm
        for j in range(len(state.weight)):
            change += abs(state.weight[j] + share * (state.target[j] - state.weight[j]))
        for i in range(len(side)):
            if state.move[i] != 0.0:
                sign = 1.0 - 2.0 * side[i]
                new_loss = _softplus(sign * (state.margin[i] + share * state.move[i]))
                change += cost[side[i]] * (new_loss - _softplus(sign * state.margin[i]))
        if change <= _DECREASE * share * predicted:
            for j in range(len(state.weight)):
                state.weight[j] += share * (state.target[j] - state.weight[j])
                state.target[j] = state.weight[j]
            for i in range(len(side)):
                state.margin[i] += share * state.move[i]
            return True
        share *= 0.5
    return False


@kernel
def solve_separator(
    columns: Columns, side: U8, cost: F64, eps: float, steps_max: int, random: U64, stop: U8
) -> tuple[F64, int]:
    """Return the weights of the columns (the constant term last) and the Newton steps taken.

    side       uint8[n]    0 or 1
    cost       float64[2]  the cost of a row of each side
    eps        the solver ends when the sum of the violations is this share of their sum at w = 0
    steps_max  most Newton steps
    stop       uint8[1]    set it to end the solver after its step; the weights are then unfinished

    Source: Yuan, Ho, Lin 2012, algorithm 3 with the two levels of shrinking of its section 5.
    Deviation: a step that cannot lower the objective ends the solver. Cost: a Newton step reads all
    columns once, and those that may leave 0 at most PASSES_MAX times. The result depends on the
    arguments alone.
    """
    n_rows = len(side)
    n_columns = len(columns.feature)
    state = _State(
        np.zeros(n_columns),
        np.zeros(n_columns),
        np.zeros(n_columns),
        np.zeros(n_columns),
        np.arange(n_columns).astype(np.int32),
        np.zeros(n_rows),
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows),
    )
    first_total = 0.0
    slack = np.inf
    inner = 1.0
    for step_number in range(steps_max):
        for i in range(n_rows):  # compute the derivatives of the row's loss; clear the last move
            share = 1.0 / (1.0 + math.exp(-state.margin[i]))
            state.slope[i] = cost[side[i]] * (share - side[i])
            state.bend[i] = cost[side[i]] * share * (1.0 - share)
            state.move[i] = 0.0
            state.pull[i] = 0.0
        n_active, worst, total = _differentiate(columns, state, slack)
        if step_number == 0:
            first_total = total
        if total <= eps * first_total or stop[0]:
            return state.weight, step_number
        passes = _descend(columns, state, n_active, inner * first_total, random)
        if not _step(state, side, cost):
            return state.weight, step_number + 1
        if passes == 1:
            inner *= 0.25
        slack = worst / n_rows
    return state.weight, steps_max
