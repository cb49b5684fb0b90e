"""Import models of napkinXC: the directory that its PLT writes.

The files are little-endian and unaligned:

args.bin     version (text), bias f32, norm u8, hash i32, features threshold f32, model type i32,
             its name (text), ensemble i32; a text is its length u64 and its bytes
tree.bin     number of labels i32, number of nodes i32, for each node (number, label or -1) i32,
             root i32, for each node its parent or -1 i32
weights.bin  number of nodes i32, and for each node: number of classes i32, first class i32, loss
             i32; with two classes also (size, number of non-zeros) u64 twice, sparse u8, f32[size]
             or for each non-zero (index i32, weight f32), gradients u8

Index 1 is that of the bias; feature f has index f + 2. Source: files of napkinxc 0.7.2, and its
src/base.cpp, src/vector.cpp, src/args.cpp and src/models/label_tree.cpp.
"""

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import offsets
from xylem.extras.importers.files import ModelFile, ModelFiles
from xylem.extras.importers.foreign import (
    Branches,
    ForeignColumns,
    Imported,
    check_columns,
    chunk_of_columns,
    plant,
    split_bias,
)
from xylem_store import F32, I64, IDS_MAX, Link

VERSIONS = ("0.7.0", "0.7.1", "0.7.2")

# The link of each loss, by its number in the files; the other losses of napkinXC are refused,
# because it computes their probabilities in another way.
LINKS: tuple[Link, ...] = ("logistic", "hinge2")

CONSTANT = 10.0  # the margin, or minus it, of a node whose training rows were all of one class
_BIAS_INDEX = 1
_FIRST_INDEX = 2
_PAIR = np.dtype([("index", "<i4"), ("weight", "<f4")])


def read_napkinxc(files: ModelFiles) -> Imported:
    """Return the probabilistic label tree in a directory of napkinXC. Raises BadModel.

    napkinXC multiplies by the probability of the root too. Here the root's scorer becomes that of
    the only child of a new root. The new root is left out if the root's probability is constant
    (0.99995), as it is when every training row has a label. Labels without any training row may be
    in no tree: the files do not say how many labels there are.
    """
    version, bias, has_norm = _read_settings(files.read("args.bin"))
    tree_file = files.read("tree.bin")
    branches = _read_tree(tree_file)
    weights_file = files.read("weights.bin")
    columns, link, n_features = _read_scorers(weights_file, len(branches.label), bias)
    root = branches.root
    if columns.indptr[root] < columns.indptr[root + 1] or columns.bias[root] != CONSTANT:
        branches = Branches(
            np.append(branches.child_ptr, len(branches.child) + 1),
            np.append(branches.child, root),
            np.append(branches.label, -1),
            len(branches.label),
        )
    tree = plant(
        tree_file, branches, lambda _, children: chunk_of_columns(weights_file, columns, children)
    )
    return Imported(
        trees=[tree],
        link=link,
        n_labels=1 + int(branches.label.max()),
        all_labels=False,
        n_features=n_features,
        norm="l2" if has_norm else "none",
        settings={"version": version, "bias": bias, "norm": has_norm},
    )


class _Reader:
    """A reader of values from the front of a file to its end; `offset` is where the next begins.

    Each method raises BadModel where the file ends too early.
    """

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.offset = 0

    def take(self, form: str) -> tuple[int | float, ...]:
        """Return the next values, of a format of `struct`."""
        self._check_left(struct.calcsize(form))
        values = struct.unpack_from(form, self.file.data, self.offset)
        self.offset += struct.calcsize(form)
        return values

    def integer(self, low: int, high: int, quantity: str) -> int:
        """Return the next int32; raise BadModel unless it is from `low` to `high`.

        quantity  what the number is, for the error
        """
        (value,) = self.take("<i")
        self.file.expect(low <= value <= high, f"{quantity} from {low} to {high}", value)
        return int(value)

    def text(self) -> str:
        """Return the next text; bytes that are not ASCII become U+FFFD."""
        (size,) = self.take("<Q")
        return self.array("u1", int(size)).tobytes().decode("ascii", "replace")

    def array(self, dtype: np.dtype[Any] | str, count: int) -> NDArray[Any]:
        """Return the next array, a view of the file's bytes."""
        self._check_left(count * np.dtype(dtype).itemsize)
        values = np.frombuffer(self.file.data, dtype, count, self.offset)
        self.offset += values.nbytes
        return values

    def done(self) -> None:
        """Raise BadModel if bytes are left."""
        n_bytes_left = len(self.file.data) - self.offset
        self.file.expect(
            n_bytes_left == 0, f"the end at byte {self.offset}", f"{n_bytes_left} more bytes"
        )

    def _check_left(self, n_bytes: int) -> None:
        n_bytes_left = len(self.file.data) - self.offset
        self.file.expect(
            n_bytes <= n_bytes_left, f"{n_bytes} bytes behind byte {self.offset}", n_bytes_left
        )


