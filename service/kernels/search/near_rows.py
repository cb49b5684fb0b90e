"""Features of a candidate by the training rows near to the row that is answered (`model_store.near`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.handles import F32_1, I32_1, I64_1, U8_1, handle
from model_store.near import NEAR_FEATURES, ZERO
from service.kernels.search.call import Rows

N_NEAR = len(NEAR_FEATURES)

BEST = 10
"""Labels of the first member by which others are expected."""

_ZERO, _MIDDLE = np.float32(0.0), np.float32(ZERO)
_THIRD = np.float32(1 / 3)


@handle
class NearSearch(NamedTuple):
    """The arrays of NearRows, and what a row takes.

    dense  float32[columns of the first member]  the row that is answered, at length 1; zeros between rows
           Empty where the version has no near rows: nothing is done then.
    expected  float32[candidates]  how often a candidate was true where the best labels were
    best   int32[BEST]  the first member's best labels
    """

    label_ptr: I64_1
    label_row: I32_1
    row_ptr: I64_1
    feature: I32_1
    value: U8_1
    scale: F32_1
    other_ptr: I64_1
    other_label: I32_1
    other_share: F32_1
    dense: F32_1
    expected: F32_1
    best: I32_1


@inlined
def spread_row(rows: Rows, row: int, near: NearSearch) -> None:
    """Set `dense` to a row, divided by its length. Columns of other members and of names are passed over."""
    low, high, n_columns = rows.indptr[row], rows.indptr[row + 1], len(near.dense)
    squares = _ZERO
    for at in range(low, high):
        if rows.indices[at] >= n_columns:
            break
        squares += rows.values[at] * rows.values[at]
    scale = np.float32(1.0) / np.sqrt(squares) if squares > _ZERO else _ZERO
    for at in range(low, high):
        if rows.indices[at] >= n_columns:
            break
        near.dense[rows.indices[at]] = rows.values[at] * scale


@inlined
def clear_row(rows: Rows, row: int, near: NearSearch) -> None:
    """Clear what `spread_row` has set."""
    for at in range(rows.indptr[row], rows.indptr[row + 1]):
        if rows.indices[at] >= len(near.dense):
            break
        near.dense[rows.indices[at]] = _ZERO


@inlined
def expect_candidates(
    n: int,
    slot: NDArray[np.int32],
    scores: NDArray[np.float32],
    n_best: int,
    near: NearSearch,
) -> None:
    """Set `expected` of the n candidates: the mean over the best labels of their shares, by their scores.

    slot    the places of labels among the candidates, below 0 of others
    scores  of `best`, the greatest first: n_best of them
    """
    for i in range(n):
        near.expected[i] = _ZERO
    total = _ZERO
    for i in range(min(BEST, n_best)):
        total += scores[i]
        if near.best[i] < 0:
            continue
        for at in range(near.other_ptr[near.best[i]], near.other_ptr[near.best[i] + 1]):
            place = slot[near.other_label[at]]
            if place >= 0:
                near.expected[place] += scores[i] * near.other_share[at]
    for i in range(n):
        near.expected[i] = near.expected[i] / total if total > _ZERO else _ZERO


@inlined
def describe_near(
    near: NearSearch, label: int, place: int, features_out: NDArray[np.float32], first: int
) -> None:
    """Set features_out[first : first + N_NEAR] to NEAR_FEATURES of a label, which is at `place` a candidate.

    Cost: a product for each feature of its rows.
    """
    greatest = second = third = cubes = total = _ZERO
    begin, end = near.label_ptr[label], near.label_ptr[label + 1]
    for own in range(begin, end):
        row = near.label_row[own]
        product = _ZERO
        for at in range(near.row_ptr[row], near.row_ptr[row + 1]):
            product += near.dense[near.feature[at]] * (np.float32(near.value[at]) - _MIDDLE)
        cosine = product * near.scale[row]
        total += cosine
        cubes += cosine * cosine * cosine
        if cosine > greatest:
            greatest, second, third = cosine, greatest, second
        elif cosine > second:
            second, third = cosine, second
        elif cosine > third:
            third = cosine
    features_out[first] = greatest
    features_out[first + 1] = (greatest + second + third) * _THIRD
    features_out[first + 2] = cubes
    features_out[first + 3] = total / np.float32(end - begin) if end > begin else _ZERO
    features_out[first + 4] = near.expected[place]
