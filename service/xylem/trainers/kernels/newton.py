"""Linear classifiers of 16 children at once that go on from old
weights, by a Newton step in the primal.

What a solver of `xylem.trainers.kernels.solver` minimises, from weights that are near. Weights that
were pruned are no sum of rows with dual variables any more, so that a dual solver would begin far
away.

Sources: Tsai, Lin and Lin 2014, "Incremental and decremental training for linear classification"
(primal methods are the ones to begin from old weights); Lin, Weng and Keerthi 2008, "Trust region
Newton method for logistic regression" (the direction by conjugate gradients). Deviation: one whole
step, without a trust region: old weights are near the optimum.
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

# conjugate gradients, at most: on debdeps-src the sum that is minimised is within 1% then
PASSES = 5
_SHARE = 0.01
"""They end sooner when the square of the residual is this share of the
gradient's: a tenth of its length.
"""


@inlined
def _dot(a: F32, b: F32) -> Any:
    """Return the inner product of each child's column."""
    total = vbroadcast(0.0)
    for f in range(len(a)):
        total = vadd(total, vmul(vload(a, f * LANES), vload(b, f * LANES)))
    return total


@inlined
def _add_scaled(a: F32, factor: Any, b: F32) -> None:
    """Add factor * b to a, a factor for each child."""
    for f in range(len(a)):
        vstore(a, f * LANES, vadd(vload(a, f * LANES), vmul(factor, vload(b, f * LANES))))


@inlined
def _with(tile: Tile, weights: F32) -> Tile:
    return Tile(tile.positive, weights, tile.alpha, tile.order, tile.active)


class OldRows(NamedTuple):
    """What the old weights were trained on, of the n rows of a tile.

    positive  uint16[n]   the children that each row was positive for
    was       uint8[n]    1 where it was among the rows; nowhere: nothing is known
    weight    float32[n]  the curvature of so many rows is that of this one
    """

    positive: U16
    is_old: U8
    weight: F32


def no_old_rows(n_rows: int) -> OldRows:
    """Return that old weights are of other rows altogether."""
    no_rows = np.zeros(n_rows, np.uint8)
    return OldRows(np.zeros(n_rows, np.uint16), no_rows, np.ones(n_rows, np.float32))


@inlined
def _slope(tile: Tile, i: int, positive: Any, margins: Any, cost: F32, logistic: bool) -> Any:
    """Return -d loss / d margin of row i, times y; write the
    second derivative in place of its alpha.

    positive  the children that it is positive for
    margins   w . x + b of each
    """
    y = vselect(np.int64(positive), vbroadcast(1.0), vbroadcast(-1.0))
    margins = vmul(y, margins)
    if not logistic:
        short = vmax(vbroadcast(0.0), vsub(vbroadcast(1.0), margins))
        twice = vadd(vload(cost, 0), vload(cost, 0))
        is_short = vgreater(short, vbroadcast(0.0))
        vstore(tile.alpha, i * LANES, vselect(is_short, twice, vbroadcast(0.0)))
        return vmul(y, vmul(twice, short))
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
    """Bring the weights of a tile nearer to the optimum; its loss
    is logistic, or the squared hinge.

    is_optimal  the weights are the optimum of what is known: then only rows that are new, or
                positive for other children, pull at them, and of all others some are enough, for
                the curvature

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
    for i in range(len(tile.order)):  # what it pulls at the weights, less what it pulled before
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
    enough = vmul(square, vbroadcast(_SHARE))
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
        if stop[0] or not vgreater(square, enough):
            break
