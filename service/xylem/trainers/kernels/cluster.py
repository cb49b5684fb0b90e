"""Spherical k-means on sparse unit vectors, and sums of rows by label.

For k-means, each vector has length 1 (or is empty), and `members` are the vectors to cluster: their
numbers as int32, ascending, without repeats.
"""

import numpy as np

from xylem.base import LabelRows, SparseRows
from xylem.engine import place
from xylem.trainers.kernels.random import random_below, shuffle
from xylem_store import (
    F32,
    F64,
    I32,
    I64,
    LANES,
    inlined,
    kernel,
    nonallocating_inlined,
    vadd,
    vbroadcast,
    vload,
    vmul,
    vstore,
)

ROUNDS_MAX = 20

# Clustering stops when a round raises the mean similarity of a vector to its centre by less than
# this (Prabhu et al. 2018).
GAIN_MIN = 1e-4


@nonallocating_inlined
def _similarities(vectors: SparseRows, members: I32, side: I64, sums: F32, near_out: F32) -> None:
    """Write the similarity of each vector to the centres of both sides.

    The squared length of a sum s of vectors v is computed as |s|^2 = sum of v . s, so that the sums
    need not be scaled.

    side  int64[n]  side of each vector: 0, 1, or -1 if it is on neither
    sums  float32[n_features, 2]  workspace, zero at the call and on return
    """
    indptr, indices, values, _, _ = vectors
    for i in range(len(members)):
        if side[i] >= 0:
            for e in range(indptr[members[i]], indptr[members[i] + 1]):
                sums[place(indices[place(e)]), place(side[i])] += values[place(e)]
    left_square = 0.0
    right_square = 0.0
    for i in range(len(members)):
        left = np.float32(0)
        right = np.float32(0)
        for e in range(indptr[members[i]], indptr[members[i] + 1]):
            left += values[place(e)] * sums[place(indices[place(e)]), 0]
            right += values[place(e)] * sums[place(indices[place(e)]), 1]
        near_out[i, 0] = left
        near_out[i, 1] = right
        if side[i] == 0:
            left_square += float(left)
        if side[i] == 1:
            right_square += float(right)
    for row in members:
        for e in range(indptr[row], indptr[row + 1]):
            sums[place(indices[place(e)]), 0] = 0
            sums[place(indices[place(e)]), 1] = 0
    left_scale = np.float32(1 / np.sqrt(left_square)) if left_square > 0 else np.float32(0)
    right_scale = np.float32(1 / np.sqrt(right_square)) if right_square > 0 else np.float32(0)
    for i in range(len(members)):
        near_out[i, 0] *= left_scale
        near_out[i, 1] *= right_scale


@inlined
def _group(members: I32, group: I64, ends: I64) -> None:
    """Sort members by group, in place; within a group they keep their order.

    ends  int64[groups]  start of each group; on return its end
    """
    unsorted = members.copy()
    for i in range(len(members)):
        members[ends[group[i]]] = unsorted[i]
        ends[group[i]] += 1


@kernel
def bisect(vectors: SparseRows, members: I32, n_left: int, seed: int, sums: F32) -> None:
    """Split vectors into two clusters of given sizes, by balanced spherical 2-means.

    Source: Prabhu et al. 2018 (Parabel), algorithm 2. Two random vectors are the first centres. A
    round sorts the vectors by (similarity to the left centre - similarity to the right one), puts
    the first n_left into the left cluster and the others into the right one, and takes the
    normalised sums of both as the new centres.

    members     on return the first n_left are the left cluster, the others the right one; each
                ascending
    n_left      0 < n_left < len(members)
    sums        float32[n_features, 2], workspace: zero at the call and on return

    Cost: rounds * (2 * non-zeros of the members + n log n). The result depends on the arguments
    alone; vectors of equal scores keep the order of `members`.
    """
    n = len(members)
    state = np.full(1, seed, np.uint64)
    first = random_below(state, n)
    second = random_below(state, n - 1)
    if second >= first:
        second += 1
    side = np.full(n, -1, np.int64)
    side[first] = 0
    side[second] = 1
    near = np.empty((n, 2), np.float32)
    best = -np.inf
    for _ in range(ROUNDS_MAX):
        _similarities(vectors, members, side, sums, near)
        order = np.argsort((near[:, 1] - near[:, 0]).astype(np.float64), kind="mergesort")
        total = 0.0
        for k in range(n):
            side[order[k]] = 0 if k < n_left else 1
            total += near[order[k], side[order[k]]]
        if total <= best + GAIN_MIN * n:
            break
        best = total
    _group(members, side, np.array([0, n_left]))


@inlined
def _assign(
    vectors: SparseRows, members: I32, rank: I32, centres: F32, n_clusters: int, cluster_out: I64
) -> float:
    """Assign each vector to its nearest centre; return the sum of their similarities.

    For equal similarities it is the first centre.
    """
    indptr, indices, values, _, _ = vectors
    width = centres.shape[1]
    scores = np.empty(width, np.float32)
    total = 0.0
    for i in range(len(members)):
        for tile in range(0, width, LANES):
            near = vbroadcast(0.0)
            for e in range(indptr[members[i]], indptr[members[i] + 1]):
                offset = (rank[indices[e]] - 1) * width + tile
                near = vadd(near, vmul(vbroadcast(values[e]), vload(centres, offset)))
            vstore(scores, tile, near)
        cluster_out[i] = np.argmax(scores[:n_clusters])
        total += scores[cluster_out[i]]
    return total


