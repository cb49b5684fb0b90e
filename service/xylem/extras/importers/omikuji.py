"""Import models of omikuji: the directory that Model.save writes.

It has settings.json, and tree0.cbor, tree1.cbor and so on. A tree is nested: {"Branch": {"weights",
"children"}}, and at the bottom {"Leaf": {"weights", "labels"}}. Weights are a matrix (features x
children or labels): {"Dense": {"v": 1, "dim", "data"}}, row by row, or {"Sparse": {"outer_dim",
"inner_dim", "indptr", "outer_inds", "inner_inds", "data"}}, where row outer_inds[i] has the
children inner_inds[indptr[i]:indptr[i + 1]]. The last row is that of the bias.

Source: files of omikuji 0.5, and its src/mat_util.rs. Other releases have other names of fields,
and their files are refused.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.extras.importers.files import ModelFile, ModelFiles
from xylem.extras.importers.foreign import Imported, Nested, finite_weights, plant
from xylem_store import F32, I64, IDS_MAX, U8, Chunk, Link, kernel

NESTED_MAX = 300  # the most levels of arrays and maps within each other
# major types of CBOR, RFC 8949
_UINT = 0
_TEXT = 3
_ARRAY = 4
_MAP = 5
_FLOAT = 7


@kernel
def _read_arguments(data: U8, offset: int, values_out: I64, sizes_out: U8) -> int:
    """Read the arguments of consecutive items of one type from data[offset:].

    values_out  int64[n], the arguments
    sizes_out   uint8[n], how many bytes each argument takes; 0 if it is within the first byte

    Returns where the items end, or -1 if one has another type, has no definite length or is cut
    off.
    """
    kind = data[offset] >> 5 if offset < len(data) else 0
    for i in range(len(values_out)):
        if offset >= len(data) or data[offset] >> 5 != kind or data[offset] & 31 > 27:
            return -1
        first = data[offset] & 31
        n_bytes = 0 if first < 24 else 1 << (first - 24)
        offset += 1
        if offset + n_bytes > len(data):
            return -1
        value = np.int64(first) if first < 24 else np.int64(0)
        for _ in range(n_bytes):
            value = (value << 8) | np.int64(data[offset])
            offset += 1
        values_out[i] = value
        sizes_out[i] = n_bytes
    return offset


def read_cbor(file: ModelFile) -> Any:
    """Read the only item of a file: a dict, list, str, int, float, or array of int64 or float32.

    Raises BadModel for an item of another type, for bytes that are not CBOR, and for bytes after
    the item.
    """
    reader = _Reader(file)
    item = reader.item(0)
    file.expect(
        reader.offset == len(file.data), "one CBOR item", f"more behind byte {reader.offset}"
    )
    return item


class _Reader:
    """A reader of items, one after the other; `offset` is where the next one begins."""

    def __init__(self, file: ModelFile) -> None:
        self.offset = 0
        self._file = file
        self._data = np.frombuffer(file.data, np.uint8)

    def item(self, nested: int) -> Any:
        """Return the item at `offset`, which is within `nested` other items. Raises BadModel."""
        self._file.expect(nested <= NESTED_MAX, f"at most {NESTED_MAX} levels", "more")
        self._file.expect(
            self.offset < len(self._data), "more bytes", f"the end at byte {self.offset}"
        )
        major = int(self._data[self.offset]) >> 5
        if major == _FLOAT:
            return float(self._floats(1)[0])
        size = int(self._integers(1)[0])
        if major == _UINT:
            return size
        if major == _TEXT:
            return self._text(size)
        if major == _ARRAY:
            return self._array(size, nested)
        self._file.expect(
            major == _MAP, "maps, arrays, text and numbers", f"type {major} at byte {self.offset}"
        )
        self._check_left(2 * size)
        fields: dict[str, Any] = {}
        for _ in range(size):
            key = self.item(nested + 1)
            self._file.expect(
                type(key) is str and key not in fields,
                "keys of text, each once",
                f"another before byte {self.offset}",
            )
            fields[key] = self.item(nested + 1)
        return fields

    def _check_left(self, n_bytes: int) -> None:
        n_bytes_left = len(self._data) - self.offset
        self._file.expect(
            n_bytes <= n_bytes_left, f"{n_bytes} bytes behind byte {self.offset}", n_bytes_left
        )

    def _text(self, size: int) -> str:
        self._check_left(size)
        text = self._file.data[self.offset : self.offset + size]
        self.offset += size
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise self._file.fault("text in UTF-8", error) from error

    def _array(self, size: int, nested: int) -> Any:
        """Return the items of an array: as an array of numpy if the first one is a number.

        Then the others must be numbers of the same type.
        """
        self._check_left(size)
        major = int(self._data[self.offset]) >> 5 if size else None
        if major == _FLOAT:
            return self._floats(size)
        return (
            self._integers(size) if major == _UINT else [self.item(nested + 1) for _ in range(size)]
        )

    def _arguments(self, n: int) -> tuple[I64, U8]:
        """Return the arguments of the next n items and their sizes in bytes."""
        values = np.empty(n, np.int64)
        sizes = np.empty(n, np.uint8)
        end = _read_arguments(self._data, self.offset, values, sizes)
        self._file.expect(
            end >= 0, "items of one type and a length", f"others behind byte {self.offset}"
        )
        self.offset = end
        return values, sizes

    def _integers(self, n: int) -> I64:
        values, _ = self._arguments(n)
        self._file.expect(
            bool((values >= 0).all()), "integers below 2^63", f"more before byte {self.offset}"
        )
        return values

    def _floats(self, n: int) -> F32:
        """Return the next n floats, of 16 or 32 bits.

        A writer of CBOR shortens each float that 16 bits represent exactly.
        """
        bits, sizes = self._arguments(n)
        self._file.expect(
            bool(np.isin(sizes, (2, 4)).all()),
            "floats of 16 or 32 bits",
            f"others before byte {self.offset}",
        )
        return np.where(
            sizes == 2,
            bits.astype(np.uint16).view(np.float16),
            bits.astype(np.uint32).view(np.float32),
        ).astype(np.float32)


LINKS: dict[str, Link] = {"Hinge": "hinge2", "Log": "logistic"}

_SPARSE = ("outer_dim", "inner_dim", "indptr", "outer_inds", "inner_inds", "data")


def read_omikuji(files: ModelFiles) -> Imported:
    """Return the model in a directory of omikuji.

    Raises BadModel, also if the file of a tree is missing.

    omikuji scales rows to length 1, adds the bias, and averages the trees' probabilities. Labels
    without any training row are in no tree: the files do not say how many labels there are.
    """
    settings = files.read_settings("settings.json")
    n_features = settings.integer("n_features", 1, IDS_MAX)
    loss = settings.choice("classifier_loss_type", tuple(LINKS))
    names = [path.name for path in files.path.glob("tree*.cbor")]
    numbers = sorted(int(name[4:-5]) for name in names if name[4:-5].isdecimal())
    n_trees = len(numbers)
    settings.file.expect(
        n_trees > 0 and numbers == list(range(n_trees)),
        "tree0.cbor and all that follow beside it",
        f"trees {numbers}",
    )
    trees = []
    for i in range(n_trees):
        file = files.read(f"tree{i}.cbor")
        collector = _Collector(file, n_features)
        collector.add(read_cbor(file))
        trees.append(plant(file, collector.branches, collector.chunk_of))
    return Imported(
        trees=trees,
        link=LINKS[loss],
        n_labels=1 + max(int(tree.node_label.max()) for tree in trees),
        all_labels=False,
        n_features=n_features,
        norm="l2",
        settings={"trees": n_trees, "loss": loss},
    )


class _Collector(Nested):
    """Number the nodes of nested branches, a node before its children, and read their chunks."""

    def __init__(self, file: ModelFile, n_features: int) -> None:
        super().__init__(file)
        self._chunks: dict[int, Chunk] = {}
        self._n_features = n_features

    def add(self, item: Any) -> int:
        """Add a branch or leaf with all its descendants; return its number. Raises BadModel."""
        kind, fields = _only_pair(self.file, item, ("Branch", "Leaf"))
        children_key = "children" if kind == "Branch" else "labels"
        weights, parts = _fields(self.file, fields, ("weights", children_key))
        node = self.new(-1)
        if kind == "Branch":
            self.file.expect(type(parts) is list, "a list of children", type(parts).__name__)
            self.children[node] = [self.add(part) for part in parts]
        else:
            labels = _array(self.file, parts, np.int64)
            self.file.expect(
                len(labels) == 0 or labels.max() < IDS_MAX, f"labels below {IDS_MAX}", "others"
            )
            self.children[node] = [self.new(label) for label in labels.tolist()]
        self._chunks[node] = _chunk(self.file, weights, self._n_features, len(self.children[node]))
        return node

    def chunk_of(self, node: int, children: I64) -> Chunk:
        """Return the chunk of a node.

        Raises BadModel if some of its children are not in the tree, because they are branches
        without any label below: omikuji writes no such branch.
        """
        self.file.expect(
            len(children) == len(self.children[node]),
            "labels below every branch",
            "a branch without any",
        )
        return self._chunks[node]


def _only_pair(file: ModelFile, item: Any, names: tuple[str, ...]) -> tuple[str, Any]:
    """Return the key and the value of a map whose only key is one of `names`. Raises BadModel."""
    file.expect(
        type(item) is dict and len(item) == 1 and next(iter(item)) in names,
        f"a map of one key, {' or '.join(names)}",
        f"{item!r:.80}",
    )
    name: str = next(iter(item))
    return name, item[name]


def _fields(file: ModelFile, item: Any, names: tuple[str, ...]) -> list[Any]:
    """Return the values of a map that has the keys `names` and no other. Raises BadModel."""
    file.expect(
        type(item) is dict and item.keys() == set(names),
        f"a map of {', '.join(names)}",
        list(item) if type(item) is dict else type(item).__name__,
    )
    return [item[name] for name in names]


def _array(file: ModelFile, item: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """Return an array of int64 or float32; an empty one was read as a list. Raises BadModel."""
    array = np.empty(0, dtype) if type(item) is list and not item else item
    file.expect(
        isinstance(array, np.ndarray) and array.dtype == dtype,
        f"an array of {'integers' if dtype is np.int64 else 'floats'}",
        f"{item!r:.80}",
    )
    return np.asarray(array)


def _chunk(file: ModelFile, item: Any, n_features: int, n_children: int) -> Chunk:
    """Return the chunk in a dense or sparse matrix of weights. Raises BadModel."""
    kind, fields = _only_pair(file, item, ("Dense", "Sparse"))
    if kind == "Dense":
        version, sizes, data = _fields(file, fields, ("v", "dim", "data"))
        file.expect(version == 1, "a dense matrix of version 1", f"{version!r:.40}")
        weights = finite_weights(file, _array(file, data, np.float32))
        expected = [n_features + 1, n_children]
        file.expect(
            _array(file, sizes, np.int64).tolist() == expected
            and len(weights) == expected[0] * expected[1],
            f"a matrix of {expected[0]} x {expected[1]}",
            f"{sizes!r:.80}",
        )
        row, child = np.nonzero(weights.reshape(expected))
        return _split(row, child, weights[weights != 0], n_features, n_children)
    outer, inner, indptr, rows, child, data = _fields(file, fields, _SPARSE)
    file.expect(
        (outer, inner) == (n_features + 1, n_children), "a matrix that fits", f"{outer} x {inner}"
    )
    indptr, rows, child = (_array(file, part, np.int64) for part in (indptr, rows, child))
    weights = finite_weights(file, _array(file, data, np.float32))
    file.expect(
        len(indptr) == len(rows) + 1 and indptr[0] == 0 and bool((np.diff(indptr) > 0).all()),
        "offsets of rows that ascend from 0",
        "others",
    )
    file.expect(
        indptr[-1] == len(child) == len(weights), "an id and a weight for each offset", "others"
    )
    row = np.repeat(rows, np.diff(indptr))
    file.expect(
        bool((np.diff(row * n_children + child) > 0).all())
        and (len(row) == 0 or (row[-1] <= n_features and child.max() < n_children)),
        "ascending rows and children of the matrix",
        "others",
    )
    return _split(row, child, weights, n_features, n_children)


def _split(row: I64, child: I64, weights: F32, n_features: int, n_children: int) -> Chunk:
    """Return the chunk of weights at (row, child), sorted; row n_features is that of the bias."""
    bias = np.zeros(n_children, np.float32)
    n_weights = int(np.searchsorted(row, n_features))
    bias[child[n_weights:]] = weights[n_weights:]
    return Chunk.from_weights(row[:n_weights], child[:n_weights], weights[:n_weights], bias)
