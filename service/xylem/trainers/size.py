"""Bounds on the size of a label tree, computed from its shape before its training."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from xylem.base import Calls, SparseRows
from xylem.trainers.classifiers import Members
from xylem.trainers.shape import Shape
from xylem.trainers.source import Tools, TrainingSet
from xylem.trainers.tree_criteria import FLAT_WEIGHT_BYTES, WEIGHT_BYTES, shares_by_depth
from xylem_store import I64, Weights

# Bytes of a weight in a sparse row, by the type of weights: the child's position and the value.
SPARSE_BYTES: dict[Weights, int] = {"float32": 8, "bfloat16": 4, "int8": 2}

# Bytes of a weight in a dense row, by the type of weights; the children are padded.
DENSE_BYTES: dict[Weights, int] = {"float32": 4, "bfloat16": 2, "int8": 1}

# Bytes of a number of an embedding, by the type of weights; int8 versions store bfloat16.
EMBEDDING_BYTES: dict[Weights, int] = {"float32": 4, "bfloat16": 2, "int8": 2}

# Bytes of a node beside its weights: children, parent, label, chunk and bias; int8 a scale too.
NODE_BYTES: dict[Weights, int] = {"float32": 20, "bfloat16": 20, "int8": 24}

# four numbers of 8 bytes say where the parts of a chunk begin, one of 4 where its last row ends
CHUNK_BYTES = 36

# the directory of a chunk has an entry for each group of features, and one for each used block
GROUP_BYTES = 8
GROUP_FEATURES = 1024
BLOCK_BYTES = 16
BLOCK_FEATURES = 32

# arrays of offsets have one element more than there are nodes, chunks or weights: these together
ENDS_BYTES = 108


class TreeCounts(NamedTuple):
    """What decides how many bytes trees take beside their weights.

    n_nodes    nodes of all trees, leaves too
    n_chunks   nodes that have children
    n_rows     features with weights at a node, summed over the nodes
    n_columns  features of the model
    n_bytes    bytes of all else: the leaf of each label, or the labels of each leaf
    """

    n_nodes: int
    n_chunks: int
    n_rows: int
    n_columns: int
    n_bytes: int

    def bytes_beside(self, weights: Weights) -> int:
        """Return a bound on the bytes that are stored beside the weights: biases, shapes, places.

        The offsets of sparse rows are not counted: a row is only sparse where that saves more than
        an offset against what its weights count in a SizeEstimate.
        """
        n_blocks = min(self.n_rows, self.n_chunks * -(-self.n_columns // BLOCK_FEATURES))
        n_groups = self.n_chunks * -(-self.n_columns // GROUP_FEATURES)
        n_chunk_bytes = CHUNK_BYTES * self.n_chunks + GROUP_BYTES * n_groups
        return (
            NODE_BYTES[weights] * self.n_nodes
            + n_chunk_bytes
            + BLOCK_BYTES * n_blocks
            + self.n_bytes
            + ENDS_BYTES
        )


@dataclass(frozen=True)
class SizeEstimate:
    """A bound on a model's size.

    nonzeros_bound   number of weights: sum over nodes of children * features used at the node
    bytes_bound      nonzeros_bound * WEIGHT_BYTES
    ratio_to_ovr     equation 20: bytes_bound / (FLAT_WEIGHT_BYTES * features used * labels that
                     some row carries)
    stored_bytes     bytes of the stored trees (weights, biases, shapes), embeddings and mean rows,
                     by the type of weights; names of labels and features are not counted
    alpha_per_depth  for the nodes at depth 1, 2, ...: the features used at a node divided by those
                     used at its parent, averaged with the number of children as weights
    """

    nonzeros_bound: int
    bytes_bound: int
    ratio_to_ovr: float
    stored_bytes: dict[Weights, int]
    alpha_per_depth: tuple[float, ...]

    @classmethod
    def from_counts(
        cls,
        n_weights: int,
        n_features: int,
        n_labels: int,
        *,
        trees: TreeCounts,
        alphas: tuple[float, ...] = (),
    ) -> Self:
        """Return the estimate for n_weights weights.

        n_weights             a bound: for each node, its children times the features of its rows,
                              also of weights that are 0 and not stored. The number of weights that
                              are stored is too few, as then the rows of their features are not
                              counted
        n_features, n_labels  that occur in the rows

        The weights are taken to be in sparse rows; dense rows take less.
        """
        n_bytes = n_weights * WEIGHT_BYTES

        return cls(
            n_weights,
            n_bytes,
            n_bytes / max(1, n_features * n_labels * FLAT_WEIGHT_BYTES),
            {
                weights: n_weights * size + trees.bytes_beside(weights)
                for weights, size in SPARSE_BYTES.items()
            },
            alphas,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for a report."""
        return asdict(self) | {"alpha_per_depth": list(self.alpha_per_depth)}


