"""Import models of libpecos: the folder that XLinearModel.save writes.

It has param.json and ranker/. In ranker/ there are param.json and one folder for each level, from
0.model for the children of the root. A level has param.json, W.npz (features x nodes of the level)
and C.npz (nodes of the level x nodes of the level above), both sparse by columns. The last row of W
is that of the bias if `bias` is positive. Source: pecos/xmc/base.py and xlinear/model.py.
"""

import io
import zipfile
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import load_npz

from xylem.base import BadModel, offsets
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
from xylem_store import I64, IDS_MAX, Chunk, Link

# The link of each post-processor whose scores are multiplied along the path.
LINKS: dict[str, Link] = {"l2-hinge": "hinge2", "l3-hinge": "hinge3", "sigmoid": "logistic"}

LEVELS_MAX = 64  # the most levels of a tree


class _Level(NamedTuple):
    """One level of the tree.

    columns         the scorers of its nodes
    parent          int64[nodes], the node of the level above that each node belongs to
    n_parents       the number of nodes of the level above
    post_processor  how margins become scores, a key of LINKS
    """

    file: ModelFile
    columns: ForeignColumns
    parent: I64
    n_parents: int
    n_features: int
    post_processor: str
    bias: float


def read_pecos(files: ModelFiles) -> Imported:
    """Return the model in a folder of libpecos. Raises BadModel.

    Rows are not scaled, as in libpecos. Labels are the nodes of the last level.
    """
    files.read_settings("param.json").inner("__meta__").choice(
        "class_fullname", ("pecos.xmc.xlinear.model###XLinearModel",)
    )
    ranker = files.read_settings("ranker/param.json")
    ranker.choice("model", ("HierarchicalMLModel",))
    depth = ranker.integer("depth", 1, LEVELS_MAX)
    levels = [_read_level(files, f"ranker/{i}.model") for i in range(depth)]
    first = levels[0]
    last = levels[-1]
    n_parents = 1
    for i, level in enumerate(levels):
        folder = f"ranker/{i}.model"
        ranker.file.expect(
            level.n_parents == n_parents, f"{folder} below {n_parents} nodes", level.n_parents
        )
        is_alike = (level.n_features, level.post_processor) == (
            first.n_features,
            first.post_processor,
        )
        ranker.file.expect(
            is_alike,
            "one number of features and one post_processor for all levels",
            f"another in {folder}",
        )
        n_parents = len(level.parent)
    n_labels = len(last.parent)
    starts = np.cumsum([1] + [len(level.parent) for level in levels])
    labels = np.full(starts[-1], -1)
    labels[starts[-2] :] = np.arange(n_labels)

    def chunk_of(node: int, children: I64) -> Chunk:
        level = int(np.searchsorted(starts, node, "right"))
        return chunk_of_columns(levels[level].file, levels[level].columns, children - starts[level])

    parent = np.concatenate(
        [level.parent + (starts[i - 1] if i else 0) for i, level in enumerate(levels)]
    )
    tree = plant(
        last.file,
        Branches(
            offsets(np.bincount(parent, minlength=starts[-1])),
            np.argsort(parent, kind="stable") + 1,
            labels,
            0,
        ),
        chunk_of,
    )
    return Imported(
        trees=[tree],
        link=LINKS[last.post_processor],
        n_labels=n_labels,
        all_labels=True,
        n_features=last.n_features,
        norm="none",
        settings={
            "levels": depth,
            "bias": last.bias,
            "post_processor": last.post_processor,
        },
    )


def _read_level(files: ModelFiles, folder: str) -> _Level:
    settings = files.read_settings(f"{folder}/param.json")
    settings.choice("model", ("MLModel",))
    settings.file.expect(
        settings.fields.get("is_mmap") is not True,
        "the folder that it was compiled from",
        "is_mmap true",
    )
    post_processor = settings.inner("pred_kwargs").choice("post_processor", tuple(LINKS))
    bias = settings.number("bias")
    n_nodes = settings.integer("nr_labels", 1, IDS_MAX)
    n_parents = settings.integer("nr_codes", 1, IDS_MAX)
    n_features = settings.integer("nr_features", 1, IDS_MAX)
    weights_file, weights = _read_matrix(files, f"{folder}/W.npz", n_features + (bias > 0), n_nodes)
    tree_file, tree = _read_matrix(files, f"{folder}/C.npz", n_nodes, n_parents)
    parent = np.full(n_nodes, -1)
    parent[tree.indices] = np.repeat(np.arange(n_parents), np.diff(tree.indptr))
    tree_file.expect(
        len(tree.indices) == n_nodes and bool((parent >= 0).all()),
        f"each of {n_nodes} nodes below one node",
        "none or more for some",
    )
    return _Level(
        weights_file,
        split_bias(
            weights_file,
            (weights.indptr, weights.indices, weights.data),
            n_features,
            max(bias, 0.0),
        ),
        parent,
        n_parents,
        n_features,
        post_processor,
        bias,
    )


def _read_matrix(
    files: ModelFiles, name: str, n_rows: int, n_columns: int
) -> tuple[ModelFile, Any]:
    """Read a sparse matrix by columns; raise BadModel unless it is valid and of this shape."""
    file = files.read(name)
    matrix = _load(file)
    file.expect(matrix.format == "csc", "a matrix of format csc", matrix.format)
    file.expect(
        matrix.shape == (n_rows, n_columns), f"a matrix of {n_rows} x {n_columns}", matrix.shape
    )
    file.expect(matrix.dtype.kind == "f", "weights of a floating type", matrix.dtype)
    check_columns(file, matrix.indptr, matrix.indices, matrix.data, n_rows)
    return file, matrix


def _load(file: ModelFile) -> Any:
    """Return the sparse matrix of scipy in a file, whose arrays must not be compressed.

    Compressed arrays are refused, because a small file could fill the memory. Raises BadModel.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
            infos = archive.infolist()
        file.expect(
            all(info.compress_type == zipfile.ZIP_STORED for info in infos)
            and sum(info.file_size for info in infos) <= len(file.data),
            "arrays without compression",
            "others",
        )
        return load_npz(io.BytesIO(file.data))
    except (BadModel, MemoryError):
        raise
    except Exception as error:  # zipfile, numpy and scipy have no common base for "damaged"
        raise file.fault("a matrix saved by scipy.sparse.save_npz", f"damage: {error}") from error
