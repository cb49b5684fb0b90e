"""Linear classifiers of 16 children at once, by dual coordinate descent.

A *tile* is 16 children of a node (fewer at its end). For child c, with y = +1 on the rows that
carry one of its labels and -1 on the node's other rows, a solver finds the w and b that minimise

    (|w|^2 + b^2) / 2 + sum over rows i of cost[i, c] * loss(y * (w . x + b))

The dual steps of the 16 problems are taken together: the margins of a row for all children are one
sum in vector registers, so that the indices and values of a row are read once for 16 classifiers. A
row that no child needs any more is not read.

Weights are float32[m + 1, 16], row m being the bias, and dual variables float32[n, 16]; both should
start on a cache line. Costs are float32[n, 16], or float32[1, 16] if they are those of all rows;
they are > 0, also beyond the last child. Everything is float32. The result depends on the arguments
alone. `stop` is uint8[1]: set it to end a solver after its epoch; the weights are then unfinished.
A solver of a tile returns the number of its epochs; if children are not done after `epochs_max`, it
returns minus the set of them (bit c: child c).
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.engine import place
from xylem.trainers.kernels.margins import add_tail, margin_of, tail_margins
from xylem.trainers.kernels.problem import Integer, Problem
from xylem.trainers.kernels.random import shuffle
from xylem_store import (
    F32,
    I32,
    LANES,
    U8,
    U16,
    inlined,
    kernel,
    nonallocating_inlined,
    prefetch,
    vadd,
    vbroadcast,
    vdiv,
    vgreater,
    vload,
    vlog,
    vmax,
    vmin,
    vmul,
    vnonzero,
    vselect,
    vstore,
    vsub,
)

_LINE = 16  # elements of four bytes in a cache line
INNER_SHARE = 0.1  # Newton steps of the logistic loss stop when the gradient is this share of eps
NEWTON_MAX = 20


class Tile(NamedTuple):
    """The arrays that a solver reads and writes, besides the problem; n rows, m features.

    positive  uint16[n]           the children (bits) for which each row is positive
    weights   float32[m + 1, 16]  zero at the first call; the result
    alpha     float32[n, 16]      dual variables; zero at the first call. A later call starts from
                                  these weights and dual variables
    order     int32[n]            workspace
    active    uint16[n]           workspace
    """

    positive: U16
    weights: F32
    alpha: F32
    order: I32
    active: U16


@nonallocating_inlined
def margins_of(problem: Problem, tile: Tile, i: Integer) -> Any:
    """Return w . x + b of row i for each child."""
    total = vload(tile.weights, (len(tile.weights) - 1) * LANES)
    for e in range(problem.indptr[place(i)], problem.indptr[place(i + 1)]):
        weight = vload(tile.weights, problem.features[place(e)] * LANES)
        total = vadd(total, vmul(vbroadcast(problem.values[place(e)]), weight))
    return vadd(total, tail_margins(problem, tile.weights, i))


@nonallocating_inlined
def add_row(problem: Problem, tile: Tile, i: Integer, step: Any) -> None:
    """Add step * (x, 1) of row i to the weights and bias of each child."""
    bias = (len(tile.weights) - 1) * LANES
    vstore(tile.weights, bias, vadd(vload(tile.weights, bias), step))
    for e in range(problem.indptr[place(i)], problem.indptr[place(i + 1)]):
        offset = problem.features[place(e)] * LANES
        change = vmul(vbroadcast(problem.values[place(e)]), step)
        vstore(tile.weights, offset, vadd(vload(tile.weights, offset), change))
    add_tail(problem, tile.weights, i, step)


@nonallocating_inlined
def _expect_row(problem: Problem, tile: Tile, i: Integer) -> None:
    """Prefetch row i into the cache."""
    prefetch(tile.alpha, i * LANES)
    for e in range(problem.indptr[place(i)], problem.indptr[place(i + 1)], _LINE):
        prefetch(problem.features, e)
        prefetch(problem.values, e)
    n_tail = problem.tails.shape[1]
    for j in range(0, n_tail, _LINE):
        prefetch(problem.tails, i * n_tail + j)


@nonallocating_inlined
def _hinge_step(
    problem: Problem, tile: Tile, i: Integer, live: Integer, diagonal: Any, above: Any
) -> Any:
    """Take the dual step of row i for the live children.

    diagonal  0.5 / cost of the row

    Returns the projected gradient (0 for other children), and the set of children that do not need
    the row any more: their dual variable is 0, and their gradient is larger than `above`.
    """
    zero = vbroadcast(0.0)
    y = vselect(np.int64(tile.positive[place(i)]), vbroadcast(1.0), vbroadcast(-1.0))
    alpha = vload(tile.alpha, i * LANES)
    gradient = vsub(vmul(y, margins_of(problem, tile, i)), vbroadcast(1.0))
    gradient = vadd(gradient, vmul(alpha, diagonal))
    bound = ~vgreater(alpha, zero)
    projected = vselect(live, vselect(bound, vmin(gradient, zero), gradient), zero)
    curvature = vadd(vbroadcast(problem.squares[place(i)] + np.float32(1)), diagonal)
    target = vmax(vsub(alpha, vdiv(gradient, curvature)), zero)
    delta = vselect(live, vsub(target, alpha), zero)
    if vnonzero(delta):
        vstore(tile.alpha, i * LANES, vadd(alpha, delta))
        add_row(problem, tile, i, vmul(y, delta))
    return projected, bound & live & vgreater(gradient, above)


@nonallocating_inlined
def _hinge_epoch(
    problem: Problem, tile: Tile, n_active: int, done: int, diagonal: F32, extent: F32
) -> int:
    """Visit the first n_active rows of `order`; return how many of them a child still needs.

    done      the children (bits) that are done
    diagonal  0.5 / costs
    extent    float32[3, 16]  on return extent[0] and extent[1] are the largest and the least
            projected gradient of each child. extent[2] is the largest of the epoch before (inf: not
            known): a variable at its bound is dropped if its gradient is larger
    """
    largest = vbroadcast(0.0)
    least = vbroadcast(0.0)
    above = vload(extent, 2 * LANES)
    stride = LANES if len(diagonal) > 1 else 0
    k = 0
    while k < n_active:
        i = np.int64(tile.order[place(k)])
        live = np.int64(tile.active[place(i)])
        if live & ~done == 0:
            n_active -= 1
            tile.order[place(k)] = tile.order[place(n_active)]
            tile.order[place(n_active)] = i
            continue
        if k + 1 < n_active:
            _expect_row(problem, tile, np.int64(tile.order[place(k + 1)]))
        projected, dropped = _hinge_step(problem, tile, i, live, vload(diagonal, i * stride), above)
        tile.active[place(i)] = live & ~dropped
        largest = vmax(largest, projected)
        least = vmin(least, projected)
        k += 1
    vstore(extent, 0, largest)
    vstore(extent, LANES, least)
    return n_active


@inlined
def _start(tile: Tile, lanes: int, extent: F32) -> None:
    """Make every row active for the children of the tile."""
    extent[2] = np.inf
    tile.active[:] = lanes


@kernel
def solve_squared_hinge(
    problem: Problem,
    tile: Tile,
    n_children: int,
    cost: F32,
    eps: float,
    epochs_max: int,
    seed: int,
    stop: U8,
) -> int:
    """Train the classifiers of a tile with the loss max(0, 1 - margin)^2.

    Source: Hsieh et al. 2008, algorithm 3 (dual coordinate descent with shrinking), as in solver 1
    of LIBLINEAR. A child is done when its largest and its least projected gradient differ by at
    most eps. When all children are done on the rows that shrinking has left, an epoch over all rows
    checks it. Cost: an epoch reads every active row once.
    """
    lanes = (1 << n_children) - 1
    diagonal = np.float32(0.5) / cost
    state = np.full(1, seed, np.uint64)
    extent = np.empty((3, LANES), np.float32)
    _start(tile, lanes, extent)
    n_rows = len(tile.order)
    tile.order[:] = np.arange(n_rows)
    n_active = n_rows
    done = ~lanes
    all_active = True
    for epoch in range(epochs_max):
        shuffle(tile.order, n_active, state)
        n_active = _hinge_epoch(problem, tile, n_active, done, diagonal, extent)
        for c in range(n_children):
            if extent[0, c] - extent[1, c] <= eps:
                done |= 1 << c
            extent[2, c] = extent[0, c] if extent[0, c] > 0 else np.inf
        if stop[0] or (done == -1 and all_active):
            return epoch + 1
        all_active = done == -1
        if all_active:
            done = ~lanes
            n_active = n_rows
            _start(tile, lanes, extent)
    return -(~done)


# `solve_one` leaves a row out, until all others are done, if its dual variable is 0 and its
# gradient is larger than DROP * eps.
DROP = 0.1


@kernel
def solve_one(
    problem: Problem, positive: U16, cost: F32, eps: float, epochs_max: int, seed: int, stop: U8
) -> F32:
    """Return float32[m + 1]: the weights of one classifier, trained as in `solve_squared_hinge`.

    If there are few children, this is faster than a tile of 16. Rows are left out earlier (DROP).

    positive  uint16[n]   1 or 0
    cost      float32[n]  of each row
    """
    zero = np.float32(0)
    unit = np.float32(1)
    n_rows = len(positive)
    weights = np.zeros(len(problem.used) + 1, np.float32)
    alpha = np.zeros(n_rows, np.float32)
    order = np.arange(n_rows).astype(np.int32)
    state = np.full(1, seed, np.uint64)
    n_active = n_rows
    all_active = False
    for _ in range(epochs_max):
        shuffle(order, n_active, state)
        largest = zero
        least = zero
        k = 0
        while k < n_active:
            i = order[k]
            y = unit if positive[i] else -unit
            diagonal = np.float32(0.5) / cost[i]
            gradient = y * margin_of(problem, weights, i) - unit + alpha[i] * diagonal
            if alpha[i] <= 0 and gradient > DROP * eps:
                n_active -= 1
                order[k] = order[n_active]
                order[n_active] = i
                continue
            k += 1
            projected = gradient if alpha[i] > 0 else min(gradient, zero)
            largest = max(largest, projected)
            least = min(least, projected)
            target = max(alpha[i] - gradient / (problem.squares[i] + unit + diagonal), zero)
            step = y * (target - alpha[i])
            if step != 0:
                alpha[i] = target
                weights[len(weights) - 1] += step
                for e in range(problem.indptr[i], problem.indptr[i + 1]):
                    weights[place(problem.features[place(e)])] += problem.values[place(e)] * step
                first = len(weights) - 1 - problem.tails.shape[1]
                for j in range(problem.tails.shape[1]):
                    weights[place(first + j)] += problem.tails[i, j] * step
        is_done = bool(largest - least <= eps)
        if stop[0] or (is_done and all_active):
            break
        all_active = is_done
        if all_active:
            n_active = n_rows
    return weights


@nonallocating_inlined
def _newton(q: Any, slope: Any, cost: Any, old: Any, need_above: Any, lanes: int) -> Any:
    """Minimise the logistic dual along one variable for each child.

    Source: Yu, Huang, Lin 2011, algorithm 4: z minimises z log z + (cost - z) log(cost - z) + q (z
    - old)^2 / 2 + slope (z - old). If a Newton step leaves (0, cost), z is divided by 10 instead.
    Returns z, the size of the gradient at the start, and the set of children that moved.
    """
    tenth = vbroadcast(0.1)
    least = vbroadcast(1e-30)
    z = vselect(vgreater(old, vmul(vbroadcast(0.5), cost)), vmul(tenth, old), old)
    remainder = vsub(cost, z)
    gradient = vadd(vadd(vmul(q, vsub(z, old)), slope), vlog(vdiv(z, remainder)))
    first = vmax(gradient, vsub(vbroadcast(0.0), gradient))
    need = vgreater(first, need_above) & lanes
    moved = need
    for _ in range(NEWTON_MAX):
        if need == 0:
            break
        curvature = vadd(q, vdiv(cost, vmul(remainder, z)))
        target = vsub(z, vdiv(gradient, curvature))
        target = vselect(vgreater(target, vbroadcast(0.0)), target, vmul(tenth, z))
        target = vmin(vmax(target, least), vmul(cost, vbroadcast(0.999999)))
        z = vselect(need, target, z)
        remainder = vsub(cost, z)
        gradient = vadd(vadd(vmul(q, vsub(z, old)), slope), vlog(vdiv(z, remainder)))
        need &= vgreater(vmax(gradient, vsub(vbroadcast(0.0), gradient)), need_above)
    return vselect(moved, z, old), first, moved


@nonallocating_inlined
def _logistic_step(
    problem: Problem, tile: Tile, i: Integer, lanes: int, cost: Any, inner: Any
) -> Any:
    """Take the dual step of row i; return the size of each child's gradient.

    A pair of dual variables (a, cost - a) is stored as its smaller member, which keeps its digits:
    a > 0 when a is the smaller, else -(cost - a).
    """
    zero = vbroadcast(0.0)
    y = vselect(np.int64(tile.positive[place(i)]), vbroadcast(1.0), vbroadcast(-1.0))
    stored = vload(tile.alpha, i * LANES)
    low = vgreater(stored, zero)
    a = vselect(low, stored, vadd(cost, stored))
    other = vselect(low, vsub(cost, stored), vsub(zero, stored))
    q = vbroadcast(problem.squares[place(i)] + np.float32(1))
    slope = vmul(y, margins_of(problem, tile, i))
    middle = vmul(vmul(vbroadcast(0.5), q), vsub(other, a))
    swap = vgreater(zero, vadd(middle, slope))
    old = vselect(swap, other, a)
    slope = vselect(swap, vsub(zero, slope), slope)
    z, size, moved = _newton(q, slope, cost, old, inner, lanes)
    if moved:
        remainder = vsub(cost, z)
        a = vselect(swap, remainder, z)
        other = vselect(swap, z, remainder)
        stored = vselect(moved, vselect(vgreater(a, other), vsub(zero, other), a), stored)
        vstore(tile.alpha, i * LANES, stored)
        step = vmul(y, vsub(z, old))
        add_row(problem, tile, i, vselect(swap, vsub(zero, step), step))
    return size


@nonallocating_inlined
def _logistic_epoch(problem: Problem, tile: Tile, lanes: int, cost: F32, inner: Any) -> Any:
    """Visit all rows in the order of the tile; return the size of each child's largest gradient."""
    stride = LANES if len(cost) > 1 else 0
    largest = vbroadcast(0.0)
    for k in range(len(tile.order)):
        if k + 1 < len(tile.order):
            _expect_row(problem, tile, np.int64(tile.order[place(k + 1)]))
        row = np.int64(tile.order[place(k)])
        size = _logistic_step(problem, tile, row, lanes, vload(cost, row * stride), inner)
        largest = vmax(largest, size)
    return largest


