"""Hierarchical clustering of labels: the levels of a label tree."""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

from service.kernels.training.cluster import bisect, kmeans
from service.trainers.representations import Representations
from service.trainers.shape import Shape, join
from service.trainers.work import Tools, derived_seed

ROUNDS_MAX = 20
STAGE = "clustering"


def balanced_shape(
    vectors: Representations,
    labels: NDArray[np.int32],
    leaf_size: int,
    arity: int,
    tools: Tools,
) -> Shape:
    """Return a tree of recursive balanced 2-means, splits merged to nodes of up to `arity` children.

    Source: Prabhu et al. 2018 (Parabel), section 4.1. All parts are halved until none has more than
    leaf_size labels; their sizes then differ by at most one. The halvings are dealt evenly to the fewest
    levels of at most log2(arity) halvings each. Deviation: where one halving would do, none is made: an
    answer searches two parts anyway, and without them each label's classifier has seen all rows.

    labels  int32[K'], ascending, K' >= 1: the labels that get a leaf
    arity   a power of two, >= 2

    Depends on the arguments alone, not on the number of threads.
    """
    labels = labels.copy()
    halvings = max(0, math.ceil(math.log2(len(labels) / leaf_size)))
    halvings = 0 if halvings == 1 else halvings
    n_levels = max(1, math.ceil(halvings / math.log2(arity)))
    cuts = {round(halvings * (i + 1) / n_levels) for i in range(n_levels)}
    local = threading.local()

    def halve(part: tuple[int, int, int, int]) -> None:
        start, middle, stop, seed_here = part
        if not hasattr(local, "sums"):
            local.sums = np.zeros((vectors.n_features, 2), np.float32)
        members = labels[start:stop]
        bisect(*vectors[:3], members, middle - start, ROUNDS_MAX, seed_here, local.sums)

    bounds = np.array([0, len(labels)])
    levels = []
    for level in range(halvings):
        divided = np.flatnonzero(np.diff(bounds) > 1)
        starts, stops = bounds[divided], bounds[divided + 1]
        middles = starts + (stops - starts + 1) // 2
        seeds = [derived_seed(tools.seed, level, part) for part in range(len(divided))]
        parts = zip(starts.tolist(), middles.tolist(), stops.tolist(), seeds, strict=True)
        tools.crew.run(halve, parts, lambda part, result: None)
        tools.progress(STAGE, level + 1, halvings)
        bounds = np.sort(np.concatenate([bounds, middles]))
        if level + 1 in cuts:
            levels.append(bounds)
    return join(labels, levels)


def kmeans_shape(
    vectors: Representations,
    labels: NDArray[np.int32],
    leaf_size: int,
    arity: int,
    depth: int,
    tools: Tools,
) -> Shape:
    """Return a tree of recursive spherical k-means with `arity` clusters a node.

    Source: Lin, Liu and Lin 2024, section 2. A part of at most leaf_size labels, or at the last level but
    one, or that k-means leaves whole, has its labels as children.

    labels  int32[K'], ascending, K' >= 1: the labels that get a leaf
    depth   levels below the root, >= 1

    Depends on the arguments alone, not on the number of threads.
    """
    labels = labels.copy()
    local = threading.local()
    inner: list[NDArray[np.int64]] = []

    def divide(part: tuple[int, int, int]) -> NDArray[np.int64]:
        start, stop, seed_here = part
        if not hasattr(local, "rank"):
            local.rank = np.zeros(vectors.n_features, np.int32)
        members = labels[start:stop]
        bounds: NDArray[np.int64] = kmeans(*vectors[:3], members, arity, ROUNDS_MAX, seed_here, local.rank)
        return bounds + start

    bounds = np.array([0, len(labels)])
    levels = []
    for level in range(depth - 1):
        inner.append(bounds)
        large = np.flatnonzero(np.diff(bounds) > leaf_size).tolist()
        parts = [(int(bounds[p]), int(bounds[p + 1]), derived_seed(tools.seed, level, p)) for p in large]
        tools.crew.run(divide, parts, lambda part, found: inner.append(found))
        tools.progress(STAGE, level + 1, depth - 1)
        divided = np.unique(np.concatenate(inner))
        if len(divided) == len(bounds):
            break
        bounds = divided
        levels.append(bounds)
    return join(labels, levels)
