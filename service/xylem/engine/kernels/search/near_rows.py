"""Features of a candidate label that depend on the training rows nearest to the row that is
answered (`xylem_store.members`).
"""

from typing import NamedTuple

import numpy as np

from xylem.engine.kernels.search.call import ZERO_F32, Rows
from xylem.engine.kernels.search.heaps import keep_best
from xylem.engine.kernels.search.subtrees import log_of
from xylem_store import (
    CONTEXT,
    F32,
    F32_1,
    F32_2,
    I32,
    I32_1,
    I64_1,
    LANES,
    NEAR_FEATURES,
    NEAREST,
    U8_1,
    ZERO,
    handle,
    lowest_lane,
    nonallocating_inlined as inlined,
    popcount,
    vatleast,
    vbroadcast,
    vgreater,
    vload,
    vmax,
    vmul,
    vstore,
)

N_NEAR = len(NEAR_FEATURES)

# The first member's best labels, as many as are used to predict which labels occur with them.
BEST = 10

# Groups of training rows. The greatest cosine of each group is found before the nearest rows.
GROUPS = 128

# With more training rows than this, those that share a feature with the row are listed, because
# looking at all cosines would take longer.
LISTED_ROWS = 1 << 16

# Places in NEAR_FEATURES: of the first feature of votes; of the expectation by the best labels;
# and of the features whose value is compared with the greatest value among the candidates.
_VOTES = 4
_EXPECTED = 7
_COMPARED = (0, 2, 7)

_MIDDLE = np.float32(ZERO)
_TINY = np.float32(1e-45)  # the least number above 0
_FLOOR = np.float32(1e-6)  # is added to scores before they are divided, because they may be 0
_SHIFT = np.uint64(LANES.bit_length() - 1)
_THIRD = np.float32(1 / 3)


@handle
class NearSearch(NamedTuple):
    """The arrays of NearRows, and buffers for one row.

    feature_ptr  int64[n_columns + 1]: where the list of training rows of each column begins, also
                 of columns whose list is empty
    n_columns    the columns of the first member; 0 if the version has no near rows, and nothing is
                 done then
    features     float32[candidates, N_NEAR]: NEAR_FEATURES of the candidates
    best         int32[BEST]: the first member's best labels
    cosine       float32[rows]: the cosines with the row that is answered; 0 between rows. It and
                 `scale` are padded to whole vectors
    block        int32[rows / LANES]: the blocks of LANES rows to look at: all of them, or those
                 that share a feature with the row that is answered
    is_listed    uint8[rows / LANES]: whether a block is in `block`; 0 between rows. Empty if
                 `block` has all blocks
    greatest     float32[GROUPS]: the greatest cosine of a row of each group
    best_cosine, best_row
                 [NEAREST]: the heap of the nearest rows
    """

    label_ptr: I64_1
    label_row: I32_1
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
    block: I32_1
    is_listed: U8_1
    greatest: F32_1
    best_cosine: F32_1
    best_row: I32_1


@inlined
def measure_rows(rows: Rows, row: int, near: NearSearch) -> int:
    """Set the cosines between a row and all training rows that share a feature with it.

    Return how many blocks are in `block`. Columns of other members and of names are ignored. Cost:
    for each feature of the row at most POSTINGS_MAX products; then a pass over at most LISTED_ROWS
    cosines, or over the listed blocks.
    """
    low = rows.indptr[row]
    high = rows.indptr[row + 1]
    squares = ZERO_F32
    end = low
    while end < high and rows.indices[end] < near.n_columns:
        squares += rows.values[end] * rows.values[end]
        end += 1
    length = np.float32(1.0) / np.sqrt(squares) if squares > ZERO_F32 else ZERO_F32
    n_blocks = 0 if len(near.is_listed) > 0 else len(near.block)
    for position in range(low, end):
        column = rows.indices[position]
        value = rows.values[position] * length
        begin = near.feature_ptr[column]
        end_of_list = near.feature_ptr[column + 1]
        for i in range(begin, end_of_list):
            near.cosine[np.uint64(near.row[i])] += value * (np.float32(near.value[i]) - _MIDDLE)
        if len(near.is_listed) > 0:
            n_blocks = _list_blocks(begin, end_of_list, n_blocks, near)
    near.greatest[:] = _TINY
    for k in range(n_blocks):
        first = near.block[k] * LANES
        group = k * LANES % GROUPS
        cosines = vmul(vload(near.cosine, first), vload(near.scale, first))
        vstore(near.cosine, first, cosines)
        vstore(near.greatest, group, vmax(cosines, vload(near.greatest, group)))
    return n_blocks


@inlined
def _list_blocks(begin: int, end: int, n_blocks: int, near: NearSearch) -> int:
    """Add the blocks of the training rows row[begin : end] to the n_blocks blocks in `block`.

    Return the new number of blocks.
    """
    for i in range(begin, end):
        block = np.uint64(near.row[i]) >> _SHIFT
        near.block[np.uint64(n_blocks)] = block
        n_blocks += near.is_listed[block] == 0  # no branch: the processor could not predict it
        near.is_listed[block] = 1
    return n_blocks


