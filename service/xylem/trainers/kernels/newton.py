"""Further training of linear classifiers of 16 children at once, by a Newton step in the primal.

The step minimises the same function as a solver of `xylem.trainers.kernels.solver`, starting from
old weights that are near the minimum. A dual solver would start far away from it: weights that were
pruned cannot be written as a sum of rows times dual variables.

Sources: Tsai, Lin and Lin 2014, "Incremental and decremental training for linear classification"
(primal methods are better suited to start from old weights); Lin, Weng and Keerthi 2008, "Trust
region Newton method for logistic regression" (the direction by conjugate gradients). Deviation: one
full step without a trust region, because the old weights are near the optimum.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.trainers.kernels.problem import Problem
from xylem.trainers.kernels.solver import Tile, add_row, margins_of
from xylem_store import (
    F32,
    LANES,
    U8,
    U16,
    inlined,
    kernel,
    vadd,
    vbroadcast,
    vdiv,
    vgreater,
    vload,
    vmax,
    vmul,
    vnonzero,
    vselect,
    vstore,
    vsub,
)

# most steps of conjugate gradients: on debdeps-src the objective is then within 1% of the minimum
PASSES = 5

# Conjugate gradients end earlier when the squared length of the residual is at most this share of
# the squared length of the gradient, that is, when the residual has a tenth of the gradient's
# length.
_SHARE = 0.01


@inlined
def _dot(a: F32, b: F32) -> Any:
    """Return the inner product of the columns of a and b for each child."""
    total = vbroadcast(0.0)
    for f in range(len(a)):
        total = vadd(total, vmul(vload(a, f * LANES), vload(b, f * LANES)))
    return total


@inlined
def _add_scaled(a: F32, factor: Any, b: F32) -> None:
    """Add factor * b to a; each child has its own factor."""
    for f in range(len(a)):
        vstore(a, f * LANES, vadd(vload(a, f * LANES), vmul(factor, vload(b, f * LANES))))


@inlined
def _with(tile: Tile, weights: F32) -> Tile:
    return Tile(tile.positive, weights, tile.alpha, tile.order, tile.active)


class OldRows(NamedTuple):
    """The rows of a tile on which its old weights were trained.

    positive  uint16[n]   the children (bits) for which each row was positive then
    is_old    uint8[n]    1 if the old weights were trained on the row; all 0: they are not known
    weight    float32[n]  number of rows whose curvature is taken to be that of this row
    """

    positive: U16
    is_old: U8
    weight: F32


def no_old_rows(n_rows: int) -> OldRows:
    """Return the value for old weights that were trained on none of the rows."""
    return OldRows(
        np.zeros(n_rows, np.uint16), np.zeros(n_rows, np.uint8), np.ones(n_rows, np.float32)
    )


@inlined
def _slope(tile: Tile, i: int, positive: Any, margins: Any, cost: F32, logistic: bool) -> Any:
    """Return the negative derivative of row i's loss by w . x + b, for each child.

    Writes the second derivative into the row of `tile.alpha`.

    positive  the children (bits) for which the row is positive
    margins   w . x + b for each child
    """
    y = vselect(np.int64(positive), vbroadcast(1.0), vbroadcast(-1.0))
    margins = vmul(y, margins)
    if not logistic:
        shortfall = vmax(vbroadcast(0.0), vsub(vbroadcast(1.0), margins))
        double_cost = vadd(vload(cost, 0), vload(cost, 0))
        is_short = vgreater(shortfall, vbroadcast(0.0))
        vstore(tile.alpha, i * LANES, vselect(is_short, double_cost, vbroadcast(0.0)))
        return vmul(y, vmul(double_cost, shortfall))
    vstore(tile.alpha, i * LANES, margins)
    for c in range(LANES):
        tile.alpha[i, c] = 1.0 / (1.0 + np.exp(min(tile.alpha[i, c], np.float32(80.0))))
    share = vload(tile.alpha, i * LANES)
    step = vmul(vload(cost, 0), share)
    vstore(tile.alpha, i * LANES, vmul(step, vsub(vbroadcast(1.0), share)))
    return vmul(y, step)


@kernel
def refine(
    problem: Problem,
    tile: Tile,
    cost: F32,
    logistic: bool,
    old_rows: OldRows,
    is_optimal: bool,
    stop: U8,
) -> None:
    """Move the weights of a tile towards the optimum by one Newton step.

    logistic    whether the loss is logistic; else it is the squared hinge
    is_optimal  whether the weights are the optimum for the old rows. Then only rows that are new,
                or positive for other children than before, have a gradient; the other rows are only
                needed for the curvature, for which a sample of them is enough

    Cost: every row is read once, and once for each of PASSES; memory of three times the weights.
    """
    tiny = vbroadcast(1e-30)
    residual = np.empty_like(tile.weights)
    direction = np.empty_like(residual)
    product = np.empty_like(residual)
    if is_optimal:
        residual[:] = 0
    else:
        residual[:] = -tile.weights
    for i in range(len(tile.order)):  # the row's gradient now, less its gradient as an old row
        margins = margins_of(problem, tile, i)
        slope = vbroadcast(0.0)
        if old_rows.is_old[i]:
            slope = vsub(slope, _slope(tile, i, old_rows.positive[i], margins, cost, logistic))
        slope = vadd(slope, _slope(tile, i, tile.positive[i], margins, cost, logistic))
        vstore(
            tile.alpha,
            i * LANES,
            vmul(vbroadcast(old_rows.weight[i]), vload(tile.alpha, i * LANES)),
        )
        if vnonzero(slope):
            add_row(problem, _with(tile, residual), i, slope)
    direction[:] = residual
    square = _dot(residual, residual)
    threshold = vmul(square, vbroadcast(_SHARE))
    for _ in range(PASSES):
        product[:] = direction
        for i in range(len(tile.order)):
            curved = vmul(
                vload(tile.alpha, i * LANES), margins_of(problem, _with(tile, direction), i)
            )
            if vnonzero(curved):
                add_row(problem, _with(tile, product), i, curved)
        length = vdiv(square, vmax(tiny, _dot(direction, product)))
        _add_scaled(tile.weights, length, direction)
        _add_scaled(residual, vsub(vbroadcast(0.0), length), product)
        old_square = square
        square = _dot(residual, residual)
        ratio = vdiv(square, vmax(tiny, old_square))
        for f in range(len(direction)):
            offset = f * LANES
            vstore(
                direction,
                offset,
                vadd(vload(residual, offset), vmul(ratio, vload(direction, offset))),
            )
        if stop[0] or not vgreater(square, threshold):
            break
