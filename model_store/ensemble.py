"""TreeEnsemble: the one contract between trainers, the store and the kernels.

Conventions
-----------
A *node* has an id; ids number the whole forest breadth-first: the roots are 0 .. n_trees - 1, then the
children of node 0, of node 1, and so on. So the children of a node are consecutive, a child's id is larger
than its parent's, every node but a root has exactly one parent, and all of that follows from one array
(`child_ptr`). A node without children is a *leaf*.

An inner node owns one *chunk*: (features used at the node) x (its children), one linear scorer a child.
The rows of a chunk, one a feature, are found through a hash table and stored either *sparse* (words that
each hold a child's position and its weight) or *dense* (one weight a child, padded to LANES).

A leaf of a *label tree* is one label; a leaf of a *decision tree* is a sparse histogram of labels.

Shapes use T trees, N nodes, K labels, D features. Indices are int32, offsets int64, all arrays C-contiguous
and possibly read-only (mapped).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

LANES = 16
"""Dense rows are padded to a multiple of this many children: one vector of the kernels."""

EMPTY_SLOT = -1
"""The feature of a slot that holds no row."""

Kind = Literal["label-tree", "decision-tree"]
Link = Literal["hinge2", "hinge3", "logistic"]
Weights = Literal["float32", "bfloat16", "int8"]

LINK_CODES: dict[Link, int] = {"hinge2": 0, "hinge3": 1, "logistic": 2}
"""How a child's margin m becomes its probability given its parent: exp(-max(0, 1 - m)^2),
exp(-max(0, 1 - m)^3), or 1 / (1 + exp(-m)). The numbers are what the kernels take."""


class TreeEnsemble(NamedTuple):
    """A forest of label trees or decision trees as plain arrays.

    Topology
      child_ptr   int32[N + 1]   children of node n are child_ptr[n] .. child_ptr[n + 1] - 1;
                                 child_ptr[0] = T, child_ptr[N] = N
      parent      int32[N]       -1 at the roots
      node_label  int32[N]       label tree: the leaf's label; -1 elsewhere
      label_leaf  int32[T, K]    label tree: the leaf of each label in each tree, -1 where it has none;
                                 decision tree: shape (0, 0)
    Chunks
      node_bias   float32[N]     the constant term of the node's scorer (0 at the roots)
      slot_ptr    int64[N + 1]   slots of node n's chunk; a chunk has at least one empty slot
      slots       int32[S, 2]    (feature, place); feature EMPTY_SLOT: no row. place >= 0: a sparse row, at
                                 sparse[sparse_ptr[n] + place]; place < 0: the dense row ~place of the chunk,
                                 at dense[dense_ptr[n] + ~place * width], width = children padded to LANES
      sparse_ptr  int64[N + 1]
      sparse      uint64[..]     weights float32: a row is a count, then that many words, the child's position
                  or uint32      in the low and the bits of its weight in the high half, ascending by child;
                                 uint32 words for bfloat16 (16 + 16 bits; at most 65,536 children)
      dense_ptr   int64[N + 1]   multiples of LANES
      dense       float32[..]    or uint16 (bfloat16); padding is zero
    Leaves of decision trees (empty arrays for label trees)
      leaf_ptr    int64[N + 1] or int64[1]
      leaf_label  int32[..]      ascending within a leaf
      leaf_value  float32[..]    share of the label in the leaf, in [0, 1]

    `model_store.checks` proves every one of these before a kernel sees the arrays; FORMAT.md is the spec.
    """

    child_ptr: NDArray[np.int32]
    parent: NDArray[np.int32]
    node_label: NDArray[np.int32]
    label_leaf: NDArray[np.int32]
    node_bias: NDArray[np.float32]
    slot_ptr: NDArray[np.int64]
    slots: NDArray[np.int32]
    sparse_ptr: NDArray[np.int64]
    sparse: NDArray[Any]
    dense_ptr: NDArray[np.int64]
    dense: NDArray[Any]
    leaf_ptr: NDArray[np.int64]
    leaf_label: NDArray[np.int32]
    leaf_value: NDArray[np.float32]


class Chunk(NamedTuple):
    """The scorers of one inner node as a trainer leaves them: a sparse (features x children) matrix.

    features  int32[m]     ascending, without repeats
    row_ptr   int64[m + 1]
    child     int32[nnz]   position of the child in its node, 0 .. C - 1, ascending within a row
    weight    float32[nnz]
    bias      float32[C]
    """

    features: NDArray[np.int32]
    row_ptr: NDArray[np.int64]
    child: NDArray[np.int32]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]


class Tree(NamedTuple):
    """One tree as a trainer leaves it, its nodes numbered breadth-first from the root, 0.

    child_ptr   int32[n + 1]  children of node i are child_ptr[i] .. child_ptr[i + 1] - 1; child_ptr[0] = 1
    node_label  int32[n]      label tree: the leaf's label; -1 at inner nodes and in decision trees
    chunks      one a node: a Chunk for an inner node, None for a leaf
    histograms  decision tree: one a node, (labels int32 ascending, values float32) for a leaf, None for an
                inner node; None for a label tree
    """

    child_ptr: NDArray[np.int32]
    node_label: NDArray[np.int32]
    chunks: list[Chunk | None]
    histograms: list[tuple[NDArray[np.int32], NDArray[np.float32]] | None] | None = None
