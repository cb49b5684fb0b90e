"""Vectors of labels: the representation of a label, by which labels are clustered, and the mean
row of a label, by which predictions are re-ranked.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xylem.base import Calls, LabelRows, SparseRows, Step, T, offsets
from xylem.trainers.kernels.cluster import add_projected
from xylem.trainers.source import RowSource, Tools, parts_with_progress
from xylem_store import F64, I32, I64

# Dimensions of the label vectors for k-means trees, if the rows may be read as a stream.
PROJECTED = 512

# The name of the stage in which label representations are computed, in reports of progress.
VECTORS = "label representations"

_PIECE = 1 << 20  # an item of work has about this many non-zeros of rows, or is one label


def matrix_of(rows: SparseRows) -> Any:
    """Return rows as csr_array[n_rows, n_features], on the same arrays."""
    return sparse.csr_array(
        (rows.values, rows.indices, rows.indptr), (rows.n_rows, rows.n_features)
    )


def label_sums(rows: SparseRows, labels: LabelRows) -> Any:
    """Return the weighted sum of the rows of each label: csr_array[n_labels, n_features].

    The dtype is that of the values; features ascend within a label. Cost: the non-zeros of each row
    once for each of its labels; memory of the result. Deterministic.
    """
    return _sums(rows, *rows_by_label(labels))


def _sums(rows: SparseRows, ptr: I64, label_rows: I32, weights: Any) -> Any:
    counts = np.ones(len(label_rows), np.float32) if weights is None else weights.labels
    counts = counts.astype(rows.values.dtype, copy=False)
    incidence = sparse.csr_array((counts, label_rows, ptr), shape=(len(ptr) - 1, rows.n_rows))
    sums = (incidence @ matrix_of(rows)).tocsr()
    sums.sort_indices()
    return sums


def squared_lengths(values: NDArray[Any], indptr: NDArray[Any]) -> F64:
    """Return the sum of squares of each compressed row, summed in double precision."""
    sums = np.zeros(len(indptr) - 1)
    filled = np.diff(indptr) > 0
    if filled.any():
        sums[filled] = np.add.reduceat(values.astype(np.float64) ** 2, indptr[:-1][filled])
    return sums


def _unit_values(values: NDArray[Any], indptr: NDArray[Any]) -> F64:
    """Return the values of compressed rows scaled to length 1; rows of zeros are not changed."""
    lengths = np.sqrt(squared_lengths(values, indptr))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.asarray(values * np.repeat(scale, np.diff(indptr)), np.float64)


def _represent(
    item: tuple[int, int],
    rows: SparseRows,
    ptr: I64,
    label_rows: I32,
    weights: Any,
) -> SparseRows:
    """Return the representations of the labels item[0] .. item[1] - 1.

    ptr, label_rows, weights  the rows of each label, from `rows_by_label`
    """
    ptr = ptr[item[0] : item[1] + 1]
    part = slice(ptr[0], ptr[-1])
    part_weights = weights and weights._replace(labels=weights.labels[part])
    return unit_vectors(_sums(rows, ptr - ptr[0], label_rows[part], part_weights))


def label_representations(rows: SparseRows, labels: LabelRows, tools: Tools) -> SparseRows:
    """Return the weighted sum of the rows of each label, scaled to length 1.

    The vector is empty for a label that no row with features carries.

    Source: Lin, Liu and Lin 2024, section 2. Cost: that of `label_sums`. Deterministic.
    """
    ptr, label_rows, weights = rows_by_label(labels)
    n_values = np.diff(rows.indptr)[label_rows]
    bounds = pieces_of(offsets(n_values)[ptr], _PIECE)
    return make_vectors(
        Calls(_represent, (rows, ptr, label_rows, weights)), list(pairwise(bounds)), tools
    )


def pieces_of(sums: I64, size: int) -> list[int]:
    """Return the bounds of pieces of consecutive labels, ascending, from 0 to n_labels.

    sums  int64[n_labels + 1]  cumulative sizes of the labels
    size  about the size of a piece; a piece has at least one label
    """
    last = np.flatnonzero(np.diff(sums // size)) + 1
    return sorted({0, *last.tolist(), len(sums) - 1})


def make_vectors(step: Step[T, SparseRows], items: Sequence[T], tools: Tools) -> SparseRows:
    """Run a step that computes label representations, and join its results.

    items  each stands for some labels, in the order of the labels
    """
    tools.progress(VECTORS, 0, len(items))
    return SparseRows.join(tools.collect(VECTORS, step, items))


def unit_vectors(sums: Any) -> SparseRows:
    """Return the rows of csr_array[n_labels, n_features], sorted, scaled to length 1."""
    indptr = sums.indptr.astype(np.int64)
    return SparseRows(
        indptr,
        sums.indices.astype(np.int32),
        _unit_values(sums.data, indptr).astype(np.float32),
        sums.shape[1],
    )


def projected_vectors(source: RowSource, tools: Tools) -> SparseRows:
    """Return the sum of the rows of each label, projected to PROJECTED dimensions, at length 1."""
    sums = np.zeros((len(source.census.label_rows), PROJECTED), np.float32)
    for part in parts_with_progress(source, tools.progress, VECTORS):
        add_projected(*part, sums)
    lengths = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    np.divide(sums, lengths, out=sums, where=lengths > 0)
    vectors = sparse.csr_array(sums)
    return SparseRows(
        vectors.indptr.astype(np.int64), vectors.indices.astype(np.int32), vectors.data, PROJECTED
    )


def rerank_arrays(
    rows: SparseRows, labels: LabelRows, alpha: float, gamma: float
) -> dict[str, NDArray[Any]]:
    """Return the mean row mu_l of each label l, and the parameters of the re-ranking.

    Source: Jain, Prabhu, Varma 2016, "Extreme multi-label loss functions", section 4 (the
    tail-label classifiers of PFastreXML), as its authors' code has it: a prediction re-scores a
    label that the trees give the score P with P^alpha * exp(-gamma / 2 * |x - mu_l|^2)^(1 - alpha),
    x scaled to length 1.

    rows    any scaling: a row counts at length 1; a row without features counts as 0 in the mean
    labels  the labels of these rows; a label without rows has an empty mean
    alpha   in [0, 1]; 1: the trees alone
    gamma   >= 0, finite

    Returns "tail/ptr" int64[K + 1], "tail/features" int32[nnz] ascending within a label,
    "tail/values" float32[nnz], "tail/norm2" float32[K] = |mu_l|^2 and "tail/parameters" float32[2]
    = (alpha, gamma). Cost: the non-zeros of each row once for each of its labels; memory of the
    result. Deterministic.
    """
    scaled: Any = _unit_values(rows.values, rows.indptr)
    sums = label_sums(rows._replace(values=scaled), labels)
    values = sums.data / np.repeat(
        np.maximum(np.bincount(labels.indices, minlength=labels.n_labels), 1), np.diff(sums.indptr)
    )
    return {
        "tail/ptr": sums.indptr.astype(np.int64),
        "tail/features": sums.indices.astype(np.int32),
        "tail/values": values.astype(np.float32),
        "tail/norm2": squared_lengths(values, sums.indptr).astype(np.float32),
        "tail/parameters": np.array([alpha, gamma], np.float32),
    }


def rows_by_label(labels: LabelRows) -> tuple[I64, I32, Any]:
    """Return the rows of each label: label k has rows[ptr[k] : ptr[k + 1]], in ascending order.

    The first array is ptr, int64[n_labels + 1]; the second is rows, int32. The weights of labels
    are in the order of the latter.
    """
    weights = labels.weights
    entries = np.ones(len(labels.indices), np.uint8) if weights is None else weights.labels
    by_label = sparse.csr_array(
        (entries, labels.indices, labels.indptr), (labels.n_rows, labels.n_labels)
    ).tocsc()
    return (
        by_label.indptr.astype(np.int64),
        by_label.indices.astype(np.int32),
        weights and weights._replace(labels=by_label.data),
    )