def estimate_size(
    data: TrainingSet, shapes: list[tuple[Shape, Members]], tools: Tools
) -> SizeEstimate:
    """Return the bound on the size of a model with these trees.

    Source: Lin, Liu and Lin 2024, section 6.2, equations 17 to 20. The weights of a classifier lie
    in the span of the node's rows, so a feature that none of these has gets weight 0. Cost: one
    pass over the rows of every inner node.
    """
    return size_of(
        ((shape, _features_used(data.rows, shape, members, tools)) for shape, members in shapes),
        len(shapes),
        data.rows.n_features,
        data.labels.n_labels,
        tools,
    )


def size_of(
    counted: Iterable[tuple[Shape, I64]], n_trees: int, n_columns: int, n_names: int, tools: Tools
) -> SizeEstimate:
    """Return the bound on the size of trees, as `estimate_size`.

    counted    the shape of each tree, and int64[nodes]: the number of features in the rows of each
               inner node
    n_columns  features of the model
    n_names    labels of the model, also those that no row carries
    """
    n_used = n_labels = 0
    totals = np.zeros(4, np.int64)
    depth_sums = np.zeros((0, 2))
    for number, (shape, used) in enumerate(counted):
        n_children = np.diff(shape.child_ptr)

        n_used = int(used[0])
        n_labels = len(shape.labels)
        totals += (used * n_children).sum(), len(used), len(shape.inner), used.sum()
        sums = shares_by_depth(shape.child_ptr, used, n_children)
        depth_sums = np.pad(depth_sums, ((0, max(0, len(sums) - len(depth_sums))), (0, 0)))
        depth_sums[: len(sums)] += sums
        tools.progress("estimate", number + 1, n_trees)
    alphas = depth_sums[:, 0] / depth_sums[:, 1]
    bound, n_nodes, n_chunks, n_rows = totals.tolist()
    return SizeEstimate.from_counts(
        bound,
        n_used,
        n_labels,
        trees=TreeCounts(n_nodes, n_chunks, n_rows, n_columns, 4 * n_trees * n_names),
        alphas=tuple(alphas.tolist()),
    )


def leaf_bytes(n_nodes: int, n_entries: int) -> int:
    """Return the bytes of the labels of leaves of decision trees: n_entries labels and values."""
    return 8 * n_nodes + 8 * n_entries


def count_used(node: int, rows: SparseRows, shape: Shape, members: Members) -> int:
    """Return the number of features in the rows of a node."""
    node_rows = members.rows[members.ptr[shape.first[node]] : members.ptr[members.end(shape, node)]]
    is_used = np.zeros(rows.n_features, np.bool_)
    is_used[rows.take(np.unique(node_rows)).indices] = True
    return int(np.count_nonzero(is_used))


def _features_used(rows: SparseRows, shape: Shape, members: Members, tools: Tools) -> I64:
    """Return int64[nodes]: the number of features in the rows of each inner node; 0 at leaves."""
    used = np.zeros(len(shape.first), np.int64)
    tools.crew.steps(
        Calls(count_used, (rows, shape, members)), shape.inner.tolist(), used.__setitem__
    )
    return used
