"""LdSM: training the regressors of one node for the objective J.

Children are lanes of a vector: child m of a node is lane m, and a node has at most CHILDREN_MAX
children. Weights are float32[m + 1, 8], row m being the bias, as in `solver`. The value of a
regressor is h(x) = 1 / (1 + exp(-w . x - b)). A row goes to every child with h > 0.5, which is a
margin above 0.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.engine import place
from xylem.trainers.kernels.problem import Integer, NodeLabels, Problem
from xylem.trainers.kernels.random import next_random, shuffle
from xylem.trainers.ldsm.objective import Tally, best_directions, count_shares, empty_tally
from xylem_store import (
    EIGHT,
    F32,
    I32,
    U8,
    U64,
    add_scaled8,
    kernel,
    load8,
    nonallocating_inlined,
    nonallocating_kernel,
    vstore,
    zero8,
)

# Most children of a node: for M children, 2^M - 1 direction sets are compared for each row.
CHILDREN_MAX = 8

# The objective has code of its own for the default number of children, with loops of constant
# length: the compiler unrolls them and keeps J in registers, which takes a third of its time away.
USUAL_CHILDREN = 4

# Initial weights are random in +-INIT / sqrt(mean features of a row). This is enough to make the
# children differ, and small compared with the trained weights (on bibtex, ten times this value
# costs a point of P@1, a tenth of it half a point).
INIT = 0.1

# A node with n rows, more than these, has sqrt(ROWS_USUAL / n) times as many epochs.
#
# It sees enough rows; more epochs overfit (held-out P@3: on debtags, 23,694 rows, 5 epochs are 0.8
# points better than 10; on bibtex, 4,880 rows, 10 are 0.4 better than 5).
ROWS_USUAL = 5000

# Least scale of a feature in NAG, which divides by it: weights stay finite.
LEAST_SCALE = 1e-30

SGD = 0
NAG = 1


class Learning(NamedTuple):
    """The options of the training of regressors.

    n_children        M, 2 to CHILDREN_MAX
    lambda1, lambda2  weights of the terms of J, >= 0
    epochs            >= 1, for a node of ROWS_USUAL rows or fewer
    optimiser         SGD or NAG
    step              size of the first step, > 0
    prune             weights with a smaller absolute value are set to 0
    """

    n_children: int
    lambda1: float
    lambda2: float
    epochs: int
    optimiser: int
    step: float
    prune: float


class Regressors(NamedTuple):
    """The regressors of a node while they are trained; m features.

    weights  float32[m + 1, 8]
    margins  float32[8]         w . x + b of the current row
    steps    float32[8]         its step: minus the gradient of the loss by the margin, times the
                                rate
    scales   float32[m + 1]     NAG: the largest size of each feature's values (the bias: 1); SGD:
                                float32[0]
    squares  float32[m + 1, 8]  NAG: the sum of each weight's squared gradients; SGD: float32[0, 8]
    """

    weights: F32
    margins: F32
    steps: F32
    scales: F32
    squares: F32


@nonallocating_inlined
def margins_of(problem: Problem, regressors: Regressors, i: Integer) -> None:
    """Write w . x + b of row i for each child into `margins`.

    It is computed as four sums: in a single sum, every addition would wait for the previous one.
    """
    weights = regressors.weights
    features = problem.features
    values = problem.values
    unit = np.float32(1)
    first = load8(weights, (len(weights) - 1) * EIGHT)
    second = zero8()
    third = second
    fourth = second
    e = problem.indptr[i]
    end = problem.indptr[i + 1]
    while e + 4 <= end:
        first = add_scaled8(first, values[place(e)], load8(weights, features[place(e)] * EIGHT))
        second = add_scaled8(
            second, values[place(e + 1)], load8(weights, features[place(e + 1)] * EIGHT)
        )
        third = add_scaled8(
            third, values[place(e + 2)], load8(weights, features[place(e + 2)] * EIGHT)
        )
        fourth = add_scaled8(
            fourth, values[place(e + 3)], load8(weights, features[place(e + 3)] * EIGHT)
        )
        e += 4
    while e < end:
        first = add_scaled8(first, values[place(e)], load8(weights, features[place(e)] * EIGHT))
        e += 1
    vstore(
        regressors.margins,
        0,
        add_scaled8(add_scaled8(first, unit, second), unit, add_scaled8(third, unit, fourth)),
    )


@nonallocating_inlined
def _step_sgd(problem: Problem, regressors: Regressors, i: Integer) -> None:
    """Add steps * (x, 1) of row i to the weights, and update the row's `margins` accordingly."""
    weights = regressors.weights
    step = load8(regressors.steps, 0)
    offset = (len(weights) - 1) * EIGHT
    vstore(weights, offset, add_scaled8(load8(weights, offset), np.float32(1), step))
    for e in range(problem.indptr[i], problem.indptr[i + 1]):
        offset = problem.features[place(e)] * EIGHT
        vstore(weights, offset, add_scaled8(load8(weights, offset), problem.values[place(e)], step))
    margins = load8(regressors.margins, 0)
    vstore(regressors.margins, 0, add_scaled8(margins, problem.squares[i] + np.float32(1), step))


