"""The clustering tree: labels whose embeddings are alike share nodes, and nodes are filled greedily.

Source: Jernite, Choromanska and Sontag 2017, section 7.2 and supplement: embeddings are learnt on another
tree first, k-means finds centres, and each word goes to the nearest cluster that is not full. Deviations:
the first tree is a Huffman tree of the same arity; clusters are found from the root down, `arity` a node,
where the paper finds 65^2 at once; and labels that are no words have the mean embedding of their rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.kernels.training.cluster import kmeans
from service.kernels.training.label_projection import add_embedded
from service.trainers.clustering import ROUNDS_MAX
from service.trainers.shape import Shape, join
from service.trainers.source import RowSource
from service.trainers.work import Tools, derived_seed

STAGE = "clustering"


def label_vectors(
    source: RowSource, labels: NDArray[np.int32], embedding: NDArray[np.float32], are_words: bool
) -> NDArray[np.float32]:
    """Return where labels lie among the embeddings, float32[len(labels), d]; each of length 1, or 0.

    Reads the rows once, unless labels are words.

    embedding  float32[V, d]
    are_words  label i is word i of the embedding; else it is where the features of its rows are
    """
    if are_words:
        return _of_length_one(embedding[labels].astype(np.float64))
    sums = np.zeros((len(source.census.label_rows), embedding.shape[1]))
    for part in source.parts():
        add_embedded(part.rows, part.labels, embedding, sums)
    return _of_length_one(sums[labels])


def clustered_shape(
    vectors: NDArray[np.float32],
    labels: NDArray[np.int32],
    counts: NDArray[np.int64],
    arity: int,
    tools: Tools,
) -> Shape:
    """Return the tree of fewest levels whose nodes have labels of like vectors.

    vectors  float32[K', d], each of length 1 or 0
    labels   int32[K'], K' >= 1, ascending: the labels that get a leaf
    counts   int64[K']  rows of each: frequent labels choose first, of equal ones the first label

    A child at level h has at most arity^(levels - h) labels. Cost: levels * rounds * K' * arity * d; memory
    4 K' arity bytes. Depends on the arguments alone.
    """
    n, dim = vectors.shape
    n_levels = 1
    while arity**n_levels < n:
        n_levels += 1
    dense = (np.arange(n + 1, dtype=np.int64) * dim, np.tile(np.arange(dim, dtype=np.int32), n))
    members = np.arange(n, dtype=np.int32)
    found = [np.array([0, n])]
    bounds, levels = found[0], []

    def divide(part: tuple[int, int, int, int]) -> NDArray[np.int64]:
        start, stop, room, seed_here = part
        here = members[start:stop]
        clusters = here.copy()
        rank = np.zeros(dim, np.int32)
        ends = kmeans(*dense, vectors.reshape(-1), clusters, arity, ROUNDS_MAX, seed_here, rank)
        chosen = _fill(vectors[here], _centres(vectors, clusters, ends), counts[here], room)
        members[start:stop] = here[np.argsort(chosen, kind="stable")]
        return start + np.cumsum(np.bincount(chosen, minlength=arity))

    for level in range(1, n_levels):
        large = np.flatnonzero(np.diff(bounds) > arity).tolist()
        room = arity ** (n_levels - level)
        parts = [
            (int(bounds[p]), int(bounds[p + 1]), room, derived_seed(tools.seed, level, p)) for p in large
        ]
        tools.crew.run(divide, parts, lambda part, ends: found.append(ends))
        tools.progress(STAGE, level, n_levels - 1)
        bounds = np.unique(np.concatenate(found))
        levels.append(bounds)
    return join(labels[members], levels)


def _centres(
    vectors: NDArray[np.float32], members: NDArray[np.int32], ends: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the sum of each cluster's vectors, of length 1; 0 of an empty one."""
    found = np.zeros((len(ends) - 1, vectors.shape[1]))
    for cluster in range(len(ends) - 1):
        found[cluster] = vectors[members[ends[cluster] : ends[cluster + 1]]].sum(axis=0, dtype=np.float64)
    return _of_length_one(found)


def _of_length_one(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return vectors divided by their lengths; those of length 0 as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: NDArray[np.float32] = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return found


def _fill(
    vectors: NDArray[np.float32], centres: NDArray[np.float32], counts: NDArray[np.int64], room: int
) -> NDArray[np.int64]:
    """Return each vector's cluster: the nearest, of equal ones the first, that has fewer than `room`."""
    likeness = np.einsum("nd,cd->nc", vectors, centres)  # its order of sums does not hang on the processor
    free = np.zeros(len(centres), np.float32)
    left = [room] * len(centres)
    chosen = np.empty(len(vectors), np.int64)
    for label in np.argsort(-counts, kind="stable").tolist():
        cluster = int(np.argmax(likeness[label] + free))
        chosen[label] = cluster
        left[cluster] -= 1
        if left[cluster] == 0:
            free[cluster] = -np.inf
    return chosen