def _read_settings(file: ModelFile) -> tuple[str, float, bool]:
    """Return the version, the bias, and whether rows are scaled to length 1. Raises BadModel."""
    reader = _Reader(file)
    version = reader.text()
    file.expect(
        version in VERSIONS, f"a model of napkinXC {' or '.join(VERSIONS)}", f"{version!r:.40}"
    )
    bias, norm, hashed, threshold = reader.take("<fBif")
    file.expect(math.isfinite(bias), "a bias that is finite", bias)
    file.expect(norm in (0, 1), "norm to be 0 or 1", norm)
    file.expect(hashed == 0, "features that are not hashed", f"hash {hashed}")
    file.expect(threshold == 0, "features without a threshold", f"features_threshold {threshold}")
    (kind,) = reader.take("<i")
    name = reader.text()
    file.expect((kind, name) == (3, "plt"), "a model of type plt", f"{name!r:.40}")
    (n_trees,) = reader.take("<i")
    file.expect(n_trees in (0, 1), "a single tree", f"an ensemble of {n_trees}")
    reader.done()
    return version, float(bias), norm == 1


def _read_tree(file: ModelFile) -> Branches:
    reader = _Reader(file)
    n_labels = reader.integer(1, IDS_MAX, "labels")
    n_nodes = reader.integer(1, IDS_MAX, "nodes")
    nodes = reader.array("<i4", 2 * n_nodes).reshape(n_nodes, 2).astype(np.int64)
    root = reader.integer(0, n_nodes - 1, "a root")
    parent = reader.array("<i4", n_nodes).astype(np.int64)
    reader.done()
    file.expect(
        bool((nodes[:, 0] == np.arange(n_nodes)).all()),
        f"nodes numbered from 0 to {n_nodes - 1}",
        "others",
    )
    labels = nodes[:, 1]
    file.expect(labels.min() >= -1, "labels from 0, or -1", int(labels.min()))
    n_leaves = int(np.count_nonzero(labels >= 0))
    file.expect(n_leaves == n_labels, f"{n_labels} labels", n_leaves)
    file.expect(
        parent[root] == -1 and int(np.count_nonzero(parent < 0)) == 1 and parent.max() < n_nodes,
        "a parent for each node but the root",
        "others",
    )
    return Branches(
        offsets(np.bincount(parent[parent >= 0], minlength=n_nodes)),
        np.argsort(parent, kind="stable")[1:],
        labels,
        root,
    )


def _read_scorers(file: ModelFile, n_nodes: int, bias: float) -> tuple[ForeignColumns, Link, int]:
    """Return the scorers of all nodes, their link, and the least number of features that they need.

    The constant terms are the weights of the bias feature times `bias`. Raises BadModel.
    """
    reader = _Reader(file)
    n_scorers = reader.integer(0, IDS_MAX, "nodes")
    file.expect(n_scorers == n_nodes, f"{n_nodes} nodes, as tree.bin", n_scorers)
    constant = np.zeros(n_nodes, np.float32)
    indices: list[I64] = []
    weights: list[F32] = []
    losses = set()
    n_features = 1
    for node in range(n_nodes):
        n_classes = reader.integer(0, 2, "classes")
        first_class = reader.integer(0, 1, "a first class")
        loss = reader.integer(0, len(LINKS) - 1, "a loss")
        index = np.empty(0, np.int64)
        weight = np.empty(0, np.float32)
        if n_classes < 2:
            constant[node] = CONSTANT if first_class else -CONSTANT
        else:
            losses.add(loss)
            index, weight, n_vector_features = _read_vector(reader)
            n_features = max(n_features, n_vector_features)
            weight = weight if first_class else -weight
        indices.append(index)
        weights.append(weight)
    reader.done()
    file.expect(len(losses) <= 1, "one loss for all nodes", "two")
    indptr = offsets(map(len, indices))
    index = np.concatenate(indices)
    weight = np.concatenate(weights)
    check_columns(file, indptr, index, weight, n_features + _FIRST_INDEX)
    feature = np.where(index == _BIAS_INDEX, n_features, index - _FIRST_INDEX)
    file.expect(len(feature) == 0 or feature.min() >= 0, "no weight of index 0", "one")
    columns = split_bias(file, (indptr, feature, weight), n_features, bias)
    link = LINKS[losses.pop()] if losses else LINKS[0]
    return columns._replace(bias=columns.bias + constant), link, n_features


def _read_vector(reader: _Reader) -> tuple[I64, F32, int]:
    """Return the indices and weights that are not zero, and the least number of features.

    Raises BadModel.
    """
    file = reader.file
    size, n_nonzero, size_copy, n_nonzero_copy = (int(value) for value in reader.take("<QQQQ"))
    file.expect(
        (size, n_nonzero) == (size_copy, n_nonzero_copy), "sizes that are the same twice", "others"
    )
    file.expect(size < IDS_MAX, f"a size below {IDS_MAX}", size)
    (is_sparse,) = reader.take("<B")
    file.expect(is_sparse in (0, 1), "sparse or dense weights", is_sparse)
    if is_sparse:
        pairs = reader.array(_PAIR, n_nonzero)
        index = pairs["index"].astype(np.int64)
        weight = pairs["weight"].astype(np.float32)
        file.expect(
            n_nonzero == 0 or (index.min() >= _BIAS_INDEX and index.max() < size),
            f"indices from {_BIAS_INDEX} to {size - 1}",
            "others",
        )
        n_features = size - _FIRST_INDEX
    else:
        dense = reader.array("<f4", size)
        index = np.flatnonzero(dense).astype(np.int64)
        weight = dense[index].astype(np.float32)
        # napkinXC makes a dense vector one longer than needed: a last weight of zero is no feature
        n_features = size - _FIRST_INDEX - (len(index) == 0 or index[-1] < size - 1)
    (has_gradients,) = reader.take("<B")
    file.expect(has_gradients == 0, "no gradients, which online training saves", has_gradients)
    return index, weight, int(n_features)
