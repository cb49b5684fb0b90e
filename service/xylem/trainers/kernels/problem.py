"""The training problem of one node: its rows with features and labels renumbered, the rows that
are positive for each child, and the conversion of its weights to a sparse chunk and back.

`label_ptr` and `label_rows` are the rows that carry each label: label_rows[label_ptr[i] :
label_ptr[i + 1]] for label i. The labels are in the order of the tree's leaves, so that those of a
node, and those of each child, are consecutive.
"""

from typing import NamedTuple

import numpy as np

from xylem.base import SparseRows
from xylem.engine import place
from xylem_store import (
    F32,
    I32,
    I64,
    LANES,
    U8,
    U16,
    Chunk,
    inlined,
    kernel,
    lowest_lane,
    vatleast,
    vbroadcast,
    vload,
    vmax,
    vnonzero,
    vsub,
)

# A number in a kernel: a literal, or an element of an array.
Integer = int | np.int64


class Problem(NamedTuple):
    """The rows of a node.

    rows      int32[n]      ascending
    indptr    int64[n + 1]
    features  int32[nnz]    ranks: features that many rows have come first (their weights are close
                            together, and stay in the cache)
    values    float32[nnz]
    squares   float32[n]    squared length of each row
    used      int32[m]      feature of each rank
    tails     float32[n, t] values of the tail (`SparseRows.tail`), whose features have the last t
                            ranks in their order; `features` and `values` are without them
    """

    rows: I32
    indptr: I64
    features: I32
    values: F32
    squares: F32
    used: I32
    tails: F32


@kernel
def rows_of(label_ptr: I64, label_rows: I32, first: int, last: int, place: I32) -> I32:
    """Return the rows that carry any of the labels first .. last - 1, ascending.

    place  int32[n_rows], workspace: zero at the call; on return place[row] is 1 + the row's
           position in the result (`forget_rows` clears it)
    """
    count = 0
    for e in range(label_ptr[first], label_ptr[last]):
        if place[label_rows[e]] == 0:
            place[label_rows[e]] = 1
            count += 1
    if count * 16 > len(place):
        rows = np.flatnonzero(place).astype(np.int32)
    else:
        rows = np.empty(count, np.int32)
        k = 0
        for e in range(label_ptr[first], label_ptr[last]):
            row = label_rows[e]
            if place[row] == 1:
                place[row] = 2
                rows[k] = row
                k += 1
        rows.sort()
    for k in range(count):
        place[rows[k]] = k + 1
    return rows


@kernel
def forget_rows(rows: I32, place: I32) -> None:
    """Set to 0 what `rows_of` wrote into `place`."""
    for row in rows:
        place[row] = 0


# Arguments of `localise` with which it allocates the arrays itself.
NO_ROOM = np.empty(0, np.int32), np.empty(0, np.float32)


@inlined
def distinct_of(
    indptr: I64, indices: I32, rows: I32, counts: I32, tail: int = 0
) -> tuple[I32, int]:
    """Return the distinct ids of some rows, and the number of all their ids, with repeats.

    The ids are in the order in which they first appear.

    tail    how many ids at the end of each row are left out
    counts  int32, an element for each id, zero at the call: on return the number of rows with it
    """
    nnz = 0
    for row in rows:
        nnz += indptr[row + 1] - tail - indptr[row]
    ids = np.empty(min(nnz, len(counts)) + 1, np.int32)
    n_used = 0
    for row in rows:
        for e in range(indptr[row], indptr[row + 1] - tail):
            id_ = place(indices[place(e)])
            ids[place(n_used)] = id_  # always written: the processor cannot predict a branch here
            n_used += counts[id_] == 0
            counts[id_] += 1
    return ids[:n_used], nnz


@kernel
def localise(x: SparseRows, rows: I32, rank: I32, features_out: I32, values_out: F32) -> Problem:
    """Copy some rows of x and renumber their features.

    The features are sorted by falling number of rows, up to a factor of two; those of the tail come
    last.

    rank  int32[n_features], workspace: zero at the call and on return
    features_out, values_out  arrays for the copy; if they are too short, as those of NO_ROOM, new
          arrays are allocated
    """
    indptr, indices, values, n_features, tail = x
    distinct, nnz = distinct_of(indptr, indices, rows, rank, tail)
    # Counting sort by the number of binary digits of the count.
    starts = np.zeros(34, np.int64)
    for f in distinct:
        starts[33 - _digits(rank[f])] += 1
    starts = np.cumsum(starts) - starts
    used = np.empty(len(distinct) + tail, np.int32)
    used[len(distinct) :] = np.arange(n_features - tail, n_features)
    for f in distinct:
        d = 33 - _digits(rank[f])
        used[starts[d]] = f
        starts[d] += 1
    for k in range(len(distinct)):
        rank[used[k]] = k
    local_ptr = np.zeros(len(rows) + 1, np.int64)
    is_long = len(features_out) >= nnz
    features = features_out[:nnz] if is_long else np.empty(nnz, np.int32)
    local_values = values_out[:nnz] if is_long else np.empty(nnz, np.float32)
    squares = np.zeros(len(rows), np.float32)
    tails = np.empty((len(rows), tail), np.float32)
    position = 0
    for i in range(len(rows)):
        square = np.float32(0)
        end = indptr[rows[i] + 1] - tail
        for e in range(indptr[rows[i]], end):
            value = values[place(e)]
            features[place(position)] = rank[place(indices[place(e)])]
            local_values[place(position)] = value
            square += value * value
            position += 1
        for j in range(tail):
            tails[i, j] = values[end + j]
            square += tails[i, j] * tails[i, j]
        squares[i] = square
        local_ptr[i + 1] = position
    for f in distinct:
        rank[f] = 0
    return Problem(
        rows=rows,
        indptr=local_ptr,
        features=features,
        values=local_values,
        squares=squares,
        used=used,
        tails=tails,
    )


