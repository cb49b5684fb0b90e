"""The first trees of a model: a smaller one that answers faster."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import (
    group_of,
)
from xylem_store.build import PARTS
from xylem_store.checks import ENSEMBLE
from xylem_store.ensemble import LANES, TreeEnsemble, levels_of
from xylem_store.version import Model


def first_trees(model: Model, n_trees: int) -> Model:
    """Return a model with the first `n_trees` trees of an opened one: scores are means over these.

    All other arrays are the model's own: names, features, re-ranking. The manifest counts what
    remains of the trees; its entries about training and files are those of the whole model. With
    all trees it is the model itself. Raises ValueError if n_trees is not 1 to the number of trees.
    Cost: the bytes of these trees, copied.
    """
    n_all = model.manifest.n_trees
    if not 1 <= n_trees <= n_all:
        raise ValueError(f"expected 1 to {n_all} trees, found {n_trees}")
    if n_trees == n_all:
        return model
    ensemble = take_first_trees(model.ensemble, n_trees)
    return dataclasses.replace(
        model,
        manifest=dataclasses.replace(
            model.manifest,
            n_trees=n_trees,
            n_nodes=len(ensemble.parent),
            n_chunks=len(ensemble.directory),
        ),
        ensemble=ensemble,
        arrays={**model.arrays, **group_of(ENSEMBLE, ensemble)},
    )


def take_first_trees(ensemble: TreeEnsemble, n_trees: int) -> TreeEnsemble:
    """Return the first trees of an ensemble, copied, as if no others had been built.

    n_trees  1 to all of them

    The contents of a chunk or a leaf do not name nodes, so they stay unchanged; only nodes get new
    numbers.
    """
    e = ensemble
    nodes = np.concatenate(
        [np.arange(level.start, level.stop) for level in levels_of(e.child_ptr, n_trees)]
    )
    number = np.full(len(e.parent) + 1, -1, np.int32)  # the last entry is for -1: no node
    number[nodes] = np.arange(len(nodes), dtype=np.int32)
    n_children = np.diff(e.child_ptr)[nodes]
    chunks = e.node_chunk[nodes]
    chunks = chunks[chunks >= 0]
    parts: dict[str, NDArray[Any]] = {}
    for ptr, name in PARTS.items():
        parts[ptr], parts[name] = _take_ranges(getattr(e, ptr), getattr(e, name), chunks)
    parts["dense"] = np.concatenate([parts["dense"], np.zeros(LANES, e.dense.dtype)])
    leaf_ptr = e.leaf_ptr
    leaf_label = e.leaf_label
    leaf_value = e.leaf_value
    if len(leaf_ptr) > 1:
        leaf_ptr, leaf_label = _take_ranges(e.leaf_ptr, e.leaf_label, nodes)
        leaf_value = _take_ranges(e.leaf_ptr, e.leaf_value, nodes)[1]
    return TreeEnsemble(
        child_ptr=(n_trees + np.concatenate([[0], np.cumsum(n_children)])).astype(np.int32),
        parent=number[e.parent[nodes]],
        node_label=e.node_label[nodes],
        label_leaf=number[e.label_leaf[:n_trees]],
        node_chunk=np.where(n_children > 0, np.cumsum(n_children > 0) - 1, -1).astype(np.int32),
        node_bias=e.node_bias[nodes],
        node_scale=e.node_scale[nodes] if len(e.node_scale) else e.node_scale,
        directory=e.directory[chunks],
        leaf_ptr=leaf_ptr,
        leaf_label=leaf_label,
        leaf_value=leaf_value,
        **parts,
    )


def _take_ranges(
    ptr: NDArray[np.int64], values: NDArray[Any], indices: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the ranges values[ptr[i] : ptr[i + 1]] for i in `indices`: offsets and values.

    indices  ascending
    """
    sizes = (ptr[1:] - ptr[:-1])[indices]
    runs = [run for run in np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1) if len(run)]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.concatenate(
        [values[:0], *(values[ptr[run[0]] : ptr[run[-1] + 1]] for run in runs)]
    )