@nonallocating_inlined
def _step_nag(
    problem: Problem,
    regressors: Regressors,
    i: Integer,
    rate: float,
    t: int,
    normal: float,
    n_children: int,
) -> float:
    """Take the normalised adaptive gradient step of row i; return N with this row.

    `steps` is minus the gradient of the loss by the margin.

    Source: Ross, Mineiro, Langford 2013, "Normalized online learning", algorithm 2 (NAG).
    Deviation: all rows of a node are known from the beginning, so the scale of a feature is the
    size of its largest value, and no weight has to be rescaled.

    t       number of rows so far, with this one
    normal  N of the previous rows: the sum of x_f^2 / scale_f^2 over the features and the bias
    """
    bias = len(regressors.weights) - 1
    first = problem.indptr[i]
    last = problem.indptr[i + 1]
    total = 1.0
    for e in range(first, last):
        share = np.float64(problem.values[e]) / regressors.scales[problem.features[e]]
        total += share * share
    normal += total
    rate *= np.sqrt(t / normal)
    for e in range(first, last + 1):
        f = problem.features[e] if e < last else bias
        value = problem.values[e] if e < last else np.float32(1)
        scale = np.float64(regressors.scales[f])
        for m in range(n_children):
            gradient = regressors.steps[m] * value / np.float32(scale)
            regressors.squares[f, m] += gradient * gradient
            if regressors.squares[f, m] > 0:
                change = np.float32(
                    rate * gradient / np.sqrt(np.float64(regressors.squares[f, m])) / scale
                )
                regressors.weights[f, m] += change
                regressors.margins[m] += change * value
    return normal


@nonallocating_inlined
def _logistic(margin: float) -> Any:
    return 1.0 / (1.0 + np.exp(-margin))


@kernel
def begin_regressors(problem: Problem, learning: Learning, state: U64) -> Regressors:
    """Return regressors with random weights and no bias."""
    n_used = len(problem.used)
    regressors = Regressors(
        np.zeros((n_used + 1, EIGHT), np.float32),
        np.zeros(EIGHT, np.float32),
        np.zeros(EIGHT, np.float32),
        np.full(n_used + 1 if learning.optimiser == NAG else 0, np.float32(LEAST_SCALE)),
        np.zeros((n_used + 1 if learning.optimiser == NAG else 0, EIGHT), np.float32),
    )
    bound = INIT / np.sqrt(max(1.0, len(problem.features) / max(1, len(problem.rows))))
    for f in range(n_used):
        for m in range(learning.n_children):
            share = np.float64(next_random(state) >> np.uint64(11)) / 9007199254740992.0
            regressors.weights[f, m] = (2.0 * share - 1.0) * bound
    if learning.optimiser == NAG:
        regressors.scales[n_used] = 1
        for e in range(len(problem.features)):
            f = problem.features[e]
            regressors.scales[f] = max(regressors.scales[f], abs(problem.values[e]))
    return regressors


@nonallocating_kernel
def _pass_over(
    problem: Problem,
    labels: NodeLabels,
    tally: Tally,
    regressors: Regressors,
    learning: Learning,
    lambda1: float,
    order: I32,
    visits: tuple[int, int],
    length: float,
    normal: float,
) -> float:
    """Visit every row once, as in the loop of algorithm 4; return N of NAG after the pass.

    visits  number of visits before this pass, and of all visits of the training
    length  divisor of SGD's step
    normal  N of NAG before the pass
    """
    done, n_visits = visits
    lambdas = lambda1, learning.lambda2
    for position in range(len(order)):
        i = np.int64(order[position])
        if learning.n_children == USUAL_CHILDREN:
            directions = best_directions(tally, USUAL_CHILDREN, labels, i, lambdas)
        else:
            directions = best_directions(tally, learning.n_children, labels, i, lambdas)
        margins_of(problem, regressors, i)
        rate = learning.step * (1.0 - done / n_visits)
        done += 1
        scale = 1.0 if learning.optimiser == NAG else rate / length
        for m in range(learning.n_children):
            towards = (directions >> m) & 1
            regressors.steps[m] = scale * (towards - _logistic(np.float64(regressors.margins[m])))
        if learning.optimiser == NAG:
            normal = _step_nag(problem, regressors, i, rate, done, normal, learning.n_children)
        else:
            _step_sgd(problem, regressors, i)
        for m in range(learning.n_children):
            tally.shares[m] = _logistic(np.float64(regressors.margins[m]))
        count_shares(tally, labels, i)
    return normal


@kernel
def train_regressors(
    problem: Problem, labels: NodeLabels, learning: Learning, lambda1: float, state: U64, stop: U8
) -> Regressors:
    """Train the regressors of a node.

    Source: LdSM, algorithm 4 (TrainRegressors). For each row it finds the directions with the least
    J (algorithm 3), takes one cross-entropy step of each regressor towards them, and adds the row
    to P_m and P_m^k with the share h. Deviations: h is the logistic function of the margin, instead
    of the clamped margin; rows are shuffled each epoch, and large nodes have fewer epochs
    (ROWS_USUAL); the step falls linearly from learning.step to 0 over the epochs; the step of SGD
    is divided by the largest squared length of a row if that is above 1.

    labels   each row has at least one
    lambda1  used in place of learning.lambda1
    state    uint64[1]  state of the random numbers; advanced
    stop     uint8[1]   set it to end after an epoch; the weights are then unfinished

    Cost: passes * (features of the rows * 8 + labels of the rows * M^2 + rows * 2^M). Memory: 32
    bytes for each feature that occurs (NAG: 68), 8 M for each label. Deterministic.
    """
    n_rows = len(problem.rows)
    tally = empty_tally(len(labels.used), learning.n_children)
    regressors = begin_regressors(problem, learning, state)
    order = np.arange(n_rows).astype(np.int32)
    epochs = max(1, round(learning.epochs * np.sqrt(min(1.0, ROWS_USUAL / n_rows))))
    length = 1.0
    for square in problem.squares:
        length = max(length, np.float64(square))
    normal = 0.0
    for epoch in range(epochs):
        shuffle(order, n_rows, state)
        visits = epoch * n_rows, n_rows * epochs
        normal = _pass_over(
            problem, labels, tally, regressors, learning, lambda1, order, visits, length, normal
        )
        if stop[0]:
            break
    return regressors