@kernel
def solve_logistic(
    problem: Problem,
    tile: Tile,
    n_children: int,
    cost: F32,
    eps: float,
    epochs_max: int,
    seed: int,
    stop: U8,
) -> int:
    """Train the classifiers of a tile with the loss log(1 + exp(-margin)).

    Source: Yu, Huang, Lin 2011, algorithm 5 (dual coordinate descent), as in solver 7 of LIBLINEAR,
    but with the inner accuracy INNER_SHARE * eps throughout. It ends when no gradient of any child
    exceeds eps in an epoch. Cost: an epoch reads every row once.
    """
    n_rows = len(tile.order)
    lanes = (1 << n_children) - 1
    undone = lanes
    stride = LANES if len(cost) > 1 else 0
    inner = vbroadcast(INNER_SHARE * eps)
    state = np.full(1, seed, np.uint64)
    for i in range(n_rows):
        tile.order[i] = i
        if not vnonzero(vload(tile.alpha, i * LANES)):
            y = vselect(np.int64(tile.positive[place(i)]), vbroadcast(1.0), vbroadcast(-1.0))
            alpha = vmin(vmul(vbroadcast(0.001), vload(cost, i * stride)), vbroadcast(1e-8))
            vstore(tile.alpha, i * LANES, alpha)
            add_row(problem, tile, i, vmul(y, alpha))
    for epoch in range(epochs_max):
        shuffle(tile.order, n_rows, state)
        undone = (
            vgreater(_logistic_epoch(problem, tile, lanes, cost, inner), vbroadcast(eps)) & lanes
        )
        if stop[0] or undone == 0:
            return epoch + 1
    return -undone
