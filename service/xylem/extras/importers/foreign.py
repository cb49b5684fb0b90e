"""Convert trees from the numbering and storage of other libraries to those of our store."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import Scalar, offsets, ranges
from xylem.engine import Norm
from xylem.extras.importers.files import ModelFile
from xylem_store import F32, I64, IDS_MAX, Chunk, Link, Tree

DEPTH_MAX = 1000  # the most levels of a tree


class Imported(NamedTuple):
    """A model that was read from the files of another library.

    n_labels    the number of labels according to the files
    all_labels  whether there are no others; if False, labels that are in no tree may follow
    n_features  the number of features according to the files, without the bias
    norm        how the library scales a row before it predicts
    settings    settings of the training that the files contain
    """

    trees: list[Tree]
    link: Link
    n_labels: int
    all_labels: bool
    n_features: int
    norm: Norm
    settings: Mapping[str, Scalar]


class Branches(NamedTuple):
    """The shape of a tree; its n nodes are numbered in any order.

    child_ptr  int64[n + 1]  ascending from 0
    child      int64[..]     the children of node i are child[child_ptr[i]:child_ptr[i + 1]]
    label      int64[n]      a leaf's label, -1 elsewhere
    root       int
    """

    child_ptr: I64
    child: I64
    label: I64
    root: int


class ForeignColumns(NamedTuple):
    """Linear scorers: the columns of a sparse matrix (features x scorers), and constant terms.

    indptr   int64[n + 1]
    indices  int64[..]     features, in any order within a column
    weights  float32[..]   finite
    bias     float32[n]    finite
    """

    indptr: I64
    indices: I64
    weights: F32
    bias: F32


def check_columns(
    file: ModelFile, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n_rows: int
) -> None:
    """Raise BadModel unless the arrays are a sparse matrix by columns, of `n_rows` rows."""
    file.expect(
        len(indptr) > 0 and indptr[0] == 0 and not bool((indptr[1:] < indptr[:-1]).any()),
        "offsets of columns that ascend from 0",
        "others",
    )
    file.expect(
        int(indptr[-1]) == len(indices) == len(values),
        f"{indptr[-1]} row ids and values",
        f"{len(indices)} and {len(values)}",
    )
    file.expect(
        len(indices) == 0 or (indices.min() >= 0 and indices.max() < n_rows),
        f"row ids from 0 to {n_rows - 1}",
        "others",
    )


def finite_weights(file: ModelFile, values: NDArray[Any]) -> F32:
    """Return weights as float32; raise BadModel if one is not finite in that type."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = values.astype(np.float32)
    file.expect(bool(np.isfinite(weights).all()), "weights that are finite in 32 bits", "others")
    return weights


def split_bias(
    file: ModelFile,
    matrix: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    n_features: int,
    bias: float,
    factor: float = 1.0,
) -> ForeignColumns:
    """Split a matrix by columns into weights and constant terms.

    matrix      (indptr, indices, values), checked by `check_columns`
    n_features  the row of the bias feature, if the matrix has one
    bias        the value of the bias feature, by which the library multiplies that row
    factor      the factor by which all margins are multiplied

    Raises BadModel for a weight or a constant term that is not finite in 32 bits.
    """
    indptr, indices, values = matrix
    column_ids = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    is_bias = indices == n_features
    constant = np.zeros(len(indptr) - 1)
    weight_offsets = offsets(~is_bias)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(constant, column_ids[is_bias], values[is_bias].astype(np.float64) * bias)
        weights = values[~is_bias].astype(np.float64) * factor
        constant = constant * factor
    return ForeignColumns(
        weight_offsets[indptr],
        indices[~is_bias].astype(np.int64),
        finite_weights(file, weights),
        finite_weights(file, constant),
    )


