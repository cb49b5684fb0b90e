"""Every invariant that the kernels rely on, proved of arrays that may hold any bytes.

What passes here cannot make a kernel read outside an array or run forever, whoever wrote it. Each kernel
takes one pass, reads nothing that it has not bounded before, and returns (fault, index, found): fault 0 when
all is well, else the first violation, as FAULTS words it. The cost is linear in the bytes of the arrays,
also for bytes made to be slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import file_name
from model_store.ensemble import EMPTY_SLOT, LANES, TreeEnsemble
from model_store.errors import BadNames, Corrupt
from model_store.hashing import slot_next, slot_start, spread
from model_store.jit import kernel
from model_store.manifest import Manifest
from model_store.names import NameTable, check_names

ENSEMBLE = "ensemble"
LABELS = "labels"
LABEL_COUNTS = "labels/counts"

BFLOAT16_CHILDREN_MAX = 1 << 16
"""Sparse words of bfloat16 have 16 bits for a child's position."""

CHUNK_MAX = (1 << 31) - 1
"""The most slots or sparse words of a chunk: a place is an int32."""

FAULTS: dict[int, tuple[str, str]] = {
    1: ("child_ptr", "the number of trees first, the number of nodes last"),
    2: ("child_ptr", "ascending offsets, each child after its parent"),
    3: ("parent", "-1 at a root, else the node whose children this node is among"),
    4: ("node_label", "a label below n_labels at a leaf"),
    5: ("node_label", "-1 at an inner node, and everywhere in a decision tree"),
    6: ("label_leaf", "the leaf of this label in this tree"),
    7: ("label_leaf", "-1 or the leaf of this label in this tree"),
    8: ("slot_ptr", "ascending offsets from 0 to the number of slots"),
    9: ("sparse_ptr", "ascending offsets from 0 to the number of words"),
    10: ("dense_ptr", "ascending offsets from 0 to the number of weights"),
    11: ("slot_ptr", "no slots, words or weights at a leaf"),
    12: ("slot_ptr", f"1 to {CHUNK_MAX} slots and at most {CHUNK_MAX} words at an inner node"),
    13: ("child_ptr", f"at most {BFLOAT16_CHILDREN_MAX} children where weights are bfloat16"),
    14: ("dense_ptr", "a whole number of rows of padded(children) weights"),
    15: ("slots", "an empty slot in every chunk"),
    16: ("slots", "a feature of -1 or below n_features"),
    17: ("slots", "a feature where probing from its start finds it"),
    18: ("slots", "a feature once in a chunk"),
    19: ("slots", "-1 as the place of an empty slot"),
    20: ("slots", "the place of a row within the chunk"),
    21: ("sparse", "a count of at most the number of children, within the chunk"),
    22: ("sparse", "positions of children, ascending"),
    23: ("sparse", "finite weights"),
    24: ("slots", "as many rows as fill the chunk's words and weights"),
    25: ("dense", "finite weights"),
    26: ("dense", "zero in the padding"),
    27: ("leaf_ptr", "ascending offsets from 0 to the number of values"),
    28: ("leaf_ptr", "no labels at an inner node"),
    29: ("leaf_label", "labels below n_labels, ascending within a leaf"),
    30: ("leaf_value", "values from 0 to 1"),
    31: ("node_bias", "zero at a root"),
}
"""What a fault means: the array at whose index it was found, and what was expected there."""

Fault = tuple[int, int, int]


