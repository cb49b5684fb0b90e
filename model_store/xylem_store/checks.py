"""Check every invariant that the kernels rely on, for arrays that may hold any bytes.

Arrays that pass cannot make a kernel read outside an array or run forever, whoever wrote them.
Each check takes a few passes, and reads nothing whose bounds were not checked before. The checks
that are kernels return (fault, index, value): fault 0 if all is well, else the first violation, by
its number in FAULTS. The cost is linear in the bytes of the arrays, also for bytes made to be slow.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import (
    check_all,
    check_lists,
    check_offsets,
    element_name,
    file_name,
    has_group,
    release,
    take,
)
from xylem_store.bounds import check_bounds
from xylem_store.chunk_checks import CHUNK_WORDS_MAX, Fault, check_chunks
from xylem_store.compiled.bits import n_groups
from xylem_store.compiled.decorators import kernel
from xylem_store.compiled.handles import I32
from xylem_store.ensemble import LANES, TreeEnsemble, no_trees
from xylem_store.errors import Corrupt
from xylem_store.extras import (
    EMBEDDING,
    assemble_calibration,
    assemble_embedding,
    assemble_rerank,
    check_calibration,
    check_embedding,
    check_rerank,
    has_rerank,
    is_full,
)
from xylem_store.manifest import AT_REST, Manifest, member_arrays, member_prefix
from xylem_store.members import assemble_ranker, check_ranker
from xylem_store.names import NameTable, names_in
from xylem_store.near import assemble_near, check_near
from xylem_store.origin import read_report

ENSEMBLE = "ensemble"

LABELS = "labels"

LABEL_COUNTS = "labels/counts"

# The memory of arrays in files is given back each time the chunks of this many nodes were checked.
_NODES_MAX = 1024

# The types of sparse words and of dense weights, for each kind of weights.
TYPES = {
    "float32": ("uint64", "float32"),
    "bfloat16": ("uint32", "uint16"),
    "int8": ("uint16", "int8"),
}

# For each fault the array at whose index it is, and what is expected there.
#
# An array of more than one dimension is indexed as if it were flat.
FAULTS: dict[int, tuple[str, str]] = {
    4: ("node_label", "a label below n_labels at a leaf"),
    5: ("node_label", "-1 at an inner node, and everywhere in a decision tree"),
    6: ("label_leaf", "the leaf of this label in this tree"),
    7: ("label_leaf", "-1 or the leaf of this label in this tree"),
    15: ("child_ptr", "no more children than a sparse word has positions"),
    16: ("sparse_ptr", f"at most {CHUNK_WORDS_MAX} words in a chunk"),
    17: ("dense_ptr", "a whole number of rows of padded(children) weights"),
    18: ("directory", "the number of blocks before the group"),
    19: ("directory", "no features from n_features on"),
    20: ("block_ptr", "as many blocks as the directory has"),
    21: ("blocks", "a set of features that is not empty"),
    22: ("blocks", "no features from n_features on"),
    23: ("blocks", "dense rows of features that are used"),
    24: ("blocks", "the number of sparse rows before the block"),
    25: ("blocks", "the number of dense rows before the block"),
    26: ("row_start", "one row offset more than sparse rows"),
    27: ("dense_ptr", "as many dense rows as the blocks have"),
    28: ("row_ptr", "ascending offsets from 0 to the chunk's number of words"),
    29: ("sparse", "positions of children, ascending within a row"),
    30: ("sparse", "finite weights"),
    31: ("dense", "finite weights"),
    32: ("dense", "zero in the padding"),
    37: ("child_ptr", "children at the root of a label tree"),
}


def check_version(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise Corrupt, naming array and index, unless every invariant of FORMAT.md holds.

    arrays  by "group/name", of the types and shapes that `assemble` has checked

    Cost: a pass over all arrays; deterministic.
    """
    ensemble, labels = assemble(manifest, arrays)
    for number, member in enumerate(manifest.members):
        try:
            check_version(member, member_arrays(number, arrays))
        except Corrupt as error:
            raise error.within(f"member {number}") from error
    member_prefixes = tuple(map(member_prefix, range(len(manifest.members))))
    direct_arrays = {
        name: array for name, array in arrays.items() if not name.startswith(member_prefixes)
    }
    for name, array in direct_arrays.items():
        # `_check_dense` checks ensemble/dense, which may be of any type of weights
        if array.dtype.kind == "f" and name != "ensemble/dense" and not name.startswith(AT_REST):
            check_all(name, np.isfinite(array.reshape(-1)), "a finite number", array)
    if labels.n_names != manifest.n_labels:
        raise Corrupt(file_name("labels/offsets"), f"{manifest.n_labels} names", labels.n_names)
    for group in sorted(
        name.rpartition("/")[0] for name in direct_arrays if name.endswith("/utf8")
    ):
        names_in(arrays, group)
    if LABEL_COUNTS in arrays:
        check_all(LABEL_COUNTS, arrays[LABEL_COUNTS] >= 0, "a count of rows", arrays[LABEL_COUNTS])
    n_columns = manifest.n_features
    if manifest.members:
        check_ranker(assemble_ranker(manifest, arrays), manifest, arrays)
        n_columns = tree_features(manifest.members[0], member_arrays(0, arrays))
        check_near(assemble_near(manifest.n_labels, arrays), n_columns)
    else:
        check_ensemble(manifest, ensemble, tree_features(manifest, arrays))
    if manifest.link == "softmax":
        check_embedding(assemble_embedding(manifest.n_features, arrays))
    if has_rerank(arrays):
        check_rerank(assemble_rerank(manifest, arrays), manifest.n_features)
    check_calibration(assemble_calibration(manifest, arrays))
    check_bounds(
        {name: array for name, array in direct_arrays.items() if not name.startswith(AT_REST)},
        {"n_features": manifest.n_features, "n_columns": n_columns},
    )
    read_report(arrays)


