"""Build the arrays of a TreeEnsemble from a trainer's trees, and round its weights."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import release
from xylem_store.compiled.bits import BLOCK_BITS, GROUP_BITS, n_groups, padded_width, popcount
from xylem_store.compiled.decorators import kernel
from xylem_store.compiled.handles import F32, I32, I64, U8, U16, U32, U64
from xylem_store.ensemble import LANES, Chunk, Tree, TreeEnsemble, Weights, levels_of

# The most children of a node: as many as a sparse word can address.
CHILDREN_MAX: dict[Weights, int] = {"float32": (1 << 31) - 2, "bfloat16": 1 << 16, "int8": 1 << 8}

# int8 weights go from -127 to 127, not from -128: a child's largest weight becomes -127 or 127
INT8_MAX = 127
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)


def store_weights(ensemble: TreeEnsemble, weights: Weights) -> TreeEnsemble:
    """Return a float32 ensemble with its weights rounded to fewer bits; everything else is shared.

    bfloat16: to nearest, ties to even. int8: to the nearest multiple of 1/127 of the child's
    largest weight. Raises ValueError if a node has more children than a sparse word can address.
    Cost: a few passes over the weights. Deterministic.
    """
    if weights not in CHILDREN_MAX:
        raise ValueError(f"expected weights of {', '.join(CHILDREN_MAX)}, found {weights!r}")
    n_children = np.diff(ensemble.child_ptr)
    children_max = CHILDREN_MAX[weights]
    node = int(n_children.argmax())
    if n_children[node] > children_max:
        raise ValueError(
            f"node {node}: expected at most {children_max} children for {weights}, "
            f"found {n_children[node]}"
        )
    if weights == "float32":
        return ensemble
    children = ensemble.sparse & _LOW
    sparse = (ensemble.sparse >> _HIGH).astype(np.uint32).view(np.float32)
    if weights == "bfloat16":
        words = children.astype(np.uint32) | to_bfloat16(sparse).astype(np.uint32) << np.uint32(16)
        return ensemble._replace(sparse=words, dense=to_bfloat16(ensemble.dense))
    scale = np.zeros(len(ensemble.parent), np.float32)
    bits = np.empty(len(sparse), np.uint8)
    dense = np.zeros(len(ensemble.dense), np.int8)
    _to_int8(ensemble, children, sparse, scale, bits, dense)
    words = children.astype(np.uint16) | bits.astype(np.uint16) << np.uint16(8)
    return ensemble._replace(sparse=words, dense=dense, node_scale=scale)


def to_bfloat16(weights: F32) -> U16:
    """Return the weights as bfloat16, the upper halves of their bits; to nearest, ties to even."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    return (
        (bits.astype(np.uint64) + np.uint64(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
        >> np.uint64(16)
    ).astype(np.uint16)


@kernel
def _to_int8(
    ensemble: TreeEnsemble,
    children: U64,
    sparse: F32,
    scale_out: F32,
    bits_out: U8,
    dense_out: NDArray[np.int8],
) -> None:
    """Write each node's scale, and the int8 bits of sparse and dense weights, chunk by chunk."""
    for node in range(len(ensemble.parent)):
        chunk = ensemble.node_chunk[node]
        if chunk < 0:
            continue
        child = ensemble.child_ptr[node]
        n_children = ensemble.child_ptr[node + 1] - child
        width = padded_width(n_children)
        words = range(ensemble.sparse_ptr[chunk], ensemble.sparse_ptr[chunk + 1])
        rows = range(ensemble.dense_ptr[chunk], ensemble.dense_ptr[chunk + 1], width)
        scale = scale_out[child : child + n_children]
        for i in words:
            scale[children[i]] = max(scale[children[i]], abs(sparse[i]))
        for row in rows:
            for j in range(n_children):
                scale[j] = max(scale[j], abs(ensemble.dense[row + j]))
        scale /= np.float32(INT8_MAX)
        for i in words:
            bits_out[i] = np.uint8(_units(sparse[i], scale[children[i]]))
        for row in rows:
            for j in range(n_children):
                dense_out[row + j] = _units(ensemble.dense[row + j], scale[j])


@kernel
def _units(weight: np.float32, scale: np.float32) -> np.int8:
    """Return a weight in steps of `scale`, rounded to nearest, ties to even."""
    if scale <= 0:
        return np.int8(0)
    return np.int8(min(max(np.rint(weight / scale), -INT8_MAX), INT8_MAX))


# The memory of arrays in files is given back each time this many chunks were packed.
_PACKED_MAX = 256

DENSE_SHARE = 6  # a row is dense if at least one in this many of its (padded) children has a weight

_NO_FAULT, _UNORDERED, _NO_CHILD, _NOT_FINITE = range(4)


def padded(n_children: int) -> int:
    """Return the width of a dense row: a power of two, or above LANES a multiple of LANES."""
    return int(padded_width(n_children))


# Each array of offsets, and the array that it cuts into the parts of the chunks.
PARTS = {
    "block_ptr": "blocks",
    "row_start": "row_ptr",
    "sparse_ptr": "sparse",
    "dense_ptr": "dense",
}


def build_ensemble(
    trees: list[Tree],
    n_labels: int,
    n_features: int,
    weights: Weights = "float32",
    zeros: Callable[[int, Any], NDArray[Any]] = np.zeros,
) -> TreeEnsemble:
    """Number the nodes of the forest breadth-first and pack its chunks.

    zeros  makes the arrays that grow with the weights: n zeros of a type, in memory or in a file

    The cut between dense and sparse rows is DENSE_SHARE. Raises ValueError if a tree breaks the
    rules of `xylem_store.ensemble.Tree`. Cost: a few passes over the weights, memory of the result
    in float32. Deterministic.
    """
    if not trees:
        raise ValueError("expected at least one tree, found none")
    tree_of, local_of = forest_order(trees)
    n_nodes = len(tree_of)
    n_children = np.empty(n_nodes, np.int64)
    node_label = np.empty(n_nodes, np.int32)
    for t, tree in enumerate(trees):
        is_in_tree = tree_of == t
        n_children[is_in_tree] = np.diff(tree.child_ptr)[local_of[is_in_tree]]
        node_label[is_in_tree] = tree.node_label[local_of[is_in_tree]]
    child_ptr = np.concatenate([[0], np.cumsum(n_children)]) + len(trees)
    parent = np.full(n_nodes, -1, np.int32)
    parent[len(trees) :] = np.repeat(np.arange(n_nodes, dtype=np.int32), n_children)
    chunks = [trees[t].chunks[i] for t, i in zip(tree_of.tolist(), local_of.tolist(), strict=True)]
    packed = _pack_chunks(chunks, n_children, n_features, zeros)
    is_inner = n_children > 0
    node_chunk = np.where(is_inner, np.cumsum(is_inner) - 1, -1).astype(np.int32)
    return store_weights(
        TreeEnsemble(
            child_ptr=child_ptr.astype(np.int32),
            parent=parent,
            node_label=node_label,
            label_leaf=_label_leaf(trees, tree_of, node_label, n_labels),
            node_chunk=node_chunk,
            node_scale=np.empty(0, np.float32),
            **packed,
            **_pack_leaves(trees, tree_of, local_of),
        ),
        weights,
    )


def put_chunks(new: TreeEnsemble, old: TreeEnsemble, source: I64) -> TreeEnsemble:
    """Return an ensemble in which chunk c is, bit for bit, chunk source[c] of an old one.

    new     the ensemble whose chunks stay where source[c] is -1
    source  int64[chunks of `new`]

    Biases stay those of `new`. The two ensembles have the same features and type of weights, and a
    copied chunk has as many children in both. Cost: a copy of the chunks.
    """
    has_source = source >= 0
    arrays: dict[str, NDArray[Any]] = {
        "directory": np.where(has_source[:, None, None], old.directory[source], new.directory)
    }
    for ptr, name in PARTS.items():
        ptrs = getattr(new, ptr), getattr(old, ptr)
        parts = [
            getattr(old if is_old else new, name)[ptrs[is_old][chunk] : ptrs[is_old][chunk + 1]]
            for chunk, is_old in zip(
                np.where(has_source, source, np.arange(len(source))),
                has_source.tolist(),
                strict=True,
            )
        ]
        arrays[ptr] = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        arrays[name] = np.concatenate([*parts, getattr(new, name)[ptrs[0][-1] :]])
    return new._replace(**arrays)


def forest_order(trees: list[Tree]) -> tuple[I64, I64]:
    """Return (tree, node of the tree) for every node of the forest, breadth-first.

    A level of a tree is a range of its breadth-first ids, so the forest's order is level by level,
    tree by tree, range by range. Raises ValueError for a tree that is not numbered breadth-first.
    """
    tree_ids: list[I64] = []
    node_ids: list[I64] = []
    for t, tree in enumerate(trees):
        n_nodes = len(tree.child_ptr) - 1
        if n_nodes < 1 or tree.child_ptr[0] != 1 or tree.child_ptr[-1] != n_nodes:
            raise ValueError(
                f"tree {t}: expected child_ptr from 1 to the number of nodes, {n_nodes}"
            )
        inner = np.flatnonzero(np.diff(tree.child_ptr) > 0)
        if np.any(np.diff(tree.child_ptr) < 0) or np.any(tree.child_ptr[inner] <= inner):
            raise ValueError(
                f"tree {t}: expected nodes numbered breadth-first, each child after its parent"
            )
    for level in zip_longest(*(levels_of(tree.child_ptr, 1) for tree in trees), fillvalue=range(0)):
        for t, nodes in enumerate(level):
            tree_ids.append(np.full(len(nodes), t, np.int64))
            node_ids.append(np.arange(nodes.start, nodes.stop))
    return np.concatenate(tree_ids), np.concatenate(node_ids)


def _label_leaf(trees: list[Tree], tree_of: I64, node_label: I32, n_labels: int) -> I32:
    """Return the leaf of each label in each tree, int32[T, K], -1 without one.

    Decision trees: an empty array. Raises ValueError for a label out of range, and for two leaves
    of a label in one tree.
    """
    if trees[0].histograms is not None:
        return np.empty((0, 0), np.int32)
    leaves = np.flatnonzero(node_label >= 0)
    labels = node_label[leaves]
    if len(labels) and labels.max() >= n_labels:
        raise ValueError(f"expected labels below {n_labels}, found {labels.max()}")
    label_leaf = np.full((len(trees), n_labels), -1, np.int32)
    label_leaf[tree_of[leaves], labels] = leaves
    if np.count_nonzero(label_leaf >= 0) != len(leaves):
        raise ValueError("expected at most one leaf a label and tree, found more")
    return label_leaf


def _pack_leaves(trees: list[Tree], tree_of: I64, local_of: I64) -> dict[str, NDArray[Any]]:
    """Return leaf_ptr, leaf_label and leaf_value: the histograms of a decision tree's leaves."""
    labels: list[I32] = [np.empty(0, np.int32)]
    values: list[F32] = [np.empty(0, np.float32)]
    sizes = [0]
    if trees[0].histograms is not None:
        for t, node in zip(tree_of.tolist(), local_of.tolist(), strict=True):
            histograms = trees[t].histograms
            assert histograms is not None  # all trees are of one kind, as the first
            histogram = histograms[node] or ((), ())  # inner nodes have no histogram
            sizes.append(len(histogram[0]))
            labels.append(np.asarray(histogram[0], np.int32))
            values.append(np.asarray(histogram[1], np.float32))
    return {
        "leaf_ptr": np.cumsum(sizes, dtype=np.int64),
        "leaf_label": np.concatenate(labels),
        "leaf_value": np.concatenate(values),
    }


def _pack_chunks(
    chunks: list[Chunk | None], n_children: I64, n_features: int, zeros: Any
) -> dict[str, NDArray[Any]]:
    """Return the arrays of all chunks by name: directory, blocks, sparse words, dense rows, and
    the biases of all nodes.

    Raises ValueError for chunks that break the rules of `xylem_store.ensemble.Chunk`.
    """
    inner = np.flatnonzero(n_children).tolist()
    if any(
        (chunk is None) != (count == 0)
        for chunk, count in zip(chunks, n_children.tolist(), strict=True)
    ):
        raise ValueError("expected a chunk exactly at the nodes that have children")
    sizes = np.zeros((len(inner), 4), np.int64)
    biases = [np.zeros(len(n_children) - int(n_children.sum()), np.float32)]
    for c, node in enumerate(inner):
        chunk = cast(Chunk, chunks[node]).get()
        _check_chunk(node, chunk, int(n_children[node]), n_features, sizes[c])
        biases.append(chunk.bias)
    block_ptr, row_start, sparse_ptr, dense_ptr = (
        np.concatenate([[0], np.cumsum(column)]) for column in sizes.T
    )
    directory = np.zeros((len(inner), n_groups(n_features), 2), np.uint32)
    blocks = zeros(4 * int(block_ptr[-1]), np.uint32).reshape(-1, 4)
    row_ptr = zeros(int(row_start[-1]), np.int32)
    sparse = zeros(int(sparse_ptr[-1]), np.uint64)
    dense = zeros(int(dense_ptr[-1]) + LANES, np.float32)
    for c, node in enumerate(inner):
        chunk = cast(Chunk, chunks[node]).get()
        _pack_chunk(
            chunk.features,
            chunk.row_ptr,
            chunk.child,
            np.ascontiguousarray(chunk.weight).view(np.uint32),
            padded(int(n_children[node])),
            directory[c],
            blocks[block_ptr[c] : block_ptr[c + 1]],
            row_ptr[row_start[c] : row_start[c + 1]],
            sparse[sparse_ptr[c] : sparse_ptr[c + 1]],
            dense[dense_ptr[c] : dense_ptr[c + 1]].view(np.uint32),
        )
        if c % _PACKED_MAX == 0:
            release(blocks, row_ptr, sparse, dense)
    return {
        "node_bias": np.concatenate(biases),
        "directory": directory,
        "block_ptr": block_ptr,
        "blocks": blocks,
        "row_start": row_start,
        "row_ptr": row_ptr,
        "sparse_ptr": sparse_ptr,
        "sparse": sparse,
        "dense_ptr": dense_ptr,
        "dense": dense,
    }


def _check_chunk(node: int, chunk: Chunk, n_children: int, n_features: int, sizes_out: I64) -> None:
    """Write the chunk's sizes as `_measure_chunk` does.

    Raises ValueError if a trainer's chunk breaks the rules of `xylem_store.ensemble.Chunk`.
    """
    if len(chunk.bias) != n_children or len(chunk.row_ptr) != len(chunk.features) + 1:
        raise ValueError(
            f"node {node}: expected a bias for each of {n_children} children, a row a feature"
        )
    fault = _measure_chunk(
        chunk.features, chunk.row_ptr, chunk.child, chunk.weight, chunk.bias, n_features, sizes_out
    )
    if fault != _NO_FAULT:
        expected = {
            _UNORDERED: f"ascending features below {n_features}",
            _NO_CHILD: f"children below {n_children}",
            _NOT_FINITE: "finite weights",
        }
        raise ValueError(f"node {node}: expected {expected[fault]}")


@kernel
def _measure_chunk(
    features: I32, row_ptr: I64, child: I32, weight: F32, bias: F32, n_features: int, sizes_out: I64
) -> int:
    """Write how many blocks, row offsets, sparse words and dense weights a chunk takes.

    Return the fault of the chunk, or _NO_FAULT.
    """
    width = padded_width(len(bias))
    n_blocks = 0
    n_sparse = 0
    n_words = 0
    n_dense = 0
    previous_feature = -1
    for row in range(len(features)):
        feature = features[row]
        if feature <= previous_feature or feature >= n_features:
            return _UNORDERED
        n_blocks += previous_feature < 0 or previous_feature >> BLOCK_BITS != feature >> BLOCK_BITS
        previous_feature = feature
        count = row_ptr[row + 1] - row_ptr[row]
        is_dense = count * DENSE_SHARE >= width
        n_dense += is_dense
        n_sparse += not is_dense
        n_words += 0 if is_dense else count
    for position in child:
        if position < 0 or position >= len(bias):
            return _NO_CHILD
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        return _NOT_FINITE
    sizes_out[0] = n_blocks
    sizes_out[1] = n_sparse + 1
    sizes_out[2] = n_words
    sizes_out[3] = n_dense * width
    return _NO_FAULT


@kernel
def _pack_chunk(
    features: I32,
    row_ptr: I64,
    child: I32,
    bits: U32,
    width: int,
    directory_out: U32,
    blocks_out: U32,
    row_ptr_out: I32,
    sparse_out: U64,
    dense_out: U32,
) -> None:
    """Fill one chunk's arrays, which hold zeros at first.

    bits  the weights' bits; a sparse word holds the child's position in its low half and these in
          its high half
    """
    shift = np.uint64(32)
    low_bit = np.uint32(1)
    n_words = 0
    n_sparse = 0
    n_dense = 0
    block = -1
    for row in range(len(features)):
        feature = features[row]
        if row == 0 or feature >> BLOCK_BITS != features[row - 1] >> BLOCK_BITS:
            block += 1
            blocks_out[block, 2] = n_sparse
            blocks_out[block, 3] = n_dense
            directory_out[feature >> GROUP_BITS, 0] |= low_bit << np.uint32(
                (feature >> BLOCK_BITS) & 31
            )
        feature_bit = low_bit << np.uint32(feature & 31)
        blocks_out[block, 0] |= feature_bit
        first = row_ptr[row]
        last = row_ptr[row + 1]
        if (last - first) * DENSE_SHARE >= width:
            blocks_out[block, 1] |= feature_bit
            for i in range(first, last):
                dense_out[n_dense * width + child[i]] = bits[i]
            n_dense += 1
        else:
            for i in range(first, last):
                sparse_out[n_words] = np.uint64(child[i]) | (np.uint64(bits[i]) << shift)
                n_words += 1
            n_sparse += 1
            row_ptr_out[n_sparse] = n_words
    n_before = 0
    for group in range(len(directory_out)):
        directory_out[group, 1] = n_before
        n_before += popcount(directory_out[group, 0])
