"""What FORMAT.md demands of a version's arrays, in plain Python: slow, and as the page says it."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.oracles.text_tokens import slow_hash
from xylem_store.manifest import Manifest

LANES = 16


def ascends(offsets: list[int], size: int) -> bool:
    return offsets[0] == 0 and offsets[-1] == size and offsets == sorted(offsets)


def bits_of(word: int) -> list[int]:
    return [i for i in range(32) if word >> i & 1]


def is_version(manifest: Manifest, arrays: Mapping[str, Any]) -> bool:
    """Return whether the arrays, of the right types and shapes, keep every invariant
    of the format.
    """
    a = {name: array.tolist() for name, array in arrays.items()}
    floats = [array for array in arrays.values() if array.dtype.kind == "f"]
    return (
        all(bool(np.isfinite(array).all()) for array in floats)
        and names_hold(a["labels/offsets"], arrays["labels/utf8"].tobytes(), a["labels/slots"])
        and all(count >= 0 for count in a.get("labels/counts", []))
        and all(scale >= 0 for scale in a["ensemble/node_scale"])
        and topology_holds(manifest, a)
        and offsets_hold(arrays, a)
        and leaves_hold(manifest, a)
        and rerank_holds(manifest, a)
        and calibration_holds(manifest, a)
        and report_holds(arrays)
        and embedding_holds(manifest, a)
        and (
            "embedding/u" not in arrays
            or bool(np.isfinite(as_float32(arrays["embedding/u"])).all())
        )
        and all(chunk_holds(manifest, arrays, a, n) for n in range(manifest.n_nodes))
    )


def names_hold(offsets: list[int], utf8: bytes, slots: list[int]) -> bool:
    if not ascends(offsets, len(utf8)):
        return False
    names = [utf8[start:end] for start, end in itertools.pairwise(offsets)]
    try:
        texts = [name.decode() for name in names]
    except UnicodeDecodeError:
        return False
    controls = [*map(chr, range(32)), *map(chr, range(127, 160))]
    if len(set(names)) < len(names) or any(not t or any(c in t for c in controls) for t in texts):
        return False
    expected = [-1] * (len(names) + len(names) // 2 + 1)
    for i, name in enumerate(names):
        slot = (slow_hash(name) >> 32) * len(expected) >> 32
        while expected[slot] >= 0:
            slot = (slot + 1) % len(expected)
        expected[slot] = i
    return slots == expected


def topology_holds(manifest: Manifest, a: dict[str, Any]) -> bool:
    child_ptr, n = a["ensemble/child_ptr"], manifest.n_nodes
    if child_ptr[0] != manifest.n_trees or child_ptr[-1] != n or child_ptr != sorted(child_ptr):
        return False
    children = [range(child_ptr[i], child_ptr[i + 1]) for i in range(n)]
    if any(child <= i for i in range(n) for child in children[i]):
        return False
    parent = [-1] * n
    for i in range(n):
        for child in children[i]:
            parent[child] = i
    tree = []
    for i in range(n):
        tree.append(i if parent[i] < 0 else tree[parent[i]])
    chunks = iter(range(n))
    node_chunk = [next(chunks) if children[i] else -1 for i in range(n)]
    return (
        a["ensemble/parent"] == parent
        and a["ensemble/node_chunk"] == node_chunk
        and max(node_chunk, default=-1) + 1 == manifest.n_chunks
        and all(a["ensemble/node_bias"][i] == 0 for i in range(manifest.n_trees))
        and labels_hold(manifest, a, children, tree)
    )


def labels_hold(
    manifest: Manifest, a: dict[str, Any], children: list[range], tree: list[int]
) -> bool:
    node_label, n = a["ensemble/node_label"], manifest.n_nodes
    if manifest.kind == "decision-tree":
        return node_label == [-1] * n
    if not all(children[: manifest.n_trees]):
        return False
    label_leaf = [[-1] * manifest.n_labels for _ in range(manifest.n_trees)]
    for i in range(n):
        if children[i]:
            if node_label[i] != -1:
                return False
        elif not 0 <= node_label[i] < manifest.n_labels or label_leaf[tree[i]][node_label[i]] != -1:
            return False
        else:
            label_leaf[tree[i]][node_label[i]] = i
    return a["ensemble/label_leaf"] == label_leaf


def offsets_hold(arrays: Mapping[str, Any], a: dict[str, Any]) -> bool:
    pairs = {
        "block_ptr": "blocks",
        "row_start": "row_ptr",
        "sparse_ptr": "sparse",
        "leaf_ptr": "leaf_label",
    }
    n_dense = len(a["ensemble/dense"]) - LANES
    return (
        all(ascends(a[f"ensemble/{ptr}"], len(a[f"ensemble/{of}"])) for ptr, of in pairs.items())
        and ascends(a["ensemble/dense_ptr"], n_dense)
        and not any(
            arrays["ensemble/dense"][n_dense:].tobytes()
        )  # bits: a zero with a sign is not one
    )


def leaves_hold(manifest: Manifest, a: dict[str, Any]) -> bool:
    labels, values = a["ensemble/leaf_label"], a["ensemble/leaf_value"]
    if len(labels) != len(values) or not all(0 <= value <= 1 for value in values):
        return False
    if manifest.kind == "label-tree":
        return not labels
    ptr, chunk = a["ensemble/leaf_ptr"], a["ensemble/node_chunk"]
    for i in range(manifest.n_nodes):
        own = labels[ptr[i] : ptr[i + 1]]
        if own != sorted(set(own)) or not all(0 <= label < manifest.n_labels for label in own):
            return False
        if own and chunk[i] >= 0:
            return False
    return True


def rerank_holds(manifest: Manifest, a: dict[str, Any]) -> bool:
    if not any(name.startswith("tail/") for name in a):
        return True
    ptr, features, norm2 = a["tail/ptr"], a["tail/features"], a["tail/norm2"]
    alpha, gamma = a["tail/parameters"]
    if manifest.kind != "decision-tree" or not ascends(ptr, len(features)):
        return False
    labels = [features[start:end] for start, end in itertools.pairwise(ptr)]
    return (
        len(labels) == len(norm2) == manifest.n_labels
        and len(features) == len(a["tail/values"])
        and all(own == sorted(set(own)) for own in labels)
        and all(0 <= feature < manifest.n_features for feature in features)
        and all(square >= 0 for square in norm2)
        and 0 <= alpha <= 1
        and gamma >= 0
    )


def calibration_holds(manifest: Manifest, a: dict[str, Any]) -> bool:
    if not any(name.startswith("calibration/") for name in a):
        return True
    x, y = a["calibration/x"], a["calibration/y"]
    return (
        manifest.link != "softmax"
        and 2 <= len(x) <= 256
        and len(x) == len(y)
        and all(values == sorted(set(values)) for values in (x, y))
        and x[0] == y[0] == 0
        and x[-1] == 1
        and y[-1] <= 1
    )


def tree_features(manifest: Manifest, a: dict[str, Any]) -> int:
    return len(a["embedding/u"][0]) if manifest.link == "softmax" else manifest.n_features


def embedding_holds(manifest: Manifest, a: dict[str, Any]) -> bool:
    if manifest.link != "softmax":
        return not any(name.startswith("embedding/") for name in a)
    dim = len(a["embedding/u"][0])
    turned = [len(place) for place in a["embedding/r"]]
    n_dense = [sum(len(bits_of(block[1])) for block in a["ensemble/blocks"])]
    return (
        len(turned) * len(a["embedding/u"]) == manifest.n_features
        and set(turned) <= {0, 1, dim}
        and (turned[0] != 0 or len(turned) == 1)
        and a["embedding/mean"][0] in (0, 1)
        and n_dense == [dim * manifest.n_chunks]
        and len(a["ensemble/sparse"]) == 0
    )


def report_holds(arrays: Mapping[str, Any]) -> bool:
    if "report/json" not in arrays:
        return True
    try:
        return type(json.loads(arrays["report/json"].tobytes().decode())) is dict
    except ValueError:
        return False


def chunk_holds(manifest: Manifest, arrays: Mapping[str, Any], a: dict[str, Any], n: int) -> bool:
    c = a["ensemble/node_chunk"][n]
    if c < 0:
        return True
    n_children = a["ensemble/child_ptr"][n + 1] - a["ensemble/child_ptr"][n]
    width = (
        -(-n_children // LANES) * LANES
        if n_children > LANES
        else 2 ** (n_children - 1).bit_length()
    )

    def own(ptr: str, of: str) -> Any:
        start, end = a[f"ensemble/{ptr}"][c : c + 2]
        return arrays[f"ensemble/{of}"][start:end]

    features, block_of = [], []
    for group, (blocks, before) in enumerate(a["ensemble/directory"][c]):
        if before != len(block_of):
            return False
        block_of += [32 * group + bit for bit in bits_of(blocks)]
    blocks = own("block_ptr", "blocks").tolist()
    if len(blocks) != len(block_of):
        return False
    n_sparse = n_dense = 0
    for block, (used, dense, sparse_before, dense_before) in zip(block_of, blocks, strict=True):
        if not used or dense & ~used or (sparse_before, dense_before) != (n_sparse, n_dense):
            return False
        features += [32 * block + bit for bit in bits_of(used)]
        n_dense += len(bits_of(dense))
        n_sparse += len(bits_of(used & ~dense))
    if features and features[-1] >= tree_features(manifest, a):
        return False
    return dense_holds(own("dense_ptr", "dense"), n_dense, n_children, width) and sparse_holds(
        own("row_start", "row_ptr").tolist(), own("sparse_ptr", "sparse"), n_sparse, n_children
    )


def as_float32(bits: Any) -> Any:
    if bits.dtype == np.uint16:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32) if bits.dtype.itemsize == 1 else bits.view(np.float32)


def dense_holds(dense: Any, n_dense: int, n_children: int, width: int) -> bool:
    if len(dense) != n_dense * width:
        return False
    rows = dense.reshape(n_dense, width)
    padding = np.ascontiguousarray(rows[:, n_children:])
    return bool(np.isfinite(as_float32(rows)).all()) and not any(padding.tobytes())


def sparse_holds(row_ptr: list[int], sparse: Any, n_sparse: int, n_children: int) -> bool:
    if len(row_ptr) != n_sparse + 1 or not ascends(row_ptr, len(sparse)):
        return False
    half = 4 * sparse.dtype.itemsize
    children = [word & (1 << half) - 1 for word in sparse.tolist()]
    bits = (sparse >> sparse.dtype.type(half)).astype(f"u{half // 8}")
    for start, end in itertools.pairwise(row_ptr):
        row = children[start:end]
        if row != sorted(set(row)) or any(child >= n_children for child in row):
            return False
    return bool(np.isfinite(as_float32(bits)).all())