def assemble(
    manifest: Manifest, arrays: Mapping[str, NDArray[Any]]
) -> tuple[TreeEnsemble, NameTable]:
    """Return the ensemble and the label names among `arrays`, read-only views of them.

    Raises Corrupt if one is missing or its type or shape is not that of the manifest. Reads no
    data.
    """
    n = manifest.n_nodes
    c = manifest.n_chunks
    k = manifest.n_labels
    if manifest.members:
        assemble_ranker(manifest, arrays)
        for number, member in enumerate(manifest.members):
            assemble(member, member_arrays(number, arrays))
        return no_trees(), _assemble_labels(k, arrays)
    wide, narrow = TYPES[manifest.weights]
    n_features = tree_features(manifest, arrays)
    is_label_tree = manifest.kind == "label-tree"
    shapes: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "child_ptr": ("int32", (n + 1,)),
        "parent": ("int32", (n,)),
        "node_label": ("int32", (n,)),
        "label_leaf": ("int32", (manifest.n_trees, k) if is_label_tree else (0, 0)),
        "node_chunk": ("int32", (n,)),
        "node_bias": ("float32", (n,)),
        "node_scale": ("float32", (n if manifest.weights == "int8" else 0,)),
        "directory": ("uint32", (c, n_groups(n_features), 2)),
        "block_ptr": ("int64", (c + 1,)),
        "blocks": ("uint32", (None, 4)),
        "row_start": ("int64", (c + 1,)),
        "row_ptr": ("int32", (None,)),
        "sparse_ptr": ("int64", (c + 1,)),
        "sparse": (wide, (None,)),
        "dense_ptr": ("int64", (c + 1,)),
        "dense": (narrow, (None,)),
        "leaf_ptr": ("int64", (1,) if is_label_tree else (n + 1,)),
        "leaf_label": ("int32", (None,)),
        "leaf_value": ("float32", (None,)),
    }
    ensemble = [take(arrays, f"{ENSEMBLE}/{name}", *spec) for name, spec in shapes.items()]
    return TreeEnsemble(*ensemble), _assemble_labels(k, arrays)


def _assemble_labels(n_labels: int, arrays: Mapping[str, NDArray[Any]]) -> NameTable:
    if LABEL_COUNTS in arrays:
        take(arrays, LABEL_COUNTS, "int64", (n_labels,))
    shapes = {
        "offsets": ("int64", (n_labels + 1,)),
        "utf8": ("uint8", (None,)),
        "slots": ("int32", (None,)),
    }
    return NameTable(*(take(arrays, f"{LABELS}/{name}", *spec) for name, spec in shapes.items()))


