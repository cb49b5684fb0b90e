"""Import models of libmultilabel: the pickle that linear.utils.save_pipeline writes.

It has a tree model or an ensemble of tree models. Source: files of libmultilabel 0.10, and its
libmultilabel/linear/tree.py. The pickle is read as data by `xylem.extras.importers.pickled`: no
name in it is ever imported.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.extras.importers.files import ModelFile, ModelFiles
from xylem.extras.importers.foreign import (
    ForeignColumns,
    Imported,
    Nested,
    check_columns,
    chunk_of_columns,
    plant,
    split_bias,
)
from xylem.extras.importers.pickled import Stub, describe, read_pickle
from xylem_store import I64, IDS_MAX, Tree

# libmultilabel's probability of a margin m is 1 / (1 + exp(-SLOPE * m)): its default `prob_A`
SLOPE = 3.0
BIAS_MAX = 1e6
TREES_MAX = 1000

_MODULE = "libmultilabel.linear"
_DTYPES = {"i4": "<i4", "i8": "<i8", "f4": "<f4", "f8": "<f8"}


def read_libmultilabel(files: ModelFiles) -> Imported:
    """Return the model in a pickle of libmultilabel. Raises BadModel.

    Rows are not scaled; libmultilabel averages the probabilities of an ensemble's trees. Its
    vectorizer is not imported: rows are the feature ids and values that the vectorizer returns.
    """
    file = files.read("linear_pipeline.pickle" if files.path.is_dir() else "")
    pipeline = read_pickle(file)
    file.expect(
        type(pipeline) is dict and pipeline.keys() == {"preprocessor", "model"},
        "a dict of preprocessor and model",
        type(pipeline).__name__,
    )
    model = pipeline["model"]
    models = [model]
    if type(model) is Stub and model.name == f"{_MODULE}.tree.EnsembleTreeModel":
        models = _state(file, model, model.name, ("tree_models",))["tree_models"]
        file.expect(
            type(models) is list and 0 < len(models) <= TREES_MAX,
            f"a list of 1 to {TREES_MAX} tree models",
            type(models).__name__,
        )
    tree_facts = []
    n_bytes = 0
    for item in models:
        tree_model = _state(
            file, item, f"{_MODULE}.tree.TreeModel", ("root", "flat_model", "node_ptr")
        )
        columns, n_tree_features = _read_weights(file, tree_model["flat_model"])
        n_bytes += columns.weights.nbytes + columns.bias.nbytes
        # libmultilabel never writes trees that share arrays; with shared ones, a small file could
        # have any number of trees, and fill the memory
        file.expect(n_bytes <= len(file.data), "arrays of its own for each tree", "shared ones")
        tree_facts.append(_read_tree(file, tree_model, columns, n_tree_features))
    trees, n_features, n_labels = zip(*tree_facts, strict=True)
    file.expect(
        len(set(n_features)) == 1 and len(set(n_labels)) == 1,
        "trees of the same features and labels",
        "others",
    )
    return Imported(
        trees=list(trees),
        link="logistic",
        n_labels=n_labels[0],
        all_labels=True,
        n_features=n_features[0],
        norm="none",
        settings={"trees": len(trees), "prob_A": SLOPE},
    )


def _state(file: ModelFile, item: Any, name: str, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the attributes of an instance of the class `name`.

    Raises BadModel for another object, and for an instance without one of the attributes `keys`.
    """
    file.expect(
        type(item) is Stub and item.is_call and item.name == name and type(item.state) is dict,
        f"an instance of {name}",
        describe(item),
    )
    missing = [key for key in keys if key not in item.state]
    file.expect(not missing, f"{name} to have {', '.join(keys)}", f"no {', '.join(missing)}")
    return dict(item.state)


def _read_tree(
    file: ModelFile, model: dict[str, Any], columns: ForeignColumns, n_features: int
) -> tuple[Tree, int, int]:
    """Return the tree of a model, its number of features and its number of labels.

    model    the attributes of the tree model
    columns  the scorers of its nodes

    Raises BadModel.
    """
    starts = _array(file, model["node_ptr"], "i").astype(np.int64)
    is_ascending = len(starts) > 1 and starts[0] == 0 and not bool((starts[1:] < starts[:-1]).any())
    n_columns = len(columns.bias)
    file.expect(
        is_ascending and starts[-1] == n_columns, f"node_ptr from 0 to {n_columns}", "others"
    )
    collector = _Collector(file, starts)
    n_labels = collector.add_all(model["root"])
    branches = collector.branches
    column = np.array(collector.columns)
    tree = plant(
        file, branches, lambda _, children: chunk_of_columns(file, columns, column[children])
    )
    label_max = int(branches.label.max())
    file.expect(label_max < n_labels, f"labels below {n_labels}", label_max)
    return tree, n_features, n_labels


