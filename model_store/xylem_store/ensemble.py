"""TreeEnsemble: the one contract between trainers, the store and the kernels.

Conventions
-----------
A *node* has an id; ids number the whole forest breadth-first: the roots are 0 .. n_trees - 1, then
come the children of node 0, of node 1, and so on. So the children of a node are consecutive, a
child's id is larger than its parent's, every node but a root has exactly one parent, and all of
that follows from one array (`child_ptr`). A node without children is a *leaf*.

An inner node owns one *chunk*, a matrix (features used at the node) x (its children) with one
linear scorer for each child. The rows of a chunk, one for each feature, are found by counting bits
(`compiled.bits`) and stored either *sparse* (words that each hold a child's position and its
weight) or *dense* (one weight for each child, and padding).

A leaf of a *label tree* is one label; a leaf of a *decision tree* is a sparse histogram of labels.
A row that goes down a decision tree reaches one leaf or several (LINKS). A label's score is the
mean over the trees. In a tree it is the mean of its values in the leaves reached that are not
empty, and 0 if there is no such leaf.

Shapes use T trees, N nodes, C chunks, K labels, D features, G = ceil(D / 1024). Indices are int32,
offsets int64, all arrays C-contiguous and possibly read-only (mapped).
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import empty_group
from xylem_store.compiled.bits import LANES as LANES
from xylem_store.compiled.handles import (
    F32_1,
    I32_1,
    I32_2,
    I64_1,
    U32_2,
    U32_3,
    FirstSample_1,
    SecondSample_1,
    handle,
)

Kind = Literal["label-tree", "decision-tree", "combined"]
Link = Literal["hinge2", "hinge3", "logistic", "multiway", "argmax", "softmax"]
Weights = Literal["float32", "bfloat16", "int8"]

# The meaning of the margins of a node's children, by the kind of the ensemble.
#
# Label trees: a child's margin m gives its probability given its parent.
#     hinge2    exp(-max(0, 1 - m)^2)
#     hinge3    exp(-max(0, 1 - m)^3)
#     logistic  1 / (1 + exp(-m))
#     softmax   exp(m) over the sum of exp(m) of the node's children; the rows are dense, made by an
#               embedding (`xylem_store.extras`)
#
# Decision trees: the margins decide which children a row goes to. Of equal margins the child that
# comes first wins.
#     multiway  every child whose margin is > 0; if there is none, the child of the greatest margin
#     argmax    the child of the greatest margin only
#
# (A binary separator w, b is an argmax node whose first child has no weights and bias 0, the second
# child w and b.)
#
# Combined versions, logistic: a label's probability is 1 / (1 + exp(-m)) of the ranker's margin m
# (`xylem_store.members`).
LINKS: dict[Kind, tuple[Link, ...]] = {
    "label-tree": ("hinge2", "hinge3", "logistic", "softmax"),
    "decision-tree": ("multiway", "argmax"),
    "combined": ("logistic",),
}

# The number of each link for the kernels.
LINK_CODES: dict[Link, int] = {link: code for code, link in enumerate(get_args(Link))}


@handle
class TreeEnsemble(NamedTuple):
    """A forest of label trees or decision trees as plain arrays.

    Topology
      child_ptr   int32[N + 1]   children of node n are child_ptr[n] .. child_ptr[n + 1] - 1;
                                 child_ptr[0] = T, child_ptr[N] = N
      parent      int32[N]       -1 at the roots
      node_label  int32[N]       label tree: the leaf's label; -1 elsewhere
      label_leaf  int32[T, K]    label tree: the leaf of each label in each tree, -1 without one;
                                 decision tree: shape (0, 0)
      node_chunk  int32[N]       the chunk of an inner node, -1 at leaves; ascending, 0 .. C - 1
      node_bias   float32[N]     the constant term of the node's scorer (0 at the roots)
      node_scale  float32[N]     int8 weights: the factor of the stored weights of the node's
                                 scorer, >= 0; other weights: float32[0]
    Chunks
      directory   uint32[C, G, 2]  for each group of 1024 features: the set of its blocks of 32
                                 features that are not empty, and the number of the chunk's such
                                 blocks before the group
      block_ptr   int64[C + 1]   chunk c has the blocks block_ptr[c] .. block_ptr[c + 1] - 1
      blocks      uint32[B, 4]   for each block that is not empty: the set of its features that are
                                 used (not empty), the subset whose rows are dense, and the numbers
                                 of the chunk's sparse and dense rows before the block
      row_start   int64[C + 1]   chunk c's sparse rows have the offsets
                                 row_ptr[row_start[c] : row_start[c + 1]], one more than rows
      row_ptr     int32[..]      offsets into the chunk's sparse words, from 0, row after row
      sparse_ptr  int64[C + 1]   chunk c has the words sparse_ptr[c] .. sparse_ptr[c + 1] - 1
      sparse                     a word holds the child's position in its low half and the bits of
                                 its weight in its high half; ascending by child within a row
                  uint64[..]     for float32 weights
                  uint32[..]     for bfloat16: 16 + 16 bits, at most 65,536 children
                  uint16[..]     for int8: 8 + 8 bits, at most 256 children
      dense_ptr   int64[C + 1]   dense_ptr[C] = length of dense - LANES
      dense                      row r of chunk c begins at dense_ptr[c] + r * width; width = the
                                 children, padded (see LANES); padding is zero, and so are LANES
                                 weights after the last row
                  float32[..], uint16[..] for bfloat16, or int8[..]
    Leaves of decision trees (empty arrays for label trees)
      leaf_ptr    int64[N + 1] or int64[1]; a leaf may be empty: it counts in no mean
      leaf_label  int32[..]      ascending within a leaf
      leaf_value  float32[..]    share of the label in the leaf, in [0, 1]

    `xylem_store.checks` proves all of this before a kernel sees the arrays; FORMAT.md is the spec.
    """

    child_ptr: I32_1
    parent: I32_1
    node_label: I32_1
    label_leaf: I32_2
    node_chunk: I32_1
    node_bias: F32_1
    node_scale: F32_1
    directory: U32_3
    block_ptr: I64_1
    blocks: U32_2
    row_start: I64_1
    row_ptr: I32_1
    sparse_ptr: I64_1
    sparse: FirstSample_1
    dense_ptr: I64_1
    dense: SecondSample_1
    leaf_ptr: I64_1
    leaf_label: I32_1
    leaf_value: F32_1


def levels_of(child_ptr: NDArray[np.int32], n_roots: int) -> Iterator[range]:
    """Yield the nodes of each level of a forest, or of its first trees: their ids are a range."""
    first = 0
    last = n_roots
    while first < last:
        yield range(first, last)
        first = int(child_ptr[first])
        last = int(child_ptr[last])


def no_trees() -> TreeEnsemble:
    """Return the ensemble of a version without trees of its own: every array is empty."""
    return empty_group(
        TreeEnsemble,
        child_ptr=np.zeros(1, np.int32),
        sparse=np.empty(0, np.uint64),
        dense=np.empty(0, np.float32),
    )


class Chunk(NamedTuple):
    """The scorers of one inner node as a trainer leaves them, a sparse features x children matrix.

    features  int32[m]     ascending, distinct
    row_ptr   int64[m + 1]  row i has the entries row_ptr[i] .. row_ptr[i + 1] - 1
    child     int32[nnz]   position of the child in its node, 0 .. C - 1, ascending within a row
    weight    float32[nnz]
    bias      float32[C]
    """

    features: NDArray[np.int32]
    row_ptr: NDArray[np.int64]
    child: NDArray[np.int32]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]

    @staticmethod
    def from_weights(
        feature: NDArray[Any],
        child: NDArray[Any],
        weight: NDArray[np.float32],
        bias: NDArray[np.float32],
    ) -> "Chunk":
        """Return the chunk of weights that ascend by feature, and by child within a feature."""
        starts = np.flatnonzero(np.diff(feature, prepend=-1))
        return Chunk(
            feature[starts].astype(np.int32),
            np.append(starts, len(feature)).astype(np.int64),
            child.astype(np.int32),
            weight,
            bias,
        )

    def get(self) -> "Chunk":
        """Return the chunk itself, as the `get` of a handle returns one that is in a file."""
        return self

    @property
    def feature(self) -> NDArray[np.int32]:
        """Return the feature of each weight, int32[nnz]."""
        return np.repeat(self.features, np.diff(self.row_ptr))


class Tree(NamedTuple):
    """One tree as a trainer leaves it, its nodes numbered breadth-first from the root, 0.

    child_ptr   int32[n + 1]  children of node i are child_ptr[i] .. child_ptr[i + 1] - 1;
                child_ptr[0] = 1
    node_label  int32[n]      label tree: the leaf's label; -1 at inner nodes and in decision trees
    chunks      for each node: a Chunk, or a handle whose `get` returns it, for an inner node; None
                for a leaf
    histograms  decision tree, for each node: (labels int32 ascending, values float32) for a leaf,
                None for an inner node. Label tree: None
    """

    child_ptr: NDArray[np.int32]
    node_label: NDArray[np.int32]
    chunks: list[Chunk | None]
    histograms: list[tuple[NDArray[np.int32], NDArray[np.float32]] | None] | None = None
