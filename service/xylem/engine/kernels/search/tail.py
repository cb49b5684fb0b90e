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


# So many vectors of children of each of two rows are added in a pass; of a row alone twice as many.
#
# An addition waits four cycles for the one before, so fewer than four sums take as long as four.
# With four in all, a search with 384 numbers took 2.8 times that of words alone, not 2.2 times.
_HALF = 3


@inlined
def add_tails(
    dense: NDArray[Any],
    first: np.int64,
    width: Any,
    values: tuple[F32, F32],
    margins: tuple[F32, F32],
    is_pair: bool,
) -> None:
    """Add the tail's dense rows, which follow each other from `first` on, times its values.

    width            np.int64; made an int here, the search would take a third longer
    values, margins  of two rows, or twice of the same one
    is_pair          whether there are two rows. Then the weights, which come from the second cache,
                     are read for both at once

    Each vector of children is added in the order of the features, whatever its neighbours are.
    """
    second = 0 if is_pair else _HALF  # the vector of children that sum_3 has
    tile = 0
    while tile < width:
        n = min((width - tile + LANES - 1) // LANES, second + _HALF)
        place_1 = tile + min(1, n - 1) * LANES
        place_2 = tile + min(2, n - 1) * LANES
        place_3 = tile + min(second, n - 1) * LANES
        place_4 = tile + min(second + 1, n - 1) * LANES
        place_5 = tile + min(second + 2, n - 1) * LANES
        sum_0 = vload(margins[0], tile)
        sum_1 = vload(margins[0], place_1)
        sum_2 = vload(margins[0], place_2)
        sum_3 = vload(margins[1], place_3)
        sum_4 = vload(margins[1], place_4)
        sum_5 = vload(margins[1], place_5)
        position = first + tile
        middle = position + second * LANES
        for i in range(len(values[0])):
            value = vbroadcast(values[0][np.uint64(i)])
            other = vbroadcast(values[1][np.uint64(i)])
            sum_0 = vadd(sum_0, vmul(value, vload(dense, position)))
            if n > 1:
                sum_1 = vadd(sum_1, vmul(value, vload(dense, position + LANES)))
            if n > 2:
                sum_2 = vadd(sum_2, vmul(value, vload(dense, position + 2 * LANES)))
            if n > second:
                sum_3 = vadd(sum_3, vmul(other, vload(dense, middle)))
            if n > second + 1:
                sum_4 = vadd(sum_4, vmul(other, vload(dense, middle + LANES)))
            if n > second + 2:
                sum_5 = vadd(sum_5, vmul(other, vload(dense, middle + 2 * LANES)))
            position += width
            middle += width
        # what was not added lies on the last vector, which is stored after it
        vstore(margins[1], place_5, sum_5)
        vstore(margins[1], place_4, sum_4)
        vstore(margins[1], place_3, sum_3)
        vstore(margins[0], place_2, sum_2)
        vstore(margins[0], place_1, sum_1)
        vstore(margins[0], tile, sum_0)
        tile += n * LANES
