"""Hierarchical clustering of labels: the levels of a label tree."""

import math
from bisect import bisect_right
from itertools import chain, pairwise

import numpy as np

from xylem.base import Calls, SparseRows
from xylem.trainers.kernels.cluster import bisect, kmeans
from xylem.trainers.shape import Shape, join
from xylem.trainers.source import Tools, derived_seed
from xylem_store import I32, I64

STAGE = "clustering"

# A part of at most this many labels is halved down to the leaves in one step; the halvings of
# larger parts are one step for each level.
SUBTREE = 8192

# A part of the labels to cluster: (start of the part, its labels, number of clusters, seed).
_Part = tuple[int, I32, int, int]

# A halving of a part of the labels: (start, start of the second half, end, seed).
_Halving = tuple[int, int, int, int]

# A part of the labels to halve: (start, its labels, its halvings with the upper levels first).
_Subtree = tuple[int, I32, list[_Halving]]


def _halve(item: _Subtree, vectors: SparseRows) -> I32:
    """Halve a part of the labels, then its halves, and so on; return its labels in their new order.

    vectors  the vectors of all labels
    """
    first, members, halvings = item
    sums = np.zeros((vectors.n_features, 2), np.float32)
    for start, middle, end, seed in halvings:
        bisect(vectors, members[start - first : end - first], middle - start, seed, sums)
    return members


def _divide(part: _Part, vectors: SparseRows) -> tuple[I32, I64]:
    """Return the labels of a part ordered by cluster, and the bounds of the clusters."""
    _, members, n_clusters, seed = part
    return members, kmeans(
        vectors, members, n_clusters, seed, np.zeros(vectors.n_features, np.int32)
    )


def _halvings(n_labels: int, n_levels: int, seed: int) -> tuple[list[I64], list[list[_Halving]]]:
    """Return the bounds of the parts before each level of halvings and after the last one, and the
    halvings of each level.
    """
    bounds = np.array([0, n_labels])
    bounds_of = [bounds]
    halvings_of = []
    for level in range(n_levels):
        divided = np.flatnonzero(np.diff(bounds) > 1)
        starts = bounds[divided]
        ends = bounds[divided + 1]
        middles = starts + (ends - starts + 1) // 2
        seeds = [derived_seed(seed, level, part) for part in range(len(divided))]
        halvings_of.append(
            list(zip(starts.tolist(), middles.tolist(), ends.tolist(), seeds, strict=True))
        )
        bounds = np.sort(np.concatenate([bounds, middles]))
        bounds_of.append(bounds)
    return bounds_of, halvings_of


def balanced_shape(
    vectors: SparseRows, labels: I32, leaf_size: int, arity: int, tools: Tools
) -> Shape:
    """Return a tree of recursive balanced 2-means, whose nodes have up to `arity` children.

    Source: Prabhu et al. 2018 (Parabel), section 4.1. All parts are halved until none has more than
    leaf_size labels; their sizes then differ by at most one. Successive halvings are merged into
    levels: as few levels as possible, of at most log2(arity) halvings each, and about equally many.
    Deviation: if one halving would be enough, the labels are not halved: a prediction would search
    both halves anyway, and without the halves every label's classifier is trained on all rows.

    labels  int32[K'], ascending, K' >= 1: the labels that get a leaf
    arity   a power of two, >= 2

    The result depends on the arguments alone, not on the number of threads.
    """
    labels = labels.copy()
    halvings = max(0, math.ceil(math.log2(len(labels) / leaf_size)))
    halvings = 0 if halvings == 1 else halvings
    n_levels = max(1, math.ceil(halvings / math.log2(arity)))
    cuts = {round(halvings * (i + 1) / n_levels) for i in range(n_levels)}
    halve = Calls(_halve, (vectors,))

    def done(item: _Subtree, members: I32) -> None:
        labels[item[0] : item[0] + len(members)] = members

    bounds_of, halvings_of = _halvings(len(labels), halvings, tools.seed)
    level = 0
    while level < halvings:
        parts = bounds_of[level].tolist()
        last = halvings if max(np.diff(parts)) <= SUBTREE else level + 1
        part_halvings: list[list[_Halving]] = [[] for _ in parts]
        for halving in chain.from_iterable(halvings_of[level:last]):
            part_halvings[bisect_right(parts, halving[0]) - 1].append(halving)
        tools.crew.steps(
            halve,
            (
                (start, labels[start:end].copy(), part_halvings[part])
                for part, (start, end) in enumerate(pairwise(parts))
                if part_halvings[part]
            ),
            done,
        )
        tools.progress(STAGE, last, halvings)
        level = last
    return join(labels, [bounds_of[level] for level in range(1, halvings + 1) if level in cuts])


def kmeans_shape(
    vectors: SparseRows, labels: I32, leaf_size: int, arity: int, depth: int, tools: Tools
) -> Shape:
    """Return a tree of recursive spherical k-means with `arity` clusters a node.

    Source: Lin, Liu and Lin 2024, section 2. The children of a part are its labels if it has at
    most leaf_size labels, if it is at the last level but one, or if k-means does not divide it.

    labels  int32[K'], ascending, K' >= 1: the labels that get a leaf
    depth   levels below the root, >= 1

    The result depends on the arguments alone, not on the number of threads.
    """
    labels = labels.copy()
    divide = Calls(_divide, (vectors,))
    inner: list[I64] = []

    def done(part: _Part, clusters: tuple[I32, I64]) -> None:
        labels[part[0] : part[0] + len(clusters[0])] = clusters[0]
        inner.append(clusters[1] + part[0])

    bounds = np.array([0, len(labels)])
    levels = []
    for level in range(depth - 1):
        inner.append(bounds)
        large = np.flatnonzero(np.diff(bounds) > leaf_size).tolist()
        tools.crew.steps(
            divide,
            (
                (
                    start,
                    labels[start : bounds[p + 1]].copy(),
                    arity,
                    derived_seed(tools.seed, level, p),
                )
                for p, start in zip(large, bounds[large].tolist(), strict=True)
            ),
            done,
        )
        tools.progress(STAGE, level + 1, depth - 1)
        divided = np.unique(np.concatenate(inner))
        if len(divided) == len(bounds):
            break
        bounds = divided
        levels.append(bounds)
    return join(labels, levels)