@inlined
def keep_nearest(n_blocks: int, near: NearSearch) -> int:
    """Put the nearest rows into the heap, and clear the cosines; return how many rows they are.

    At least NEAREST rows reach the NEAREST-th of the groups' greatest cosines. Rows below it are
    skipped, so that few rows are offered to the heap.
    """
    least = _least_of_nearest(near)
    n_near = 0
    for k in range(n_blocks):
        first = near.block[k] * LANES
        lanes = vatleast(vload(near.cosine, first), vbroadcast(least))
        while lanes != 0:
            row = first + lowest_lane(lanes)
            lanes &= lanes - 1
            n_near = keep_best(
                near.best_cosine, near.best_row, n_near, NEAREST, near.cosine[row], row
            )
        vstore(near.cosine, first, vbroadcast(ZERO_F32))
    if len(near.is_listed) > 0:
        for k in range(n_blocks):
            near.is_listed[near.block[k]] = 0
    return n_near


@inlined
def _least_of_nearest(near: NearSearch) -> np.float32:
    """Return the NEAREST-th greatest number of `greatest`."""
    least = np.float32(np.inf)
    for i in range(GROUPS):
        n_above = np.int64(0)
        for j in range(0, GROUPS, LANES):
            lanes = vgreater(vload(near.greatest, j), vbroadcast(near.greatest[i]))
            n_above += popcount(np.uint32(lanes))
        if n_above < NEAREST:
            least = min(least, near.greatest[i])
    return least


@inlined
def measure_candidates(n: int, candidate: I32, near: NearSearch) -> None:
    """Set the first four of NEAR_FEATURES of the n candidates, from the cosines of the training
    rows that have the candidate.
    """
    for i in range(n):
        greatest = second = third = cubes = total = ZERO_F32
        begin = near.label_ptr[candidate[i]]
        end = near.label_ptr[candidate[i] + 1]
        for position in range(begin, end):
            cosine = near.cosine[near.label_row[position]]
            total += cosine
            cubes += cosine * cosine * cosine
            third = max(third, min(second, cosine))
            second = max(second, min(greatest, cosine))
            greatest = max(greatest, cosine)
        features = near.features[i]
        features[0] = greatest
        features[1] = (greatest + second + third) * _THIRD
        features[2] = cubes
        features[3] = total / np.float32(end - begin) if end > begin else ZERO_F32


@inlined
def count_votes(n: int, n_near: int, slot: I32, near: NearSearch) -> None:
    """Set the votes of the nearest rows for the n candidates.

    slot  for each label its place among the candidates, below 0 if it is none
    """
    total = ZERO_F32
    near.features[:n, _VOTES : _VOTES + 3] = ZERO_F32
    for j in range(n_near):
        row = near.best_row[j]
        cosine = near.best_cosine[j]
        vote = cosine * cosine * cosine
        total += vote
        for position in range(near.row_label_ptr[row], near.row_label_ptr[row + 1]):
            candidate = slot[near.row_label[position]]
            if candidate >= 0:
                features = near.features[candidate]
                features[_VOTES] += vote
                features[_VOTES + 2] = max(features[_VOTES + 2], cosine)
    for i in range(n):
        near.features[i, _VOTES + 1] = (
            near.features[i, _VOTES] / total if total > ZERO_F32 else ZERO_F32
        )


@inlined
def expect_candidates(n: int, slot: I32, scores: F32, n_best: int, near: NearSearch) -> None:
    """Set the expectation of each of the n candidates: how often it occurs with the best labels.

    It is the mean of the candidate's shares with the labels of `best`, weighted by their scores.

    slot    for each label its place among the candidates, below 0 if it is none
    scores  the scores of `best`, n_best of them, the greatest first
    """
    near.features[:n, _EXPECTED] = ZERO_F32
    total = ZERO_F32
    for i in range(min(BEST, n_best)):
        total += scores[i]
        if near.best[i] < 0:
            continue
        for position in range(near.other_ptr[near.best[i]], near.other_ptr[near.best[i] + 1]):
            candidate = slot[near.other_label[position]]
            if candidate >= 0:
                near.features[candidate, _EXPECTED] += scores[i] * near.other_share[position]
    for i in range(n):
        near.features[i, _EXPECTED] = (
            near.features[i, _EXPECTED] / total if total > ZERO_F32 else ZERO_F32
        )


@inlined
def compare_candidates(n: int, near: NearSearch) -> None:
    """Set each compared feature as a share of the greatest one among the n candidates."""
    for k, source in enumerate(_COMPARED):
        greatest = ZERO_F32
        for i in range(n):
            greatest = max(greatest, near.features[i, source])
        for i in range(n):
            share = near.features[i, source] / greatest if greatest > ZERO_F32 else ZERO_F32
            near.features[i, _EXPECTED + 1 + k] = share


@inlined
def describe_row(n: int, scores: F32, rank: I32, near: NearSearch) -> None:
    """Set the last five of NEAR_FEATURES, the context of the row.

    scores  the first member's scores, the greatest first
    rank    [n]: the candidates' places among them, below 0 for those that it does not propose
    """
    total = votes = cosine = ZERO_F32
    for i in range(len(scores)):
        total += scores[i]
    for i in range(n):
        votes += near.features[i, _VOTES]
        cosine = max(cosine, near.features[i, _VOTES + 2])
    greatest = scores[0] if len(scores) > 0 else ZERO_F32
    for i in range(n):
        context = near.features[i, CONTEXT:]
        place = rank[i]
        context[0] = ZERO_F32
        if place >= 0:
            next_score = scores[place + 1] if place + 1 < len(scores) else ZERO_F32
            context[0] = log_of((scores[place] + _FLOOR) / (next_score + _FLOOR))
        context[1] = total
        context[2] = greatest
        context[3] = votes
        context[4] = cosine