@inlined
def _centres(vectors: SparseRows, members: I32, cluster: I64, rank: I32, centres: F32) -> None:
    """Write the normalised sum of each cluster into its column of `centres`.

    The rows of `centres` are features in the order of their ranks.
    """
    indptr, indices, values, _, _ = vectors
    centres[:] = 0
    for i in range(len(members)):
        if cluster[i] >= 0:
            for e in range(indptr[members[i]], indptr[members[i] + 1]):
                centres[rank[indices[e]] - 1, cluster[i]] += values[e]
    square = np.zeros(centres.shape[1])
    for f in range(len(centres)):
        for c in range(centres.shape[1]):
            square[c] += centres[f, c] * centres[f, c]
    scale = np.zeros(centres.shape[1], np.float32)
    for c in range(centres.shape[1]):
        if square[c] > 0:
            scale[c] = 1 / np.sqrt(square[c])
    for f in range(len(centres)):
        for c in range(centres.shape[1]):
            centres[f, c] *= scale[c]


@kernel
def kmeans(vectors: SparseRows, members: I32, n_clusters: int, seed: int, rank: I32) -> I64:
    """Split vectors into at most n_clusters clusters, by spherical k-means.

    Source: Lin, Liu and Lin 2024, section 2 (k-means on label representations). The first centres
    are random vectors. A vector goes to the centre with the largest cosine, for equal cosines to
    the first.

    members     on return sorted by cluster, within a cluster in their old order
    n_clusters  >= 2
    rank        int32[n_features], workspace: zero at the call and on return

    Returns int64[n_clusters + 1]: cluster c is members[result[c] : result[c + 1]], which may be
    empty. Cost: rounds * n_clusters * non-zeros of the members; memory: features of the members *
    n_clusters * 4 bytes. The result depends on the arguments alone.
    """
    n = len(members)
    width = (n_clusters + LANES - 1) // LANES * LANES
    n_used = 0
    for row in members:
        for feature in vectors.indices[vectors.indptr[row] : vectors.indptr[row + 1]]:
            if rank[feature] == 0:
                n_used += 1
                rank[feature] = n_used
    state = np.full(1, seed, np.uint64)
    cluster = np.full(n, -1, np.int64)
    order = np.arange(n).astype(np.int32)
    shuffle(order, n, state)
    for c in range(min(n, n_clusters)):
        cluster[order[c]] = c
    centres = np.empty((n_used, width), np.float32)
    best = -np.inf
    for _ in range(ROUNDS_MAX):
        _centres(vectors, members, cluster, rank, centres)
        total = _assign(vectors, members, rank, centres, n_clusters, cluster)
        if total <= best + GAIN_MIN * n:
            break
        best = total
    for row in members:
        for feature in vectors.indices[vectors.indptr[row] : vectors.indptr[row + 1]]:
            rank[feature] = 0
    bounds = np.zeros(n_clusters + 1, np.int64)
    bounds[1:] = np.cumsum(np.bincount(cluster, minlength=n_clusters))
    _group(members, cluster, bounds[:-1].copy())
    return bounds


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@kernel
def add_projected(rows: SparseRows, labels: LabelRows, sums_out: F32) -> None:
    """Add each row to the sums of its labels, with the features hashed to P dimensions.

    Source: Weinberger et al. 2009, equation 1: the value of feature f is added to or subtracted
    from dimension h(f), which preserves inner products in expectation. If there are no more
    features than dimensions, each feature has its own dimension, and is added. Cost: the non-zeros
    of each row once for each of its labels.

    sums_out  float32[K, P], P a power of two
    """
    n_dimensions = sums_out.shape[1]
    for row in range(len(rows.indptr) - 1):
        for e in range(rows.indptr[row], rows.indptr[row + 1]):
            dimension = np.int64(rows.indices[e])
            value = rows.values[e]
            if rows.n_features > n_dimensions:
                h = (np.uint64(rows.indices[e]) + np.uint64(1)) * _GOLDEN
                h = (h ^ (h >> np.uint64(30))) * _MIX
                dimension = np.int64(h >> np.uint64(20)) & (n_dimensions - 1)
                if h >> np.uint64(63):
                    value = -value
            for k in range(labels.indptr[row], labels.indptr[row + 1]):
                sums_out[labels.indices[k], dimension] += value


@kernel
def add_embedded(rows: SparseRows, labels: LabelRows, embedding: F32, sums_out: F64) -> None:
    """Add the sum of each row's embeddings, weighted by its values, to the sums of its labels.

    Cost: d times the non-zeros of each row once for each of its labels.

    embedding  float32[V, d], V the features of the rows
    sums_out   float64[K, d]
    """
    for row in range(len(rows.indptr) - 1):
        for e in range(rows.indptr[row], rows.indptr[row + 1]):
            value = rows.values[e]
            vector = embedding[rows.indices[e]]
            for k in range(labels.indptr[row], labels.indptr[row + 1]):
                for f in range(len(vector)):
                    sums_out[labels.indices[k], f] += value * vector[f]