class _Collector(Nested):
    """Number the nodes and labels of a tree, each before its descendants.

    columns  for each node, the column of its scorer; -1 for the root
    """

    def __init__(self, file: ModelFile, starts: I64) -> None:
        super().__init__(file)
        self.columns = [-1]
        self._starts = starts
        self._seen: set[int] = set()

    def add_all(self, root: Any) -> int:
        """Add the root and all its descendants; return the number of labels of the tree."""
        unvisited = [(root, self.new(-1))]
        n_labels = len(self._labels_of(root))
        while unvisited:
            item, node = unvisited.pop()
            self.file.expect(
                id(item) not in self._seen, "every node below one node", "one below two"
            )
            self._seen.add(id(item))
            unvisited += self._add_below(item, node)
        return n_labels

    def _add_below(self, item: Any, node: int) -> list[tuple[Any, int]]:
        """Add the children of a node: labels or inner nodes.

        Returns (inner node in the pickle, its number) for each inner node.
        """
        state = self._node(item)
        index = state["index"]
        children = state["children"]
        self.file.expect(
            type(index) is int and 0 <= index < len(self._starts) - 1 and type(children) is list,
            "an index and children",
            describe(index),
        )
        first = int(self._starts[index])
        last = int(self._starts[index + 1])
        labels = [-1] * len(children) if children else self._labels_of(item).tolist()
        self.file.expect(
            len(labels) == last - first, f"{len(labels)} columns of a node", last - first
        )
        self.children[node] = child_nodes = [self.new(label) for label in labels]
        self.columns += range(first, last)
        return list(zip(children, child_nodes, strict=True)) if children else []

    def _labels_of(self, item: Any) -> NDArray[Any]:
        labels = _array(self.file, self._node(item)["label_map"], "i")
        self.file.expect(
            len(labels) == 0 or (labels.min() >= 0 and labels.max() < IDS_MAX),
            f"labels from 0 to {IDS_MAX}",
            "others",
        )
        return labels

    def _node(self, item: Any) -> dict[str, Any]:
        return _state(self.file, item, f"{_MODULE}.tree.Node", ("index", "children", "label_map"))


def _read_weights(file: ModelFile, item: Any) -> tuple[ForeignColumns, int]:
    """Return the scorers of all nodes and the number of features; margins are times SLOPE.

    Raises BadModel.
    """
    flat_model = _state(
        file, item, f"{_MODULE}.linear.FlatModel", ("weights", "bias", "thresholds")
    )
    bias = flat_model["bias"]
    file.expect(
        type(bias) in (int, float) and abs(bias) <= BIAS_MAX,
        f"a bias from {-BIAS_MAX} to {BIAS_MAX}",
        describe(bias),
    )
    thresholds = flat_model["thresholds"]
    file.expect(
        type(thresholds) is int and thresholds == 0, "thresholds of 0", describe(thresholds)
    )
    weights = flat_model["weights"]
    is_matrix = type(weights) is Stub and re.fullmatch(
        r"scipy\.sparse\..*\.csc_matrix", weights.name
    )
    matrix = _state(
        file,
        weights,
        weights.name if is_matrix else "scipy.sparse.csc_matrix",
        ("_shape", "indptr", "indices", "data"),
    )
    shape = matrix["_shape"]
    fits = type(shape) is tuple and all(type(size) is int and 0 < size < IDS_MAX for size in shape)
    file.expect(fits and len(shape) == 2, f"a matrix of two sizes below {IDS_MAX}", "others")
    n_rows, n_columns = shape
    indptr = _array(file, matrix["indptr"], "i")
    indices = _array(file, matrix["indices"], "i")
    values = _array(file, matrix["data"], "f")
    file.expect(len(indptr) == n_columns + 1, f"{n_columns + 1} offsets", len(indptr))
    check_columns(file, indptr, indices, values, n_rows)
    n_features = n_rows - (bias > 0)
    file.expect(n_features > 0, "at least one feature", n_features)
    return split_bias(
        file, (indptr, indices, values), n_features, max(bias, 0.0), SLOPE
    ), n_features


def _array(file: ModelFile, item: Any, kind: str) -> NDArray[Any]:
    """Return an array in one dimension that numpy pickled with protocol 5.

    kind  "i" for integers, "f" for floats

    Raises BadModel.
    """
    is_array = type(item) is Stub and item.is_call and item.name.endswith(".numeric._frombuffer")
    file.expect(
        is_array and type(item.args) is tuple and len(item.args) == 4,
        "an array of numpy",
        describe(item),
    )
    data, dtype, shape, order = item.args
    file.expect(
        type(dtype) is Stub
        and dtype.is_call
        and dtype.name == "numpy.dtype"
        and type(dtype.args) is tuple
        and len(dtype.args) > 0,
        "a type of numpy",
        describe(dtype),
    )
    code = dtype.args[0]
    file.expect(
        type(code) is str
        and code in _DTYPES
        and code[0] == kind
        and type(dtype.state) is tuple
        and len(dtype.state) > 1
        and dtype.state[1] == "<",
        f"numbers of type {kind}4 or {kind}8, little-endian",
        describe(code),
    )
    file.expect(
        type(data) in (bytes, bytearray)
        and len(data) % int(code[1]) == 0
        and order in ("C", "F")
        and shape == (len(data) // int(code[1]),),
        "an array in one dimension",
        "another",
    )
    return np.frombuffer(data, _DTYPES[code])