@kernel
def _digits(n: int) -> int:
    """Return the number of binary digits of n >= 0."""
    count = 0
    while n:
        n >>= 1
        count += 1
    return count


@kernel
def positives(
    label_ptr: I64, label_rows: I32, firsts: I64, lasts: I64, place: I32, positive_out: U16
) -> None:
    """Write the set of children (bit c: child c of the tile) for which each row is positive.

    firsts, lasts  int64[children of the tile]  child c has the labels firsts[c] .. lasts[c] - 1
    place          as `rows_of` writes it
    """
    positive_out[:] = 0
    for c in range(len(firsts)):
        bit = np.uint16(1 << c)
        for e in range(label_ptr[firsts[c]], label_ptr[lasts[c]]):
            positive_out[place[label_rows[e]] - 1] |= bit


@kernel
def pack_tile(
    weights: F32, ascending: I64, n_children: int, prune: float, counts_out: I32, tail: int = 0
) -> tuple[U8, F32]:
    """Return (the child, the value) of each weight of a tile that is not 0 and has |w| >= prune.

    They are sorted by feature, then by child.

    weights     float32[m + 1, 16], as in `xylem.trainers.kernels.solver`
    ascending   int64[m]  the ranks, sorted by feature
    tail        the number of last features of which all weights are returned, also those that are 0
    counts_out  int32[m]  returned weights of each feature, in the order of `ascending`
    """
    n_pruned = len(ascending) - tail
    every_child = (1 << n_children) - 1
    lane = np.empty(len(ascending) * n_children, np.uint8)
    values = np.empty(len(lane), np.float32)
    position = 0
    for k in range(len(ascending)):
        first = position
        row = vload(weights, ascending[k] * LANES)
        sizes = vmax(row, vsub(vbroadcast(0.0), row))
        lanes = every_child
        if k < n_pruned:
            lanes &= vatleast(sizes, vbroadcast(prune)) & vnonzero(row)
        while lanes:
            lane[position] = lowest_lane(lanes)
            values[position] = weights[ascending[k], lane[position]]
            lanes &= lanes - 1
            position += 1
        counts_out[k] = position - first
    return lane[:position].copy(), values[:position].copy()


@kernel
def unpack_tile(chunk: Chunk, lane: I32, rank: I32, weights_out: F32) -> None:
    """Write the weights of a chunk into those of a tile.

    lane  int32[C]           column of each child of the chunk; -1: it is left out
    rank  int32[n_features]  row of each feature; -1: it is left out
    """
    for k in range(len(chunk.features)):
        row = rank[chunk.features[k]]
        for e in range(chunk.row_ptr[k], chunk.row_ptr[k + 1] if row >= 0 else 0):
            if lane[chunk.child[e]] >= 0:
                weights_out[row, lane[chunk.child[e]]] = chunk.weight[e]


@kernel
def add_margins(chunk: Chunk, ptr: I32, vectors: I32, values: F32, margins_out: F32) -> None:
    """Add the margins of n vectors for each child of a chunk, without biases.

    ptr, vectors, values  the vectors by feature: those with feature f are
                          vectors[ptr[f] : ptr[f + 1]]
    margins_out           float32[n, C]
    """
    for k in range(len(chunk.features)):
        feature = chunk.features[k]
        for v in range(ptr[feature], ptr[feature + 1]):
            for e in range(chunk.row_ptr[k], chunk.row_ptr[k + 1]):
                margins_out[vectors[v], chunk.child[e]] += values[v] * chunk.weight[e]


class NodeLabels(NamedTuple):
    """The labels of a node's n rows, renumbered.

    ptr    int64[n + 1]
    ranks  int32[nnz]    positions in `used`
    used   int32[k]      the labels that occur, ascending
    """

    ptr: I64
    ranks: I32
    used: I32


@kernel
def localise_labels(indptr: I64, indices: I32, rows: I32, rank: I32) -> NodeLabels:
    """Copy the labels of a node's rows and renumber them.

    rank  int32[n_labels], workspace: zero at the call and on return
    """
    distinct, nnz = distinct_of(indptr, indices, rows, rank)
    used = np.sort(distinct)
    for k in range(len(used)):
        rank[used[k]] = k
    ptr = np.zeros(len(rows) + 1, np.int64)
    ranks = np.empty(nnz, np.int32)
    position = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            ranks[position] = rank[indices[e]]
            position += 1
        ptr[i + 1] = position
    for label in used:
        rank[label] = 0
    return NodeLabels(ptr, ranks, used)