def plant(file: ModelFile, branches: Branches, chunk_of: Callable[[int, I64], Chunk]) -> Tree:
    """Return the tree with its nodes numbered breadth-first; nodes above no label are left out.

    chunk_of  a function that is called with an inner node and with its children that are in the
              tree, numbered as in `branches`, and returns the scorers of these children

    Raises BadModel for a node that is missing or reached twice, a label that two leaves or an inner
    node have, a tree without labels, or one of more than DEPTH_MAX levels. Cost: O(nodes), and that
    of the chunks.
    """
    order, parent = _breadth_first(file, branches)
    is_needed = branches.label >= 0
    for nodes in reversed(order[1:]):
        parents = parent[nodes[is_needed[nodes]]]
        file.expect(
            not bool((branches.label[parents] >= 0).any()), "labels at leaves only", "an inner one"
        )
        is_needed[parents] = True
    file.expect(
        len(order) > 1 and bool(is_needed[branches.root]),
        "a tree of at least one label below its root",
        "none",
    )
    nodes = np.concatenate([level[is_needed[level]] for level in order])
    n_children = np.bincount(parent[nodes[1:]], minlength=len(branches.label))[nodes]
    child_ptr = 1 + offsets(n_children)
    labels = branches.label[nodes]
    leaf_labels = labels[labels >= 0]
    file.expect(len(np.unique(leaf_labels)) == len(leaf_labels), "at most one leaf a label", "more")
    file.expect(int(leaf_labels.max()) < IDS_MAX, f"labels below {IDS_MAX}", int(leaf_labels.max()))
    chunks: list[Chunk | None] = [None] * len(nodes)
    for i in np.flatnonzero(n_children).tolist():
        chunks[i] = chunk_of(int(nodes[i]), nodes[child_ptr[i] : child_ptr[i + 1]])
    return Tree(child_ptr.astype(np.int32), labels.astype(np.int32), chunks)


def _breadth_first(file: ModelFile, branches: Branches) -> tuple[list[I64], I64]:
    """Return the nodes of each level from the root, and the parent of each node.

    The parent is -1 for the root and for nodes that are not reached. Raises BadModel.
    """
    child_ptr, child, label, root = branches
    n_nodes = len(label)
    file.expect(0 < n_nodes < IDS_MAX, f"1 to {IDS_MAX} nodes", n_nodes)
    file.expect(0 <= root < n_nodes, f"a root below {n_nodes}", root)
    file.expect(
        len(child) == 0 or (child.min() >= 0 and child.max() < n_nodes),
        f"children below {n_nodes}",
        "others",
    )
    parent = np.full(n_nodes, -1)
    reached = np.zeros(n_nodes, np.bool_)
    level = np.array([root])
    order: list[I64] = []
    while len(level):
        file.expect(
            not bool(reached[level].any()) and len(np.unique(level)) == len(level),
            "every node to be reached once from the root",
            "a loop",
        )
        file.expect(len(order) < DEPTH_MAX, f"at most {DEPTH_MAX} levels", "more")
        reached[level] = True
        order.append(level)
        counts = child_ptr[level + 1] - child_ptr[level]
        children = child[ranges(child_ptr[level], counts)]
        parent[children] = np.repeat(level, counts)
        level = children
    return order, parent


def chunk_of_columns(file: ModelFile, columns: ForeignColumns, column_ids: I64) -> Chunk:
    """Return the chunk of the children whose scorers are the columns `column_ids`, in that order.

    Weights of zero are left out. Raises BadModel for a feature that is in a column twice.
    """
    lengths = columns.indptr[column_ids + 1] - columns.indptr[column_ids]
    places = ranges(columns.indptr[column_ids], lengths)
    child = np.repeat(np.arange(len(column_ids), dtype=np.int32), lengths)
    nonzero = np.flatnonzero(columns.weights[places])
    order = nonzero[np.argsort(columns.indices[places[nonzero]], kind="stable")]
    features = columns.indices[places[order]]
    child = child[order]
    is_repeated = (features[1:] == features[:-1]) & (child[1:] == child[:-1])
    file.expect(not bool(is_repeated.any()), "a feature once in a column", "one twice")
    return Chunk.from_weights(
        features, child, columns.weights[places[order]], columns.bias[column_ids]
    )


class Nested:
    """The nodes of a tree that is read recursively, numbered in the order of `new`: root first.

    children  the children of each node
    labels    the label of each node, -1 if it is no leaf
    """

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.children: list[list[int]] = []
        self.labels: list[int] = []

    def new(self, label: int) -> int:
        """Add a node with a label, -1 if it is no leaf; return its number."""
        self.children.append([])
        self.labels.append(label)
        return len(self.labels) - 1

    @property
    def branches(self) -> Branches:
        """Return the shape of the tree."""
        return Branches(
            offsets(map(len, self.children)),
            np.array([node for nodes in self.children for node in nodes], np.int64),
            np.array(self.labels, np.int64),
            0,
        )
