"""The tail of a row: its last features, which have a dense row in every chunk (see `scorer`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.engine.kernels.search.workspace import Workspace
from xylem_store import (
    F32,
    I32,
    LANES,
    nonallocating_inlined as inlined,
    vadd,
    vbroadcast,
    vload,
    vmul,
    vstore,
)


@inlined
def n_before_tail(indices: I32, work: Workspace) -> int:
    """Return how many features of a row are looked up: those before its last run in the tail.

    The tail of a model may be longer than that of its rows, if some words are in every chunk too.
    Features ascend, so the last `size` of a row are a run if the first of them is in its place.
    """
    n = len(indices)
    end = work.tail_end
    if n == 0 or work.tail_features == 0 or indices[n - 1] != end - 1:
        return n
    size = min(n, work.tail_features)
    while indices[n - size] != end - size:
        size -= 1
    return n - size


@inlined
def note_tail(work: Workspace, stage: int, low: int, n_before: int, high: int) -> None:
    """Note where the row's values of the tail begin, and how many there are.

    low, high  where the row begins and ends
    n_before   as `n_before_tail` returns it
    """
    work.counts[stage, 3] = low + n_before
    work.counts[stage, 4] = high - low - n_before


@inlined
def add_tail(
    dense: NDArray[Any], first: np.int64, width: np.int64, values: F32, margins: F32
) -> None:
    """Add the tail's dense rows, which follow each other from `first` on, times its values.

    Each vector of children is added in the order of the features, whatever its neighbours are.
    """
    tile = 0
    while tile + 4 * LANES <= width:
        sum_0 = vload(margins, tile)
        sum_1 = vload(margins, tile + LANES)
        sum_2 = vload(margins, tile + 2 * LANES)
        sum_3 = vload(margins, tile + 3 * LANES)
        position = first + tile
        for i in range(len(values)):
            value = vbroadcast(values[np.uint64(i)])
            sum_0 = vadd(sum_0, vmul(value, vload(dense, position)))
            sum_1 = vadd(sum_1, vmul(value, vload(dense, position + LANES)))
            sum_2 = vadd(sum_2, vmul(value, vload(dense, position + 2 * LANES)))
            sum_3 = vadd(sum_3, vmul(value, vload(dense, position + 3 * LANES)))
            position += width
        vstore(margins, tile, sum_0)
        vstore(margins, tile + LANES, sum_1)
        vstore(margins, tile + 2 * LANES, sum_2)
        vstore(margins, tile + 3 * LANES, sum_3)
        tile += 4 * LANES
    while tile + 2 * LANES <= width:
        sum_0 = vload(margins, tile)
        sum_1 = vload(margins, tile + LANES)
        position = first + tile
        for i in range(len(values)):
            value = vbroadcast(values[np.uint64(i)])
            sum_0 = vadd(sum_0, vmul(value, vload(dense, position)))
            sum_1 = vadd(sum_1, vmul(value, vload(dense, position + LANES)))
            position += width
        vstore(margins, tile, sum_0)
        vstore(margins, tile + LANES, sum_1)
        tile += 2 * LANES
    if tile < width:
        sum_0 = vload(margins, tile)
        position = first + tile
        for i in range(len(values)):
            sum_0 = vadd(sum_0, vmul(vbroadcast(values[np.uint64(i)]), vload(dense, position)))
            position += width
        vstore(margins, tile, sum_0)
