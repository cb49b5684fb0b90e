"""Adding new labels to a tree of softmax nodes.

A new label becomes a sibling of the label that the tree predicts for the mean of its rows: it gets
a free place in that label's node; if there is none, both become children of a new node. The nodes
above new labels are trained further, on the rows of all labels below them. Embeddings and all other
nodes keep their bits: the distribution of rows at the other nodes has not changed.
"""

from typing import NamedTuple

import numpy as np

from xylem.base import BadParameter
from xylem.trainers.regrowing import Regrown
from xylem.trainers.shape import huffman_shape, shape_of
from xylem.trainers.softmax.parameters import RATES, SoftmaxParameters
from xylem.trainers.softmax.shapes import children_of, topology_of, topology_with, tree_of
from xylem.trainers.softmax.training import Piece, run_piece
from xylem.trainers.softmax.tree import (
    LearningState,
    Network,
    SoftmaxTree,
    Steps,
    add_representations,
)
from xylem.trainers.softmax.updates import no_statistics
from xylem.trainers.source import Tools, TrainingSet, derived_random, derived_seed
from xylem_store import (
    I32,
    I64,
    Bools,
    Model,
    as_float,
    assemble_embedding,
    build_ensemble,
    dense_weights,
    trees_of,
)

# Words of derived seeds: for drawing labels of rows, and for shuffling rows.
_DRAW = 5
_ORDER = 6

_STAGE = "new labels"


