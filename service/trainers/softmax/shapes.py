"""Trees of softmax nodes: from the shape of a label tree to a kernel's topology, and to a stored tree."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import Chunk, Tree
from service.base.errors import BadParameter
from service.trainers.clustering import balanced_shape
from service.trainers.plt.trees import huffman_shape, parents_of, random_shape, shape_of
from service.trainers.projected import projected_vectors
from service.trainers.shape import Shape, join
from service.trainers.softmax.tree import Network, SoftmaxTree
from service.trainers.source import RowSource
from service.trainers.work import Tools, derived_seed

FLAT_MAX = 65_536
"""Labels of a node of all labels, at most: each visit of a row moves the weights of all of them."""


def first_shape(tree: str, arity: int, source: RowSource, tools: Tools) -> Shape:
    """Return the tree that training begins with, over the labels that rows carry.

    tree  huffman, random, kmeans or flat

    Raises BadParameter for a flat tree of more than FLAT_MAX labels.
    """
    counts = source.census.label_rows
    labels = np.flatnonzero(counts).astype(np.int32)
    if tree == "flat":
        if len(labels) > FLAT_MAX:
            raise BadParameter(f"tree: expected flat for at most {FLAT_MAX} labels, found {len(labels)}")
        child_ptr = np.full(len(labels) + 2, len(labels) + 1, np.int32)
        child_ptr[0] = 1
        return shape_of(child_ptr, np.concatenate([np.array([-1], np.int32), labels]))
    if tree == "huffman" or len(labels) <= arity:
        return huffman_shape(labels, counts[labels], arity)
    if tree == "random":
        return random_shape(labels, arity, derived_seed(tools.seed, 0))
    vectors = projected_vectors(source, tools)
    # balanced 2-means down to single labels puts labels that are alike next to each other
    halved = balanced_shape(vectors, labels, 1, 2, tools.seeded(0))
    return even_shape(halved.labels, arity)


def even_shape(labels: NDArray[np.int32], arity: int) -> Shape:
    """Return the tree of fewest levels that divides labels, in their order, into parts of even size.

    Nodes above the leaves are as full as can be, the root is the least so.
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


def topology_of(shape: Shape, arity: int, n_labels: int) -> SoftmaxTree:
    """Return the topology of a shape: inner nodes are numbered in the shape's order, breadth-first."""
    n_children = np.diff(shape.child_ptr)
    inner = shape.inner
    number = np.full(len(n_children), -1, np.int32)
    number[inner] = np.arange(len(inner))
    leaf_label = np.full(len(n_children), -1, np.int32)
    is_leaf = n_children == 0
    leaf_label[is_leaf] = shape.labels[shape.first[is_leaf]]
    parents = parents_of(shape.child_ptr)[1:]
    branches = (np.arange(1, len(n_children)) - shape.child_ptr[parents]).astype(np.int32)
    found = empty_topology(len(inner), arity, n_labels)
    nodes = np.arange(1, len(n_children))
    found.child[number[parents], branches] = np.where(is_leaf[nodes], -2 - leaf_label[nodes], number[nodes])
    below = nodes[~is_leaf[nodes]]
    found.parent[number[below]] = number[parents[below - 1]]
    found.branch[number[below]] = branches[below - 1]
    found.level[0] = 0
    for node in number[below].tolist():  # parents come first
        found.level[node] = found.level[found.parent[node]] + 1
    leaves = nodes[is_leaf[nodes]]
    found.leaf_node[leaf_label[leaves]] = number[parents[leaves - 1]]
    found.leaf_branch[leaf_label[leaves]] = branches[leaves - 1]
    return found


def empty_topology(n_nodes: int, arity: int, n_labels: int) -> SoftmaxTree:
    """Return a topology without any node or leaf: all -1."""

    def none(*shape: int) -> NDArray[np.int32]:
        return np.full(shape, -1, np.int32)

    nodes = none(n_nodes, arity), none(n_nodes), none(n_nodes), none(n_nodes)
    return SoftmaxTree(*nodes, none(n_labels), none(n_labels))


def tree_of(topology: SoftmaxTree, network: Network, dim: int) -> Tree:
    """Return the tree as the store takes it: all `dim` rows of each chunk are dense."""
    order, child_ptr, labels = [0], [1], [-1]
    chunks: list[Chunk | None] = []
    n_nodes = 1
    for number in order:
        children = topology.child[number] if number >= 0 else np.empty(0, np.int32)
        here = np.flatnonzero(children != -1)
        of_children = children[here].tolist()
        order.extend(child if child >= 0 else -1 for child in of_children)
        labels.extend(-2 - child if child < -1 else -1 for child in of_children)
        n_nodes += len(here)
        child_ptr.append(n_nodes)
        chunks.append(_chunk(network, number, here, dim) if len(here) else None)
    return Tree(np.array(child_ptr, np.int32), np.array(labels, np.int32), chunks)


def _chunk(network: Network, node: int, here: NDArray[np.int64], dim: int) -> Chunk:
    n = len(here)
    weight = np.ascontiguousarray(network.weights[node, here, :dim].T)
    return Chunk(
        features=np.arange(dim, dtype=np.int32),
        row_ptr=np.arange(dim + 1, dtype=np.int64) * n,
        child=np.tile(np.arange(n, dtype=np.int32), dim),
        weight=weight.reshape(-1),
        bias=network.bias[node, here].copy(),
    )