def check_version(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise Corrupt, naming array and index, unless every invariant of FORMAT.md holds.

    arrays  by "group/name", of the types and shapes that `assemble` has checked
    Cost: a pass over all arrays; deterministic.
    """
    ensemble, labels = assemble(manifest, arrays)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            _check_finite(name, array)
    if labels.n_names != manifest.n_labels:
        raise Corrupt(file_name("labels/offsets"), f"{manifest.n_labels} names", labels.n_names)
    for group in sorted(name.rpartition("/")[0] for name in arrays if name.endswith("/utf8")):
        _check_name_table(group, arrays)
    counts = arrays.get(LABEL_COUNTS)
    if counts is not None and counts.size and counts.min() < 0:
        raise Corrupt(_at(LABEL_COUNTS, int(counts.argmin())), "a count of rows", counts.min())
    check_ensemble(manifest, ensemble)


def assemble(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> tuple[TreeEnsemble, NameTable]:
    """Return the ensemble and the label names among `arrays`, read-only views of them.

    Raises Corrupt when one is missing or its type or shape is not the manifest's. Reads no data.
    """
    n, k = manifest.n_nodes, manifest.n_labels
    wide, narrow = {"float32": ("uint64", "float32"), "bfloat16": ("uint32", "uint16")}[manifest.weights]
    is_label_tree = manifest.kind == "label-tree"
    shapes: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "child_ptr": ("int32", (n + 1,)),
        "parent": ("int32", (n,)),
        "node_label": ("int32", (n,)),
        "label_leaf": ("int32", (manifest.n_trees, k) if is_label_tree else (0, 0)),
        "node_bias": ("float32", (n,)),
        "slot_ptr": ("int64", (n + 1,)),
        "slots": ("int32", (None, 2)),
        "sparse_ptr": ("int64", (n + 1,)),
        "sparse": (wide, (None,)),
        "dense_ptr": ("int64", (n + 1,)),
        "dense": (narrow, (None,)),
        "leaf_ptr": ("int64", (1,) if is_label_tree else (n + 1,)),
        "leaf_label": ("int32", (None,)),
        "leaf_value": ("float32", (None,)),
    }
    ensemble = [_taken(arrays, f"{ENSEMBLE}/{name}", *spec) for name, spec in shapes.items()]
    labels = NameTable(
        _taken(arrays, "labels/offsets", "int64", (k + 1,)),
        _taken(arrays, "labels/utf8", "uint8", (None,)),
        _taken(arrays, "labels/slots", "int32", (None,)),
    )
    if LABEL_COUNTS in arrays:
        _taken(arrays, LABEL_COUNTS, "int64", (k,))
    return TreeEnsemble(*ensemble), labels


def check_ensemble(manifest: Manifest, ensemble: TreeEnsemble) -> None:
    """Raise Corrupt unless every invariant of TreeEnsemble holds; arrays as `assemble` returns them."""
    e = ensemble
    is_label_tree = manifest.kind == "label-tree"
    n_labels = manifest.n_labels
    _refuse(_check_forest(e.child_ptr, e.parent, e.node_bias, manifest.n_trees))
    _refuse(_check_labels(e.child_ptr, e.parent, e.node_label, e.label_leaf, is_label_tree, n_labels))
    _refuse(_check_offsets(e.slot_ptr, len(e.slots), 8))
    _refuse(_check_offsets(e.sparse_ptr, len(e.sparse), 9))
    _refuse(_check_offsets(e.dense_ptr, len(e.dense), 10))
    _refuse(_check_offsets(e.leaf_ptr, len(e.leaf_label), 27))
    if len(e.leaf_value) != len(e.leaf_label):
        where = file_name(f"{ENSEMBLE}/leaf_value")
        raise Corrupt(where, f"{len(e.leaf_label)} values, one a label", len(e.leaf_value))
    if not is_label_tree:
        _refuse(_check_leaves(e.child_ptr, e.leaf_ptr, e.leaf_label, e.leaf_value, n_labels))
    bits = e.dense.view(np.uint32 if e.dense.dtype.itemsize == 4 else np.uint16)
    _refuse(
        _check_chunks(
            e.child_ptr, e.slot_ptr, e.slots, e.sparse_ptr, e.sparse, e.dense_ptr, bits, manifest.n_features
        )
    )


def _taken(
    arrays: Mapping[str, NDArray[Any]], name: str, dtype: str, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """Return an array as a read-only view, having checked its type and the sizes that are known."""
    if name not in arrays:
        raise Corrupt("manifest.json: arrays", f"an array {name}", "none")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        size is None or size == found for size, found in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits or not array.flags.c_contiguous:
        sizes = ", ".join("*" if size is None else str(size) for size in shape)
        raise Corrupt(file_name(name), f"{dtype}[{sizes}]", f"{array.dtype}{list(array.shape)}")
    view = array.view()
    view.flags.writeable = False  # one compiled form of every kernel, and nobody writes by mistake
    return view


def _refuse(fault: Fault) -> None:
    number, index, found = fault
    if number:
        name, expected = FAULTS[number]
        raise Corrupt(_at(f"{ENSEMBLE}/{name}", index), expected, found)


def _at(name: str, index: int) -> str:
    return f"{file_name(name)}[{index}]"


def _check_finite(name: str, array: NDArray[Any]) -> None:
    finite = np.isfinite(array.reshape(-1))
    if not finite.all():
        index = int(finite.argmin())
        raise Corrupt(_at(name, index), "a finite number", array.reshape(-1)[index])


def _check_name_table(group: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    try:
        table = [arrays[f"{group}/{part}"] for part in ("offsets", "utf8", "slots")]
    except KeyError as error:
        raise Corrupt("manifest.json: arrays", f"an array {error.args[0]}", "none") from None
    try:
        check_names(*table)
    except BadNames as error:
        raise Corrupt(file_name(f"{group}/utf8"), "a table of names", str(error)) from error


@kernel
def _check_offsets(offsets: NDArray[np.int64], size: int, fault: int) -> Fault:
    """Prove that offsets ascend from 0 to `size`."""
    last = len(offsets) - 1
    if offsets[0] != 0:
        return fault, 0, offsets[0]
    for i in range(last):
        if offsets[i + 1] < offsets[i]:
            return fault, i + 1, offsets[i + 1]
    if offsets[last] != size:
        return fault, last, offsets[last]
    return 0, 0, 0


@kernel
def _check_forest(
    child_ptr: NDArray[np.int32], parent: NDArray[np.int32], node_bias: NDArray[np.float32], n_trees: int
) -> Fault:
    """Prove that child_ptr makes a forest numbered breadth-first and parent agrees with it."""
    n_nodes = len(parent)
    if child_ptr[0] != n_trees or n_trees > n_nodes:
        return 1, 0, child_ptr[0]
    if child_ptr[n_nodes] != n_nodes:
        return 1, n_nodes, child_ptr[n_nodes]
    for n in range(n_nodes):
        first, end = child_ptr[n], child_ptr[n + 1]
        if end < first or (end > first and first <= n):
            return 2, n, first
    for n in range(n_trees):
        if parent[n] != -1:
            return 3, n, parent[n]
        if node_bias[n] != 0:
            return 31, n, 1
    for n in range(n_nodes):
        for child in range(child_ptr[n], child_ptr[n + 1]):
            if parent[child] != n:
                return 3, child, parent[child]
    return 0, 0, 0


@kernel
def _check_labels(
    child_ptr: NDArray[np.int32],
    parent: NDArray[np.int32],
    node_label: NDArray[np.int32],
    label_leaf: NDArray[np.int32],
    is_label_tree: bool,
    n_labels: int,
) -> Fault:
    """Prove that leaves and labels name each other, after `_check_forest`."""
    n_nodes = len(parent)
    tree = np.empty(n_nodes, np.int32)
    for n in range(n_nodes):
        tree[n] = n if parent[n] < 0 else tree[parent[n]]
        label = node_label[n]
        if child_ptr[n + 1] > child_ptr[n] or not is_label_tree:
            if label != -1:
                return 5, n, label
            continue
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


@kernel
def _check_leaves(
    child_ptr: NDArray[np.int32],
    leaf_ptr: NDArray[np.int64],
    leaf_label: NDArray[np.int32],
    leaf_value: NDArray[np.float32],
    n_labels: int,
) -> Fault:
    """Prove the histograms of a decision tree's leaves, after `_check_offsets` of leaf_ptr."""
    for n in range(len(child_ptr) - 1):
        first, end = leaf_ptr[n], leaf_ptr[n + 1]
        if child_ptr[n + 1] > child_ptr[n] and end > first:
            return 28, n, end - first
        before = -1
        for i in range(first, end):
            if leaf_label[i] <= before or leaf_label[i] >= n_labels:
                return 29, i, leaf_label[i]
            before = leaf_label[i]
            if not (leaf_value[i] >= 0 and leaf_value[i] <= 1):
                return 30, i, -1
    return 0, 0, 0


@kernel
def _check_chunks(
    child_ptr: NDArray[np.int32],
    slot_ptr: NDArray[np.int64],
    slots: NDArray[np.int32],
    sparse_ptr: NDArray[np.int64],
    sparse: NDArray[Any],
    dense_ptr: NDArray[np.int64],
    dense_bits: NDArray[Any],
    n_features: int,
) -> Fault:
    """Prove every chunk, after `_check_forest` and `_check_offsets` of the three offset arrays."""
    seen = np.zeros((n_features + 7) >> 3, np.uint8)
    for n in range(len(child_ptr) - 1):
        n_children = int(child_ptr[n + 1]) - int(child_ptr[n])
        own_slots = slots[slot_ptr[n] : slot_ptr[n + 1]]
        own_sparse = sparse[sparse_ptr[n] : sparse_ptr[n + 1]]
        own_dense = dense_bits[dense_ptr[n] : dense_ptr[n + 1]]
        if n_children == 0:
            if len(own_slots) + len(own_sparse) + len(own_dense) > 0:
                return 11, n, len(own_slots) + len(own_sparse) + len(own_dense)
            continue
        if len(own_slots) < 1 or len(own_slots) > CHUNK_MAX or len(own_sparse) > CHUNK_MAX:
            return 12, n, len(own_slots)
        if sparse.itemsize == 4 and n_children > BFLOAT16_CHILDREN_MAX:
            return 13, n, n_children
        width = (n_children + LANES - 1) // LANES * LANES
        if len(own_dense) % width != 0:
            return 14, n, len(own_dense)
        fault, index, found = _check_table(own_slots, n_features, seen)
        if fault != 0:
            return fault, 2 * (int(slot_ptr[n]) + index), found
        fault, index, found = _check_rows(own_slots, own_sparse, len(own_dense) // width, n_children)
        if fault != 0:
            if fault == 20 or fault == 24:
                return fault, 2 * (int(slot_ptr[n]) + index) + 1, found
            return fault, int(sparse_ptr[n]) + index, found
        fault, index, found = _check_dense(own_dense, n_children, width)
        if fault != 0:
            return fault, int(dense_ptr[n]) + index, found
    return 0, 0, 0


@kernel
def _check_table(slots: NDArray[np.int32], n_features: int, seen: NDArray[np.uint8]) -> Fault:
    """Prove that a chunk's hash table finds each of its features, and finds it once.

    Linear whatever the bytes: a feature is found when no empty slot lies between its start and its slot, so
    the length of the run of full slots before it decides. `seen` holds a bit a feature, all clear before
    and after.
    """
    n_slots = len(slots)
    empty = n_slots - 1
    while empty >= 0 and slots[empty, 0] != EMPTY_SLOT:
        empty -= 1
    if empty < 0:
        return 15, 0, n_slots
    run = 0
    slot = empty
    for _ in range(n_slots):
        slot = int(slot_next(slot, n_slots))
        feature = slots[slot, 0]
        if feature == EMPTY_SLOT:
            if slots[slot, 1] != -1:
                return 19, slot, slots[slot, 1]
            run = 0
            continue
        if feature < 0 or feature >= n_features:
            return 16, slot, feature
        distance = slot - int(slot_start(spread(feature), n_slots))
        if (distance if distance >= 0 else distance + n_slots) > run:
            return 17, slot, feature
        run += 1
        bit = np.uint8(1 << (feature & 7))
        if seen[feature >> 3] & bit:
            return 18, slot, feature
        seen[feature >> 3] |= bit
    for slot in range(n_slots):
        if slots[slot, 0] != EMPTY_SLOT:
            seen[slots[slot, 0] >> 3] = 0
    return 0, 0, 0


@kernel
def _check_rows(slots: NDArray[np.int32], sparse: NDArray[Any], n_dense: int, n_children: int) -> Fault:
    """Prove that the slots' places are rows, and that the rows fill the chunk.

    Linear whatever the bytes: rows that overlap would add up to more words than there are.
    """
    n_words = len(sparse)
    half = np.uint64(4 * sparse.itemsize)
    low = (np.uint64(1) << half) - np.uint64(1)
    exponent = np.uint64(0x7F800000) if sparse.itemsize == 8 else np.uint64(0x7F80)
    words, rows = 0, 0
    for slot in range(len(slots)):
        if slots[slot, 0] == EMPTY_SLOT:
            continue
        place = int(slots[slot, 1])
        if place < 0:
            rows += 1
            if -1 - place >= n_dense or rows > n_dense:
                return 20, slot, place
            continue
        if place >= n_words:
            return 20, slot, place
        count = np.uint64(sparse[place])
        if count > np.uint64(n_children) or place + int(count) >= n_words:
            return 21, place, int(count)
        words += int(count) + 1
        if words > n_words:
            return 24, slot, words
        before = -1
        for i in range(place + 1, place + 1 + int(count)):
            word = np.uint64(sparse[i])
            child = int(word & low)
            if child <= before or child >= n_children:
                return 22, i, child
            before = child
            if ((word >> half) & exponent) == exponent:
                return 23, i, int(word >> half)
    if words != n_words or rows != n_dense:
        return 24, 0, words
    return 0, 0, 0


@kernel
def _check_dense(dense_bits: NDArray[Any], n_children: int, width: int) -> Fault:
    """Prove that the dense rows of a chunk hold finite weights and zeros in the padding."""
    exponent = np.uint32(0x7F800000) if dense_bits.itemsize == 4 else np.uint32(0x7F80)
    for row in range(0, len(dense_bits), width):
        bad = np.uint32(0)
        for i in range(row, row + n_children):
            bad |= np.uint32((dense_bits[i] & exponent) == exponent)
        for i in range(row + n_children, row + width):
            bad |= np.uint32(dense_bits[i] != 0)
        if bad:  # so rare that it may look again for the index
            for i in range(row, row + n_children):
                if (dense_bits[i] & exponent) == exponent:
                    return 25, i, dense_bits[i]
            for i in range(row + n_children, row + width):
                if dense_bits[i] != 0:
                    return 26, i, dense_bits[i]
    return 0, 0, 0