class SoftmaxGrowth(NamedTuple):
    """Adds new labels to the tree of a version (`spec.Regrows`)."""

    parameters: SoftmaxParameters

    def extend(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Return the tree with a leaf for each label that rows carry and that has none.

        data  old and new rows; labels of the version, and after them new ones

        Cost: a pass over all rows, and as many passes as in training over the rows of the nodes
        above new leaves.
        """
        p = self.parameters
        counts = np.bincount(data.labels.indices, minlength=data.labels.n_labels)
        tree, network = _read(model, p, data.labels.n_labels)
        n_before = len(tree.parent)
        is_new = (counts > 0) & (tree.leaf_node < 0)
        new = np.flatnonzero(is_new).astype(np.int32)
        beside = _nearest(tree, network, new, _rows_of(data, is_new), p)
        tree, network = _with_leaves(tree, network, new, beside, np.maximum(counts, 1))
        lowest, above = _nodes_above(tree, new)
        epochs = p.descent().epochs
        rate = p.rate or RATES["sgd"]
        _learn(tree, network, lowest, data, p, epochs, rate, tools.seeded(0))
        _learn(tree, network, above, data, p, 1, rate / epochs, tools.seeded(1))
        return Regrown(
            ensemble=build_ensemble(
                [tree_of(tree, network, p.dim)], data.labels.n_labels, p.dim, model.manifest.weights
            ),
            divided=len(tree.parent) - n_before,
            classifiers=int((tree.child[above] != -1).sum()),
        )

    def refit(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Raise BadParameter: softmax trees are trained further only from a state."""
        raise BadParameter(f"from: expected a state, found {model.manifest.full_name} without one")


def _read(model: Model, p: SoftmaxParameters, n_labels: int) -> tuple[SoftmaxTree, Network]:
    """Return the tree and the network of a version, with room for n_labels labels."""
    (old,) = trees_of(model.ensemble)
    shape = shape_of(old.child_ptr, old.node_label)
    arity = max(
        p.arity, int(np.diff(old.child_ptr).max()), n_labels if p.first_tree() == "flat" else 0
    )
    tree = topology_of(shape, arity, n_labels)
    u = as_float(assemble_embedding(model.manifest.n_features, model.arrays).u)
    embedding = np.zeros((len(u), p.padded_dim()), np.float32)
    embedding[:, : p.dim] = u

    weights = np.zeros((*tree.child.shape, p.padded_dim()), np.float32)
    network = Network(
        weights,
        np.zeros(tree.child.shape, np.float32),
        embedding,
        np.zeros((1, 0, p.padded_dim()), np.float32),
    )
    for number, node in enumerate(old.nodes[shape.inner].tolist()):
        first, last = model.ensemble.child_ptr[node : node + 2].tolist()
        weights[number, : last - first, : p.dim] = dense_weights(model.ensemble, node, p.dim)
        network.bias[number, : last - first] = model.ensemble.node_bias[first:last]
    return tree, network


def _rows_of(data: TrainingSet, marked: Bools) -> TrainingSet:
    """Return the rows that carry a marked label.

    marked  bool[K]
    """
    entry_row = np.repeat(np.arange(data.n_rows), np.diff(data.labels.indptr))
    return data.take(np.unique(entry_row[marked[data.labels.indices]]))


def _nearest(
    tree: SoftmaxTree, network: Network, new: I32, rows: TrainingSet, p: SoftmaxParameters
) -> I32:
    """Return, for each new label, the label that the tree predicts for the mean of its rows."""
    sums = np.zeros((rows.labels.n_labels, network.embedding.shape[1]))
    add_representations(*rows, network, p.descent().is_mean, sums)
    counts = np.bincount(rows.labels.indices, minlength=len(sums))
    nearest = np.empty(len(new), np.int32)
    for i, label in enumerate(new.tolist()):
        mean = sums[label] / counts[label]
        node = 0
        while node >= 0:
            margins = np.einsum("cd,d->c", network.weights[node], mean) + network.bias[node]
            node = int(
                tree.child[node, np.where(tree.child[node] != -1, margins, -np.inf).argmax()]
            )
        nearest[i] = -2 - node
    return nearest


def _with_leaves(
    tree: SoftmaxTree, network: Network, new: I32, beside: I32, counts: I64
) -> tuple[SoftmaxTree, Network]:
    """Return the tree with the leaves of the new labels, and the network with initial parameters.

    The parameters of a new leaf in a free place are copied from its sibling. At a new node, weights
    are 0 and biases are the logarithms of the numbers of rows. The arrays of `tree` and `network`
    are overwritten.

    beside  int32[len(new)]  the sibling of each new label
    """
    arity = tree.child.shape[1]
    n_nodes = len(tree.child)
    children = [tree.child]
    biases = [network.bias]
    for other in np.unique(beside).tolist():
        joining = new[beside == other]
        node = int(tree.leaf_node[other])
        branch = tree.leaf_branch[other]
        free = np.flatnonzero(tree.child[node] == -1)[: len(joining)]
        if len(free) == len(joining):
            tree.child[node, free] = -2 - joining
            network.weights[node, free] = network.weights[node, branch]
            network.bias[node, free] = network.bias[node, branch] + np.log(
                counts[joining] / counts[other]
            )
            continue
        labels = np.sort(np.append(joining, np.int32(other)))
        shape = huffman_shape(labels, counts[labels], arity)
        child = children_of(shape, arity)
        bias = np.zeros(child.shape, np.float32)
        bias[child != -1] = np.log(shape.below(counts[shape.labels])[1:])
        tree.child[node, branch] = n_nodes
        children.append(np.where(child > 0, child + n_nodes, child))
        biases.append(bias)
        n_nodes += len(child)
    weights = np.zeros((n_nodes, *network.weights.shape[1:]), np.float32)
    weights[: len(network.weights)] = network.weights
    return topology_with(np.concatenate(children), len(counts)), network._replace(
        weights=weights, bias=np.concatenate(biases)
    )


def _nodes_above(tree: SoftmaxTree, new: I32) -> tuple[Bools, Bools]:
    """Return (the lowest nodes above new leaves, all nodes above new leaves), bool[N] each.

    The lowest ones are the parents of new leaves, and the nodes on the paths between two of these.
    """
    direct = np.unique(tree.leaf_node[new])
    lowest = np.zeros(len(tree.parent), np.bool_)
    above = np.zeros(len(tree.parent), np.bool_)
    lowest[direct] = True
    for node in direct.tolist():
        path = [node]
        while tree.parent[path[-1]] >= 0:
            path.append(int(tree.parent[path[-1]]))
        above[path] = True
        lowest[path[: np.flatnonzero(lowest[path])[-1] + 1]] = True
    return lowest, above


def _learn(
    tree: SoftmaxTree,
    network: Network,
    nodes: Bools,
    data: TrainingSet,
    p: SoftmaxParameters,
    passes: int,
    rate: float,
    tools: Tools,
) -> None:
    """Train some nodes alone on the rows of the labels below them, at a rate that falls to 0.

    nodes  bool[N]  the nodes; those on a path between two of them must be among them
    """
    leaf_node = tree.leaf_node.copy()
    leaf_branch = tree.leaf_branch.copy()
    while len(out := np.flatnonzero((leaf_node >= 0) & ~nodes[leaf_node])):
        leaf_branch[out] = tree.branch[leaf_node[out]]
        leaf_node[out] = tree.parent[leaf_node[out]]
    part = tree._replace(
        parent=np.where(nodes[tree.parent], tree.parent, -1).astype(np.int32),
        leaf_node=leaf_node,
        leaf_branch=leaf_branch,
    )
    state = LearningState(
        part, network, Network(*(array[:0] for array in network)), no_statistics(tree, None, 0)
    )
    rows = _rows_of(data, leaf_node >= 0)
    draws = np.array([derived_seed(tools.seed, _DRAW)], np.uint64)
    shuffled = derived_random(tools.seed, _ORDER)
    for done in range(passes):
        first = rate * (1 - done / passes)
        steps = Steps(
            first,
            rate * (1 - (done + 1) / passes),
            p.descent().is_mean,
            p.descent().by_probability,
            embeds=False,
        )
        run_piece(
            Piece(rows, shuffled.permutation(rows.n_rows).astype(np.int32), steps, 0),
            state,
            draws,
            tools,
        )
        tools.progress(_STAGE, done + 1, passes)
