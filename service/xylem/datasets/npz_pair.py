"""Reader of a pair of scipy sparse matrices: features in `NAME.X.npz`, labels in `NAME.Y.npz`."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from xylem.base import BadData, LabelRows, SparseRows
from xylem.datasets.dataset import N_IDS_MAX, N_ROWS_MAX, sorted_labels
from xylem.datasets.stream import DataFile, Progress
from xylem.engine import sort_and_sum_rows
from xylem_store import I32, I64

_KEYS = ("format", "shape", "indptr", "indices", "data")

# An array of at most this size is unpacked although its size is wrong: later checks refuse it.
_CHECKED_SIZE_MIN = 1024


def partner(path: Path) -> Path:
    """Return the label file that belongs to a feature file: `train.Y.npz` for `train.X.npz`.

    Both names may end in `.gz` or `.zst`.

    Raises BadData if the name of `path` has another ending.
    """
    for suffix in (".X.npz", ".X.npz.gz", ".X.npz.zst"):
        if path.name.endswith(suffix):
            return path.with_name(path.name.removesuffix(suffix) + suffix.replace("X", "Y"))
    raise BadData(
        f"{path}: expected a pair of files, NAME.X.npz (given) and NAME.Y.npz, found another name"
    )


def read_npz(
    path: Path, n_labels: int | None, n_features: int | None, on_progress: Progress | None
) -> tuple[SparseRows, LabelRows, str]:
    """Read both matrices as `scipy.sparse.save_npz` writes CSR: rows are instances.

    Every entry of the label matrix that is not zero is a label. Repeated features of a row are
    summed. The sizes are `n_labels` and `n_features` (those of a model), which the matrices' shapes
    may not exceed, or, where they are None, the shapes. No pickle is ever read. Raises BadData.
    Memory: the files and what is in them. Returns (rows, labels, the sha256 of both files).
    """
    partner_path = partner(path)
    features_file = DataFile(path, on_progress)
    indptr, indices, data, width = _read_matrix(features_file, n_features)
    with np.errstate(over="ignore"):
        values = data.astype(np.float32)
    _, bad_row = sort_and_sum_rows(indptr, indices, values)
    if bad_row >= 0:
        raise features_file.fault(
            None, f"row {bad_row}: expected values that are finite in 32 bits, found another"
        )
    n_pairs = indptr[-1]
    rows = SparseRows(indptr, indices[:n_pairs], values[:n_pairs], width)
    labels_file = DataFile(partner_path, on_progress, previous=features_file)
    indptr, indices, data, width = _read_matrix(labels_file, n_labels)
    if data.dtype.kind == "f" and np.isnan(data).any():
        raise labels_file.fault(None, "expected numbers in data, found nan")
    labels = sorted_labels(LabelRows(indptr, indices, width).select(data != 0))
    if rows.n_rows != labels.n_rows:
        raise labels_file.fault(
            None, f"expected {rows.n_rows} rows as in {path.name}, found {labels.n_rows}"
        )
    return rows, labels, labels_file.sha256


def _read_matrix(file: DataFile, n_columns_max: int | None) -> tuple[I64, I32, NDArray[Any], int]:
    """Return (indptr, indices, data, number of columns) of a CSR matrix, checked, as copies.

    n_columns_max  the number of columns returned, and the most that the matrix may have; None: as
                   many as it has
    """
    _, shape, indptr, indices, data = _read_arrays(file)
    if fault := _matrix_fault(shape, indptr, indices, data, n_columns_max):
        raise file.fault(None, fault)
    return (
        indptr.astype(np.int64),
        indices.astype(np.int32),
        data,
        int(shape[1] if n_columns_max is None else n_columns_max),
    )


def _matrix_fault(
    shape: NDArray[Any],
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: NDArray[Any],
    n_columns_max: int | None,
) -> str:
    """Return the fault of the arrays of a CSR matrix; '' if they are valid."""
    if any(array.ndim != 1 for array in (shape, indptr, indices, data)):
        return "expected arrays in one dimension, found others"
    if any(array.dtype.kind != "i" for array in (shape, indptr, indices)):
        return "expected integers in shape, indptr and indices, found others"
    if data.dtype.kind not in "biuf":
        return f"expected numbers in data, found {data.dtype}"
    if len(shape) != 2 or not 1 <= shape[0] <= N_ROWS_MAX or not 0 <= shape[1] <= N_IDS_MAX:
        return (
            f"expected 1 to {N_ROWS_MAX} rows and at most {N_IDS_MAX} columns, found "
            f"{shape[:4].tolist()}"
        )
    if n_columns_max is not None and shape[1] > n_columns_max:
        return (
            f"expected at most the {n_columns_max} columns of the model or names file, "
            f"found {shape[1]}"
        )
    if len(indptr) != shape[0] + 1 or indptr[0] != 0 or bool((indptr[1:] < indptr[:-1]).any()):
        return f"expected {shape[0] + 1} ascending offsets in indptr, the first one 0, found others"
    if not indptr[-1] == len(indices) == len(data):
        return f"expected {indptr[-1]} indices and data, found {len(indices)} and {len(data)}"
    if len(indices) and (indices.min() < 0 or indices.max() >= shape[1]):
        return f"expected columns in [0, {shape[1]}), found {indices.min()} to {indices.max()}"
    return ""


def _read_arrays(file: DataFile) -> list[NDArray[Any]]:
    """Return the arrays of _KEYS in a .npz file. Raises BadData."""
    packed = b"".join(file.blocks())
    damage = "expected a matrix saved by scipy.sparse.save_npz, found damage"
    if not packed.startswith(b"PK"):
        raise file.fault(None, f"{damage}: it begins with {packed[:4]!r}")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
            if fault := _sizes_fault(archive):
                raise file.fault(None, fault)
            return [archive[key] for key in _KEYS]
    except (BadData, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and numpy have no common base for "damaged"
        raise file.fault(None, f"{damage}: {error}") from error


def _sizes_fault(archive: NpzFile) -> str:
    """Return the fault of the arrays' sizes; '' if they fit one matrix.

    It reads the sizes in the arrays' headers before the long arrays are unpacked, because a
    megabyte of a file can hold gigabytes of zeros.
    """
    if "format" in archive:
        kind = (
            b"several strings"
            if _size(archive, "format") > 1
            else archive["format"].tobytes().replace(b"\0", b"")
        )
        if kind != b"csr":
            return f"expected a matrix of format csr (X.tocsr()), found {kind[:20]!r}"
    if missing := [key for key in _KEYS if key not in archive]:
        return f"expected the arrays {', '.join(_KEYS)} in it, found no {missing[0]}"
    if _size(archive, "shape") > _CHECKED_SIZE_MIN:
        return f"expected a shape of two numbers, found {_size(archive, 'shape')}"
    shape = archive["shape"]
    n_offsets = _size(archive, "indptr")
    if shape.size and n_offsets > int(shape.flat[0]) + 1:
        return f"expected {int(shape.flat[0]) + 1} ascending offsets in indptr, found {n_offsets}"
    indptr = archive["indptr"]
    n_pairs = int(indptr.flat[-1]) if indptr.size and indptr.dtype.kind == "i" else 0
    sizes = _size(archive, "indices"), _size(archive, "data")
    if max(sizes) > max(n_pairs, _CHECKED_SIZE_MIN):
        return f"expected {n_pairs} indices and data, found {sizes[0]} and {sizes[1]}"
    return ""


def _size(archive: NpzFile, key: str) -> int:
    """Return the number of elements of an array, according to its header."""
    assert archive.zip is not None  # it is None only after the archive was closed
    with archive.zip.open(f"{key}.npy") as member:
        read_header = (
            read_array_header_1_0
            if np.lib.format.read_magic(member) == (1, 0)
            else read_array_header_2_0
        )
        return math.prod(read_header(member)[0])
