"""A small model in the files of each library whose models are imported, and its exact scores."""

import io
import json
import pickle
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

N_FEATURES = 7
BELOW = (np.array([0, 2, 4]), np.array([1, 3]))
"""The labels below each of the two nodes; the nodes are the children of the root."""

PARENTS = np.array([0, 1, 0, 1, 0])
"""The node that is the parent of each label."""

_RNG = np.random.default_rng(5)


def _matrix(n_columns: int) -> sp.csc_matrix:
    """Return weights that are multiples of 1/8, half of them zero; the last row is the bias."""
    weights = _RNG.integers(-12, 13, (N_FEATURES + 1, n_columns)) / 8
    weights *= _RNG.random(weights.shape) < 0.5
    weights[N_FEATURES] = _RNG.integers(1, 9, n_columns) / 16
    return sp.csc_matrix(weights.astype(np.float32))


def npy(array: Any) -> bytes:
    """Return the bytes of a .npy file."""
    data = io.BytesIO()
    np.save(data, array, allow_pickle=True)
    return data.getvalue()


NODES, LABELS = _matrix(2), _matrix(5)
ROWS = sp.random(20, N_FEATURES, 0.5, "csr", np.float32, _RNG)
ROWS.sort_indices()


def scores(link: Callable[[Any], Any], norm: bool = False) -> np.ndarray:
    """Return the probability of each label for each row of ROWS, by the definition."""
    rows = ROWS.toarray().astype(np.float64)
    if norm:
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    return link(rows @ LABELS) * link(rows @ NODES)[:, PARENTS]


def hinge(power: int) -> Callable[[Any], Any]:
    return lambda margin: np.exp(-(np.maximum(1 - margin, 0) ** power))


def logistic(margin: Any) -> Any:
    return 1 / (1 + np.exp(-margin))


def save_pecos(path: Path, post_processor: str = "l3-hinge") -> None:
    parent_matrices = [sp.csc_matrix(np.ones((2, 1))), sp.csc_matrix(np.eye(2)[PARENTS])]
    for i, (weights, parents) in enumerate(zip([NODES, LABELS], parent_matrices, strict=True)):
        folder = path / "ranker" / f"{i}.model"
        folder.mkdir(parents=True)
        sp.save_npz(folder / "W.npz", weights, compressed=False)
        sp.save_npz(folder / "C.npz", parents.astype(np.float32), compressed=False)
        settings = {
            "model": "MLModel",
            "nr_labels": weights.shape[1],
            "nr_features": N_FEATURES,
            "nr_codes": parents.shape[1],
            "bias": 1.0,
            "pred_kwargs": {"only_topk": 20, "post_processor": post_processor},
        }
        (folder / "param.json").write_text(json.dumps(settings))
    (path / "ranker" / "param.json").write_text(
        json.dumps({"model": "HierarchicalMLModel", "depth": 2})
    )
    meta = {"__meta__": {"class_fullname": "pecos.xmc.xlinear.model###XLinearModel"}}
    (path / "param.json").write_text(json.dumps(meta))


def to_cbor(item: Any) -> bytes:
    """Return CBOR as omikuji writes it: shortest heads, floats of 16 bits if that is exact."""
    if isinstance(item, float):
        short = np.float16(item)
        return (
            struct.pack(">Be", 0xF9, item)
            if float(short) == item
            else struct.pack(">Bf", 0xFA, item)
        )
    size = item if isinstance(item, int) else len(item.encode() if isinstance(item, str) else item)
    major = {int: 0, str: 3, list: 4, dict: 5}[type(item)] << 5
    for code, form, size_max in ((24, "B", 0xFF), (25, "H", 0xFFFF), (26, "I", 0xFFFFFFFF)):
        if size < 24:
            head = bytes([major | size])
            break
        if size <= size_max:
            head = struct.pack(f">B{form}", major | code, size)
            break
    if isinstance(item, str):
        return head + item.encode()
    if isinstance(item, dict):
        return head + b"".join(to_cbor(key) + to_cbor(value) for key, value in item.items())
    return head + b"".join(map(to_cbor, item)) if isinstance(item, list) else head


def _omikuji_weights(matrix: sp.csc_matrix, dense: bool) -> dict[str, Any]:
    if dense:
        data = matrix.toarray().ravel().tolist()
        return {"Dense": {"v": 1, "dim": list(matrix.shape), "data": data}}
    rows = matrix.tocsr()
    used = np.flatnonzero(np.diff(rows.indptr))
    lists = {
        "indptr": [0, *rows.indptr[used + 1].tolist()],
        "outer_inds": used.tolist(),
        "inner_inds": rows.indices.tolist(),
        "data": rows.data.tolist(),
    }
    return {"Sparse": {"outer_dim": rows.shape[0], "inner_dim": rows.shape[1], **lists}}


def omikuji_tree(dense_root: bool = True) -> dict[str, Any]:
    leaves = [
        {
            "Leaf": {
                "weights": _omikuji_weights(LABELS[:, labels], dense=False),
                "labels": labels.tolist(),
            }
        }
        for labels in BELOW
    ]
    return {"Branch": {"weights": _omikuji_weights(NODES, dense_root), "children": leaves}}


