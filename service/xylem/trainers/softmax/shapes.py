"""Trees of softmax nodes: first shapes, and conversions from a shape to the topology of the kernels
and to a stored tree.
"""

import itertools

import numpy as np

from xylem.base import BadParameter, SparseRows, inverse
from xylem.trainers.clustering import STAGE, balanced_shape
from xylem.trainers.kernels.cluster import add_embedded, kmeans
from xylem.trainers.representations import projected_vectors
from xylem.trainers.shape import Shape, huffman_shape, join, random_shape
from xylem.trainers.softmax.tree import Network, SoftmaxTree
from xylem.trainers.source import RowSource, Tools, derived_seed
from xylem.trainers.tree_criteria import parents_of
from xylem_store import F32, F64, I32, I64, Chunk, Tree

# Most labels of a flat tree: each visit of a row changes the weights of all labels.
FLAT_MAX = 65_536


def first_shape(tree: str, arity: int, source: RowSource, tools: Tools) -> Shape:
    """Return the tree that training begins with, over the labels that rows carry.

    tree  huffman, random, kmeans or flat

    Raises BadParameter for a flat tree of more than FLAT_MAX labels.
    """
    counts = source.census.label_rows
    labels = np.flatnonzero(counts).astype(np.int32)
    if tree == "flat":
        if len(labels) > FLAT_MAX:
            raise BadParameter(
                f"tree: expected flat for at most {FLAT_MAX} labels, found {len(labels)}"
            )
        return join(labels, [])
    if tree == "huffman" or len(labels) <= arity:
        return huffman_shape(labels, counts[labels], arity)
    if tree == "random":
        return random_shape(labels, arity, derived_seed(tools.seed, 0))
    # balanced 2-means down to single labels puts similar labels next to each other
    halved = balanced_shape(projected_vectors(source, tools), labels, 1, 2, tools.seeded(0))
    return even_shape(halved.labels, arity)


