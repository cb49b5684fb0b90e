"""Features of a candidate by the training rows near to the row that is answered (`model_store.near`)."""

from typing import NamedTuple

import numpy as np

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.handles import F32, F32_1, F32_2, I32, I32_1, I64_1, U8_1, handle
from model_store.near import NEAR_FEATURES, NEAREST, ZERO
from service.kernels.search.call import Rows
from service.kernels.search.heaps import keep_best

N_NEAR = len(NEAR_FEATURES)

BEST = 10
"""Labels of the first member by which others are expected."""

UNSEEN = np.float32(-1e30)
"""In the place of a cosine that was not measured: below any sum of products, scaled or not."""

_VOTES, _EXPECTED, _COMPARED = 4, 7, (0, 2, 7)
"""Among NEAR_FEATURES: the first that is of votes, what the best labels expect, those that are compared."""

_ZERO, _MIDDLE = np.float32(0.0), np.float32(ZERO)
_THIRD = np.float32(1 / 3)


@handle
class NearSearch(NamedTuple):
    """The arrays of NearRows, and what a row takes.

    n_columns  of the first member; 0 where the version has no near rows: nothing is done then
    features  float32[candidates, N_NEAR]  NEAR_FEATURES of the candidates
    best   int32[BEST]  the first member's best labels
    cosine  float32[rows]  with the row that is answered; UNSEEN between rows
    seen    int32[rows + 1]  rows that have a feature of it, each once
    best_cosine, best_row  [NEAREST]  the heap of rows
    """

    label_ptr: I64_1
    label_row: I32_1
    feature: I32_1
    feature_ptr: I64_1
    row: I32_1
    value: U8_1
    scale: F32_1
    row_label_ptr: I64_1
    row_label: I32_1
    other_ptr: I64_1
    other_label: I32_1
    other_share: F32_1
    n_columns: int
    features: F32_2
    best: I32_1
    cosine: F32_1
    seen: I32_1
    best_cosine: F32_1
    best_row: I32_1


@inlined
def measure_rows(rows: Rows, row: int, near: NearSearch) -> tuple[int, int]:
    """Set the cosines between a row and all that have a feature of it, which are left in `seen`.

    Returns how many these are, and how many of the nearest are in the heap. Columns of other members and of
    names are passed over. Cost: for each feature of the row a search, and at most POSTINGS_MAX products.
    """
    low, high = rows.indptr[row], rows.indptr[row + 1]
    squares, end = _ZERO, low
    while end < high and rows.indices[end] < near.n_columns:
        squares += rows.values[end] * rows.values[end]
        end += 1
    length = np.float32(1.0) / np.sqrt(squares) if squares > _ZERO else _ZERO
    n_seen, place = 0, 0
    for at in range(low, end):
        place = first_from(near.feature, place, len(near.feature), rows.indices[at])
        if place == len(near.feature) or near.feature[place] != rows.indices[at]:
            continue
        value = rows.values[at] * length
        for i in range(near.feature_ptr[place], near.feature_ptr[place + 1]):
            other = near.row[i]
            sum_before = near.cosine[other]
            is_first = sum_before <= UNSEEN  # without a branch, which could not be foretold
            near.seen[n_seen] = other
            n_seen += is_first
            product = value * (np.float32(near.value[i]) - _MIDDLE)
            near.cosine[other] = product + (_ZERO if is_first else sum_before)
    n_near = 0
    for j in range(n_seen):
        other = near.seen[j]
        cosine = near.cosine[other] * near.scale[other]
        near.cosine[other] = cosine
        if cosine > _ZERO:
            n_near = keep_best(near.best_cosine, near.best_row, n_near, NEAREST, cosine, other)
    return n_seen, n_near


@inlined
def first_from(columns: I32, low: int, high: int, column: int) -> int:
    """Return the first place from `low` on whose column is `column` or more; `high` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if columns[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def measure_candidates(n: int, candidate: I32, near: NearSearch) -> None:
    """Set the first four of NEAR_FEATURES of the n candidates, by the cosines with their rows."""
    for i in range(n):
        greatest = second = third = cubes = total = _ZERO
        begin, end = near.label_ptr[candidate[i]], near.label_ptr[candidate[i] + 1]
        for own in range(begin, end):
            cosine = near.cosine[near.label_row[own]]
            cosine = _ZERO if cosine <= UNSEEN else cosine
            total += cosine
            cubes += cosine * cosine * cosine
            if cosine > greatest:
                greatest, second, third = cosine, greatest, second
            elif cosine > second:
                second, third = cosine, second
            elif cosine > third:
                third = cosine
        found = near.features[i]
        found[0], found[1], found[2] = greatest, (greatest + second + third) * _THIRD, cubes
        found[3] = total / np.float32(end - begin) if end > begin else _ZERO


@inlined
def count_votes(n: int, n_seen: int, n_near: int, slot: I32, near: NearSearch) -> None:
    """Set the votes of the nearest rows for the n candidates; forget the rows that were seen.

    slot  the places of labels among the candidates, below 0 of others
    """
    for j in range(n_seen):
        near.cosine[near.seen[j]] = UNSEEN
    total = _ZERO
    for i in range(n):
        near.features[i, _VOTES] = near.features[i, _VOTES + 2] = _ZERO
    for j in range(n_near):
        row, cosine = near.best_row[j], near.best_cosine[j]
        vote = cosine * cosine * cosine
        total += vote
        for at in range(near.row_label_ptr[row], near.row_label_ptr[row + 1]):
            place = slot[near.row_label[at]]
            if place >= 0:
                found = near.features[place]
                found[_VOTES] += vote
                found[_VOTES + 2] = max(found[_VOTES + 2], cosine)
    for i in range(n):
        near.features[i, _VOTES + 1] = near.features[i, _VOTES] / total if total > _ZERO else _ZERO


@inlined
def expect_candidates(n: int, slot: I32, scores: F32, n_best: int, near: NearSearch) -> None:
    """Set what the best labels expect of the n candidates: the mean of their shares, by their scores.

    slot    the places of labels among the candidates, below 0 of others
    scores  of `best`, the greatest first: n_best of them
    """
    for i in range(n):
        near.features[i, _EXPECTED] = _ZERO
    total = _ZERO
    for i in range(min(BEST, n_best)):
        total += scores[i]
        if near.best[i] < 0:
            continue
        for at in range(near.other_ptr[near.best[i]], near.other_ptr[near.best[i] + 1]):
            place = slot[near.other_label[at]]
            if place >= 0:
                near.features[place, _EXPECTED] += scores[i] * near.other_share[at]
    for i in range(n):
        near.features[i, _EXPECTED] = near.features[i, _EXPECTED] / total if total > _ZERO else _ZERO


@inlined
def compare_candidates(n: int, near: NearSearch) -> None:
    """Set the last three of NEAR_FEATURES: what the n candidates have of the greatest of each."""
    for k, source in enumerate(_COMPARED):
        greatest = _ZERO
        for i in range(n):
            greatest = max(greatest, near.features[i, source])
        for i in range(n):
            share = near.features[i, source] / greatest if greatest > _ZERO else _ZERO
            near.features[i, _EXPECTED + 1 + k] = share