def tree_features(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the number of features of the rows that the trees take.

    If the version embeds, these are the dense rows. Raises Corrupt unless a version has an
    embedding exactly if its link is softmax.
    """
    if manifest.link == "softmax":
        return int(assemble_embedding(manifest.n_features, arrays).u.shape[1])
    if has_group(arrays, EMBEDDING):
        raise Corrupt("manifest.json: arrays", f"no embedding with link {manifest.link}", "one")
    return manifest.n_features


def check_ensemble(manifest: Manifest, ensemble: TreeEnsemble, n_features: int) -> None:
    """Raise Corrupt unless every invariant of TreeEnsemble holds.

    ensemble    arrays as `assemble` returns them
    n_features  of the rows that the trees take
    """
    e = ensemble
    _check_forest(e, manifest.n_trees)
    _refuse(
        _check_labels(
            e.child_ptr,
            e.parent,
            e.node_label,
            e.label_leaf,
            manifest.kind == "label-tree",
            manifest.n_labels,
        )
    )
    for name, size in (
        ("block_ptr", len(e.blocks)),
        ("row_start", len(e.row_ptr)),
        ("sparse_ptr", len(e.sparse)),
        ("dense_ptr", len(e.dense) - LANES),
    ):
        check_offsets(f"{ENSEMBLE}/{name}", getattr(e, name), size)
    check_lists(ENSEMBLE, e, "leaf_ptr", "leaf_label", manifest.n_labels)
    if len(e.leaf_value) != len(e.leaf_label):
        raise Corrupt(
            file_name(f"{ENSEMBLE}/leaf_value"),
            f"{len(e.leaf_label)} values, one a label",
            len(e.leaf_value),
        )
    check_all(
        f"{ENSEMBLE}/leaf_value",
        (e.leaf_value >= 0) & (e.leaf_value <= 1),
        "values from 0 to 1",
        e.leaf_value,
    )
    check_all(
        f"{ENSEMBLE}/node_scale", e.node_scale >= 0, "a finite number, 0 or more", e.node_scale
    )
    bits = e._replace(dense=e.dense.view(f"u{e.dense.itemsize}"))
    if bits.dense[-LANES:].any():
        _refuse((32, len(e.dense) - LANES + int(bits.dense[-LANES:].argmax()), 1))
    for first in range(0, len(e.parent), _NODES_MAX):
        _refuse(check_chunks(bits, n_features, first, min(first + _NODES_MAX, len(e.parent))))
        release(*e)
    if manifest.link == "softmax" and not is_full(e, n_features):
        raise Corrupt(
            file_name(f"{ENSEMBLE}/blocks"), f"{n_features} dense rows in each chunk", "others"
        )


def _refuse(fault: Fault) -> None:
    number, index, value = fault
    if number:
        name, expected = FAULTS[number]
        raise Corrupt(element_name(f"{ENSEMBLE}/{name}", index), expected, value)


def _check_forest(e: TreeEnsemble, n_trees: int) -> None:
    """Check that child_ptr makes a breadth-first forest, and that other arrays agree with it."""
    ptr = e.child_ptr
    n_nodes = len(e.parent)
    n_chunks = len(e.directory)
    first = ptr[:-1]
    end = ptr[1:]
    nodes = np.arange(n_nodes, dtype=np.int32)
    if ptr[0] != n_trees or ptr[-1] != n_nodes:
        expected = f"the number of trees, {n_trees}, first, the number of nodes, {n_nodes}, last"
        raise Corrupt(element_name(f"{ENSEMBLE}/child_ptr", 0), expected, f"{ptr[0]} and {ptr[-1]}")
    check_all(
        f"{ENSEMBLE}/child_ptr",
        (end == first) | ((end > first) & (first > nodes)),
        "ascending offsets, each child after its parent",
        first,
    )
    parent = np.concatenate([np.full(n_trees, -1, np.int32), np.repeat(nodes, end - first)])
    expected = "-1 at a root, else the node whose children this node is among"
    check_all(f"{ENSEMBLE}/parent", e.parent == parent, expected, e.parent)
    check_all(f"{ENSEMBLE}/node_bias", e.node_bias[:n_trees] == 0, "zero at a root", e.node_bias)
    is_inner = end > first
    chunk = np.where(is_inner, np.cumsum(is_inner) - 1, -1)
    expected = f"-1 at a leaf, the next of {n_chunks} chunks at an inner node"
    check_all(f"{ENSEMBLE}/node_chunk", e.node_chunk == chunk, expected, e.node_chunk)
    if (n_inner := int(is_inner.sum())) != n_chunks:
        raise Corrupt(
            element_name(f"{ENSEMBLE}/node_chunk", 0),
            f"{n_chunks} inner nodes, one a chunk",
            n_inner,
        )
    if len(e.leaf_ptr) > 1:
        check_all(
            f"{ENSEMBLE}/leaf_ptr",
            (e.leaf_ptr[1:] == e.leaf_ptr[:-1]) | ~is_inner,
            "no labels at an inner node",
            e.leaf_ptr,
        )


@kernel
def _check_labels(
    child_ptr: I32,
    parent: I32,
    node_label: I32,
    label_leaf: I32,
    is_label_tree: bool,
    n_labels: int,
) -> Fault:
    """Check that leaves and labels refer to each other; after `_check_forest`."""
    n_nodes = len(parent)
    tree = np.empty(n_nodes, np.int32)
    for n in range(n_nodes):
        tree[n] = n if parent[n] < 0 else tree[parent[n]]
        label = node_label[n]
        if child_ptr[n + 1] > child_ptr[n] or not is_label_tree:
            if label != -1:
                return 5, n, label
            continue
        if parent[n] < 0:
            return 37, n, 0
        if label < 0 or label >= n_labels:
            return 4, n, label
        if label_leaf[tree[n], label] != n:
            return 6, tree[n] * n_labels + label, label_leaf[tree[n], label]
    for t in range(label_leaf.shape[0]):
        for label in range(label_leaf.shape[1]):
            leaf = label_leaf[t, label]
            if leaf == -1:
                continue
            if leaf < 0 or leaf >= n_nodes or node_label[leaf] != label or tree[leaf] != t:
                return 7, t * n_labels + label, leaf
    return 0, 0, 0