def even_shape(labels: I32, arity: int) -> Shape:
    """Return the tree with the fewest levels that divides labels, in their order, into even parts.

    Nodes above the leaves have as many children as possible, the root as few as possible.
    """
    bounds = np.array([0, len(labels)])
    levels = []
    n_levels = 1
    while arity**n_levels < len(labels):
        n_levels += 1
    for level in range(n_levels - 1, 0, -1):
        parts = [bounds[:1]]
        for start, stop in itertools.pairwise(bounds.tolist()):
            n_parts = -(-(stop - start) // arity**level)
            parts.append(start + (stop - start) * np.arange(1, n_parts + 1) // n_parts)
        bounds = np.concatenate(parts)
        levels.append(bounds)
    return join(labels, levels)


def label_vectors(source: RowSource, labels: I32, embedding: F32, are_words: bool) -> F32:
    """Return vectors of labels from embeddings, float32[len(labels), d]; each of length 1, or 0.

    Reads the rows once, unless labels are words.

    embedding  float32[V, d]
    are_words  whether label i is word i of the embedding. Else the vector of a label is the sum of
               the embeddings of the features of its rows
    """
    if are_words:
        return _of_length_one(embedding[labels].astype(np.float64))
    sums = np.zeros((len(source.census.label_rows), embedding.shape[1]))
    for part in source.parts():
        add_embedded(part.rows, part.labels, embedding, sums)
    return _of_length_one(sums[labels])


def clustered_shape(vectors: F32, labels: I32, counts: I64, arity: int, tools: Tools) -> Shape:
    """Return a tree with the fewest levels, whose nodes have labels with similar vectors.

    vectors  float32[K', d], each of length 1 or 0
    labels   int32[K'], K' >= 1, ascending: the labels that get a leaf
    counts   int64[K']  rows of each label: frequent labels choose their cluster first, of equally
             frequent ones the first label

    A child at level h has at most arity^(levels - h) labels. Cost: levels * rounds * K' * arity *
    d; memory 4 K' arity bytes. The result depends on the arguments alone.
    """
    n, dim = vectors.shape
    n_levels = 1
    while arity**n_levels < n:
        n_levels += 1
    dense = SparseRows(
        np.arange(n + 1, dtype=np.int64) * dim,
        np.tile(np.arange(dim, dtype=np.int32), n),
        vectors.reshape(-1),
        dim,
    )
    members = np.arange(n, dtype=np.int32)
    cuts = [np.array([0, n])]
    bounds = cuts[0]
    levels = []

    def divide(part: tuple[int, int, int, int]) -> I64:
        start, stop, room, part_seed = part
        part_labels = members[start:stop]
        clusters = part_labels.copy()
        ends = kmeans(dense, clusters, arity, part_seed, np.zeros(dim, np.int32))
        sums = [
            vectors[clusters[first:last]].sum(axis=0, dtype=np.float64)
            for first, last in itertools.pairwise(ends)
        ]
        chosen = _fill(
            vectors[part_labels], _of_length_one(np.stack(sums)), counts[part_labels], room
        )
        members[start:stop] = part_labels[np.argsort(chosen, kind="stable")]
        return start + np.cumsum(np.bincount(chosen, minlength=arity))

    for level in range(1, n_levels):
        large = np.flatnonzero(np.diff(bounds) > arity).tolist()
        room = arity ** (n_levels - level)
        tools.crew.run(
            divide,
            [
                (int(bounds[p]), int(bounds[p + 1]), room, derived_seed(tools.seed, level, p))
                for p in large
            ],
            lambda part, ends: cuts.append(ends),
        )
        tools.progress(STAGE, level, n_levels - 1)
        bounds = np.unique(np.concatenate(cuts))
        levels.append(bounds)
    return join(labels[members], levels)


def _of_length_one(vectors: F64) -> F32:
    """Return vectors divided by their lengths; those of length 0 are not changed."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def _fill(vectors: F32, centres: F32, counts: I64, room: int) -> I64:
    """Return the cluster of each vector: the nearest one with fewer than `room` vectors.

    For equal distances it is the first one.
    """
    # not a matrix product, whose order of summation depends on the processor
    likeness = np.einsum("nd,cd->nc", vectors, centres)
    free = np.zeros(len(centres), np.float32)
    room_left = [room] * len(centres)
    chosen = np.empty(len(vectors), np.int64)
    for label in np.argsort(-counts, kind="stable").tolist():
        cluster = int(np.argmax(likeness[label] + free))
        chosen[label] = cluster
        room_left[cluster] -= 1
        if room_left[cluster] == 0:
            free[cluster] = -np.inf
    return chosen


def topology_of(shape: Shape, arity: int, n_labels: int) -> SoftmaxTree:
    """Return the topology of a shape, its inner nodes numbered in the order of the shape."""
    return topology_with(children_of(shape, arity), n_labels)


def children_of(shape: Shape, arity: int) -> I32:
    """Return the children of the inner nodes of a shape, int32[N, arity]: `SoftmaxTree.child`."""
    n_nodes = len(shape.first)
    number = inverse(shape.inner, n_nodes)
    parents = parents_of(shape.child_ptr)[1:]
    nodes = np.arange(1, n_nodes)
    child = np.full((len(shape.inner), arity), -1, np.int32)
    child[number[parents], nodes - shape.child_ptr[parents]] = np.where(
        number[nodes] < 0, -2 - shape.node_label[nodes], number[nodes]
    )
    return child


def topology_with(child: I32, n_labels: int) -> SoftmaxTree:
    """Return the topology of nodes with these children.

    Nodes that cannot be reached from the root keep -1 in all other arrays.
    """
    tree = empty_topology(len(child), child.shape[1], n_labels)
    tree.child[:] = child
    tree.level[0] = 0
    nodes = np.zeros(1, np.int64)
    while len(nodes):
        above, branch = np.nonzero(child[nodes] < -1)
        labels = -2 - child[nodes[above], branch]
        tree.leaf_node[labels] = nodes[above]
        tree.leaf_branch[labels] = branch
        above, branch = np.nonzero(child[nodes] > 0)
        below = child[nodes[above], branch]
        tree.parent[below] = nodes[above]
        tree.branch[below] = branch
        tree.level[below] = tree.level[nodes[above]] + 1
        nodes = below.astype(np.int64)
    return tree


def empty_topology(n_nodes: int, arity: int, n_labels: int) -> SoftmaxTree:
    """Return a topology without nodes and leaves: all elements are -1."""

    def none(*shape: int) -> I32:
        return np.full(shape, -1, np.int32)

    return SoftmaxTree(
        child=none(n_nodes, arity),
        parent=none(n_nodes),
        branch=none(n_nodes),
        level=none(n_nodes),
        leaf_node=none(n_labels),
        leaf_branch=none(n_labels),
    )


def tree_of(topology: SoftmaxTree, network: Network, dim: int) -> Tree:
    """Return a tree in the form of the store; all `dim` rows of each chunk are dense."""
    order = [0]
    child_ptr = [1]
    labels = [-1]
    chunks: list[Chunk | None] = []
    n_nodes = 1
    for number in order:
        children = topology.child[number] if number >= 0 else np.empty(0, np.int32)
        branches = np.flatnonzero(children != -1)
        child_ids = children[branches].tolist()
        order.extend(child if child >= 0 else -1 for child in child_ids)
        labels.extend(-2 - child if child < -1 else -1 for child in child_ids)
        n_nodes += len(branches)
        child_ptr.append(n_nodes)
        if not len(branches):
            chunks.append(None)
            continue

        chunks.append(
            Chunk.from_weights(
                np.repeat(np.arange(dim), len(branches)),
                np.tile(np.arange(len(branches)), dim),
                np.ascontiguousarray(network.weights[number, branches, :dim].T).reshape(-1),
                network.bias[number, branches].copy(),
            )
        )
    return Tree(np.array(child_ptr, np.int32), np.array(labels, np.int32), chunks)
