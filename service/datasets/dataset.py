"""What a reader hands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model_store.names import NameTable, build_names, find_names
from service.kernels.text.sort_and_sum import sort_labels
from service.rows import LabelRows, SparseRows, offsets

N_IDS_MAX = 1 << 28
"""The most labels and the most features of a data set."""

N_ROWS_MAX = 1 << 31
"""The most rows of a data set."""


@dataclass(frozen=True)
class Dataset:
    """The rows of a data file. Exactly one of `rows`, `texts` and `named` is not None.

    source          the file's base name
    sha256          of its decompressed bytes (of both files of an .npz pair, one after the other)
    n_rows          how many, one at least
    rows            instances with feature ids
    texts           instances as text
    named           instances as values by feature name
    labels          the true labels as ids, as many rows
    unknown_labels  int32[n_rows], how many more labels a row has that the model of `labels=` does not know
    unknown_names   the names of these labels, or their numbers; each once
    label_names     the name of each id, when the file or a names file gives names and no model does
    warning         what may be wrong with the data, if something is
    """

    source: str
    sha256: str
    n_rows: int
    rows: SparseRows | None
    texts: list[str] | None
    named: list[dict[str, float]] | None
    labels: LabelRows
    unknown_labels: NDArray[np.int32]
    label_names: list[str] | None
    warning: str | None = None
    unknown_names: Sequence[str] = ()


def renumber_labels(
    labels: LabelRows, ids: NDArray[np.int32], n_labels: int
) -> tuple[LabelRows, NDArray[np.int32]]:
    """Return the labels with id i replaced by ids[i], and how many of each row were dropped.

    ids int32[labels.n_labels]: new ids below n_labels, -1 for a label to drop. Rows stay sorted.
    """
    mapped = ids[labels.indices]
    indptr, indices = _kept(labels.indptr, mapped >= 0, mapped)
    unknown = np.diff(labels.indptr) - np.diff(indptr)
    indices = indices[: sort_labels(indptr, indices)]
    return LabelRows(indptr, indices, n_labels), unknown.astype(np.int32)


def first_labels(labels: LabelRows, n_labels: int) -> tuple[LabelRows, NDArray[np.int32]]:
    """Return the labels below n_labels, of that many, and how many of each row were dropped."""
    indptr, indices = _kept(labels.indptr, labels.indices < n_labels, labels.indices)
    unknown = np.diff(labels.indptr) - np.diff(indptr)
    return LabelRows(indptr, indices, n_labels), unknown.astype(np.int32)


def first_features(rows: SparseRows, n_features: int) -> SparseRows:
    """Return the rows with the features below n_features, of that many."""
    is_kept = rows.indices < n_features
    indptr, indices = _kept(rows.indptr, is_kept, rows.indices)
    return SparseRows(indptr, indices, rows.values[is_kept], n_features)


def _kept(
    indptr: NDArray[np.int64], is_kept: NDArray[np.bool_], values: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the offsets and values of rows of which only some values are kept."""
    return offsets(is_kept)[indptr], values[is_kept]


def ids_in_model(names: list[str], model: NameTable) -> NDArray[np.int32]:
    """Return the id that a model gives each of these distinct names, -1 where it does not know it."""
    table = build_names(names)
    return find_names(model, table.utf8, table.offsets)


class Growing:
    """One array of unknown length; appending costs amortised constant time an element."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._array: NDArray[Any] = np.empty(1 << 10, dtype)
        self.n = 0

    def extend(self, more: NDArray[Any]) -> None:
        """Append the elements of `more`."""
        end = self.n + len(more)
        if end > len(self._array):
            # resize reallocates: large arrays are remapped by the system, not copied
            self._array.resize(max(end, len(self._array) * 3 // 2), refcheck=False)
        self._array[self.n : end] = more
        self.n = end

    def finish(self) -> NDArray[Any]:
        """Return the array, cut to its length; nothing can be appended after."""
        self._array.resize(self.n, refcheck=False)
        return self._array