def save_omikuji(path: Path, loss: str = "Hinge") -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "settings.json").write_text(
        json.dumps({"n_features": N_FEATURES, "classifier_loss_type": loss})
    )
    for i in range(2):
        (path / f"tree{i}.cbor").write_bytes(to_cbor(omikuji_tree(dense_root=i == 0)))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def napkinxc_settings(
    version: str = "0.7.2", norm: int = 1, hashed: int = 0, model: int = 3, n_trees: int = 1
) -> bytes:
    head = _text(version) + struct.pack("<fBif", 1.0, norm, hashed, 0.0)
    return head + struct.pack("<i", model) + _text("plt") + struct.pack("<i", n_trees)


def _napkinxc_scorer(column: np.ndarray, first_class: int, sparse: bool, loss: int) -> bytes:
    """Return a scorer: weights of index 0 (unused), bias and features.

    If the first class is 0, the weights are stored negated.
    """
    dense = np.concatenate([[0], column[-1:], column[:-1], [0]]).astype("<f4")
    dense = dense if first_class else -dense
    used = np.flatnonzero(dense)
    size = int(used[-1]) + 1 if sparse else len(dense)
    head = struct.pack("<iiiQQQQB", 2, first_class, loss, size, len(used), size, len(used), sparse)
    pairs = b"".join(struct.pack("<if", i, dense[i]) for i in used)
    return head + (pairs if sparse else dense.tobytes()) + b"\0"


def save_napkinxc(path: Path, loss: int = 0, root: bytes = struct.pack("<iii", 1, 1, 0)) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "args.bin").write_bytes(napkinxc_settings())
    parents = [-1, 0, 0, *(1 + PARENTS)]
    labels = [-1, -1, -1, *range(5)]
    tree = struct.pack("<ii", 5, 8) + b"".join(
        struct.pack("<ii", i, label) for i, label in enumerate(labels)
    )
    (path / "tree.bin").write_bytes(tree + struct.pack("<i", 0) + struct.pack("<8i", *parents))
    columns = [*NODES.toarray().T, *LABELS.toarray().T]
    scorers = [_napkinxc_scorer(column, i % 2, i % 3 > 0, loss) for i, column in enumerate(columns)]
    (path / "weights.bin").write_bytes(struct.pack("<i", 8) + root + b"".join(scorers))


def _libmultilabel_classes() -> dict[str, types.ModuleType]:
    """Return modules with the classes whose names are in pickles of libmultilabel."""
    tree, linear = "libmultilabel.linear.tree", "libmultilabel.linear.linear"
    names = ("libmultilabel", "libmultilabel.linear", tree, linear)
    modules = {name: types.ModuleType(name) for name in names}
    for module, names in (
        (tree, ("Node", "TreeModel", "EnsembleTreeModel")),
        (linear, ("FlatModel",)),
    ):
        for name in names:
            setattr(modules[module], name, type(name, (), {"__module__": module}))
    return modules


def _instance_of(module: types.ModuleType, kind: str, /, **attributes: Any) -> Any:
    instance = getattr(module, kind)()
    instance.__dict__.update(attributes)
    return instance


def libmultilabel_pickle(n_trees: int = 1, bias: float = 1.0, **changes: Any) -> bytes:
    """Return the pickle of a model; `changes` replace attributes of its trees."""
    modules = _libmultilabel_classes()
    tree, linear = modules["libmultilabel.linear.tree"], modules["libmultilabel.linear.linear"]
    leaves = [
        _instance_of(tree, "Node", label_map=labels, children=[], index=1 + i)
        for i, labels in enumerate(BELOW)
    ]
    root = _instance_of(
        tree, "Node", label_map=np.arange(5), children=leaves, index=0, is_root=True
    )
    weights = sp.hstack([NODES, *(LABELS[:, labels] for labels in BELOW)], "csc").astype(np.float64)
    flat = _instance_of(
        linear, "FlatModel", name="f", weights=weights, bias=bias, thresholds=0, multiclass=False
    )
    pointers = np.cumsum([0, 2, *map(len, BELOW)])
    attributes = {"name": "tree", "root": root, "flat_model": flat, "node_ptr": pointers, **changes}
    models = [_instance_of(tree, "TreeModel", **attributes) for _ in range(n_trees)]
    model = (
        models[0] if n_trees == 1 else _instance_of(tree, "EnsembleTreeModel", tree_models=models)
    )
    with mock.patch.dict(sys.modules, modules):
        return pickle.dumps({"preprocessor": None, "model": model}, protocol=5)


def save_libmultilabel(path: Path, n_trees: int = 1) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "linear_pipeline.pickle").write_bytes(libmultilabel_pickle(n_trees))


SAVERS: dict[str, Callable[[Path], None]] = {
    "pecos": save_pecos,
    "omikuji": save_omikuji,
    "napkinxc": save_napkinxc,
    "libmultilabel": save_libmultilabel,
}
