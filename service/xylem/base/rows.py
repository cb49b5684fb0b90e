"""Sparse rows: readers and features produce them, engines and trainers consume them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xylem.base.data_report import DataReport
from xylem.base.errors import BadData, BadParameter
from xylem.base.fields import TextFields

# The arrays indptr, indices and values of rows, as kernels take and return them.
RowArrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


class SparseRows(NamedTuple):
    """Instances as compressed sparse rows.

    indptr      int64[n + 1]
    indices     int32[nnz]    features, strictly ascending within a row, in [0, n_features)
    values      float32[nnz]  finite
    n_features  int
    tail        int           this many of the last features are known to be in every row: kernels
                              of trainers sum them without look-ups
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    n_features: int
    tail: int = 0

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    @staticmethod
    def join(parts: Sequence[SparseRows]) -> SparseRows:
        """Return the rows of all parts, one after the other; a single part is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        indices, values = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        return SparseRows(
            _joined(parts), indices, values, parts[0].n_features, min(part.tail for part in parts)
        )

    def cut(self, first: int, last: int) -> SparseRows:
        """Return rows first .. last - 1; indices and values are views."""
        indptr, entries = _cut(self.indptr, first, last)
        return SparseRows(indptr, self.indices[entries], self.values[entries], *self[3:])

    def take(self, chosen: NDArray[Any]) -> SparseRows:
        """Return the rows at the positions `chosen`, in this order."""
        indptr, entries = _select(self.indptr, chosen)
        return SparseRows(indptr, self.indices[entries], self.values[entries], *self[3:])

    def without_tail(self) -> SparseRows:
        """Return the rows without the features of the tail."""
        if not self.tail:
            return self
        is_word = self.indices < self.n_features - self.tail
        return SparseRows(
            self.indptr - self.tail * np.arange(len(self.indptr)),
            self.indices[is_word],
            self.values[is_word],
            self.n_features - self.tail,
        )


# No rows: a placeholder until there are rows.
NO_ROWS = SparseRows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 1)


# The bounds of weights that are not 0: products and sums of such weights are finite in 32 bits.
WEIGHT_MIN = 1e-6
WEIGHT_MAX = 1_000_000


class RowWeights(NamedTuple):
    """How much rows and their labels count; a row of weight k counts as k equal rows.

    rows    float32[n]    > 0
    labels  float32[nnz]  > 0: the weight of the row times that of its label. The row counts so much
            where it is positive for the label, and else as in `rows`

    The product is stored because hardly anything needs the weight of a label alone.
    """

    rows: NDArray[np.float32]
    labels: NDArray[np.float32]

    def copies(self, random: np.random.Generator) -> NDArray[np.int64]:
        """Return rows as often as their weights say; a fraction is the probability of one more."""
        counts = np.floor(self.rows + random.random(len(self.rows))).astype(np.int64)
        return np.repeat(np.arange(len(self.rows)), counts)


class LabelRows(NamedTuple):
    """The true labels of instances as compressed sparse rows of ids.

    indptr    int64[n + 1]
    indices   int32[nnz]   labels, strictly ascending within a row, in [0, n_labels)
    n_labels  int
    weights   of the rows and labels; None: all are 1. Kernels take labels without weights only,
              as they are compiled for them
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    n_labels: int
    weights: RowWeights | None = None

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    @staticmethod
    def join(parts: Sequence[LabelRows]) -> LabelRows:
        """Return the rows of all parts, one after the other; a single part is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        all_weights = (part.all_weights() for part in parts)
        weights = (
            RowWeights(*map(np.concatenate, zip(*all_weights, strict=True)))
            if any(part.weights for part in parts)
            else None
        )
        return LabelRows(
            _joined(parts),
            np.concatenate([part.indices for part in parts]),
            parts[0].n_labels,
            weights,
        )

    def cut(self, first: int, last: int) -> LabelRows:
        """Return rows first .. last - 1; indices are a view."""
        indptr, entries = _cut(self.indptr, first, last)
        return self._entries(indptr, entries, slice(first, last))

    def take(self, chosen: NDArray[Any]) -> LabelRows:
        """Return the rows at the positions `chosen`, in this order."""
        indptr, entries = _select(self.indptr, chosen)
        return self._entries(indptr, entries, chosen)

    @staticmethod
    def weight_of(value: object) -> float:
        """Return a value as a weight. Raises ValueError, with what was expected and found."""
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            number = float(value)
            if number == 0 or WEIGHT_MIN <= number <= WEIGHT_MAX:
                return number
        raise ValueError(
            f"expected a weight of 0, or from {WEIGHT_MIN:f} to {WEIGHT_MAX:,}, "
            f"found {str(value)!r:.40}"
        )

    def all_weights(self) -> RowWeights:
        """Return the weights, which are 1 if none are stored."""
        return self.weights or RowWeights(
            np.ones(self.n_rows, np.float32), np.ones(len(self.indices), np.float32)
        )

    def weighed(
        self, rows: NDArray[np.float32], labels: NDArray[np.float32] | None = None
    ) -> LabelRows:
        """Return the labels with weights of rows, and of labels (1 if `labels` is None)."""
        of_labels = np.repeat(rows, np.diff(self.indptr))
        return self._replace(
            weights=RowWeights(rows, of_labels if labels is None else of_labels * labels)
        )

    def weights_at(self, ptr: NDArray[Any]) -> Any:
        """Return the weight of each entry's row, float64[ptr[-1]]; None if all are 1.

        ptr  int64[n + 1], the offsets of the entries of each row
        """
        return self.weights and np.repeat(self.weights.rows.astype(float), np.diff(ptr))

    def refuse_weights(self, operation: str) -> None:
        """Raise BadParameter if rows or labels have weights, which an operation cannot use."""
        if self.weights is not None:
            raise BadParameter(f"{operation}: expected rows without weights, found weights")

    def select(self, is_selected: NDArray[Any]) -> LabelRows:
        """Return the rows with the selected labels only, bool[nnz]."""
        return self._entries(offsets(is_selected)[self.indptr], is_selected, slice(None))

    def _entries(self, indptr: NDArray[np.int64], entries: Any, rows: Any) -> LabelRows:
        """Return the labels at some entries, which are those of some rows."""
        weights = self.weights
        return LabelRows(
            indptr,
            self.indices[entries],
            self.n_labels,
            weights and RowWeights(weights.rows[rows], weights.labels[entries]),
        )


@dataclass(frozen=True)
class Dataset:
    """The rows of a data file. Exactly one of `rows`, `texts` and `named_rows` is not None.

    source          the file's base name
    sha256          of the file's decompressed bytes (for an .npz pair, of both files in a row)
    n_rows          the number of rows, at least one
    labels          the true labels of each row, as ids
    unknown_labels  int32[n_rows], the number of further labels of each row that the model, whose
                    labels the reader was given, does not have
    rows            instances with feature ids
    texts           instances as text
    named_rows      instances as values by feature name
    unknown_names   the names of the unknown labels, or their numbers; each once
    label_names     the name of each id, if the file or a names file has names and no model is given
    warning         a sentence about a possible fault in the data; None if nothing was noticed
    report          what the reader has understood of the file; None: it was not counted
    fields          the columns that were named, of which the texts were joined
    vectors         float32[n_rows, numbers], a vector beside each text; None: there are none
    """

    source: str
    sha256: str
    n_rows: int
    labels: LabelRows
    unknown_labels: NDArray[np.int32]
    rows: SparseRows | None = None
    texts: list[str] | None = None
    named_rows: list[dict[str, float]] | None = None
    label_names: list[str] | None = None
    warning: str | None = None
    unknown_names: Sequence[str] = ()
    report: DataReport | None = None
    fields: TextFields = field(default_factory=TextFields)
    vectors: NDArray[np.float32] | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the labels; their numbers if they have no names."""
        return self.label_names or [str(label) for label in range(self.labels.n_labels)]

    def with_weight(self) -> Dataset:
        """Return the rows whose weight is not 0."""
        weights = self.labels.weights
        return (
            self
            if weights is None or weights.rows.all()
            else self.take(np.flatnonzero(weights.rows))
        )

    def with_occurring_labels(self) -> Dataset:
        """Return the rows with the labels that occur alone, in the same order.

        A member that is trained on some of the rows must not list the labels of the others: a
        ranker would learn that a listed label without rows is true.
        """
        occurring, indices = np.unique(self.labels.indices, return_inverse=True)
        names = self.names
        labels = self.labels._replace(indices=indices.astype(np.int32), n_labels=len(occurring))
        return replace(self, labels=labels, label_names=[names[i] for i in occurring.tolist()])

    def take(self, chosen: NDArray[np.int64]) -> Dataset:
        """Return the rows at the positions `chosen`; ids of labels and features stay the same."""
        positions = chosen.tolist()
        return replace(
            self,
            n_rows=len(chosen),
            rows=None if self.rows is None else self.rows.take(chosen),
            texts=None if self.texts is None else [self.texts[i] for i in positions],
            named_rows=None if self.named_rows is None else [self.named_rows[i] for i in positions],
            labels=self.labels.take(chosen),
            unknown_labels=self.unknown_labels[chosen],
            vectors=None if self.vectors is None else self.vectors[chosen],
        )


def offsets(counts: Iterable[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Return int64[n + 1]: the offset of each of consecutive blocks of these sizes, and the end.

    A list is summed in Python: numpy's cumsum takes five times as long for the few blocks of a
    request.
    """
    if not isinstance(counts, np.ndarray):
        return np.array([0, *accumulate(counts)], np.int64)
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def writeable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself, or a copy if it is read-only.

    numba would compile each kernel again for read-only arrays.
    """
    return array if array.flags.writeable else array.copy()


def ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the concatenated ranges starts[i], starts[i] + 1, .., of lengths[i] numbers each."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


def inverse(places: NDArray[Any], n: int) -> NDArray[np.int32]:
    """Return int32[n]: for each number below n its index in `places`, or -1 if it is not there.

    Negative places are ignored.
    """
    positions = np.full(n, -1, np.int32)
    present = np.flatnonzero(places >= 0)
    positions[places[present]] = present
    return positions


class Growing:
    """An array whose length is not known in advance; appending takes amortised constant time."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._array: NDArray[Any] = np.empty(1 << 10, dtype)
        self.n = 0

    def extend(self, elements: NDArray[Any]) -> None:
        """Append all `elements`."""
        end = self.n + len(elements)
        if end > len(self._array):
            # resize uses realloc: the system remaps large arrays instead of copying them
            self._array.resize(max(end, len(self._array) * 3 // 2), refcheck=False)
        self._array[self.n : end] = elements
        self.n = end

    def finish(self) -> NDArray[Any]:
        """Return the array, cut to its length; nothing can be appended afterwards."""
        self._array.resize(self.n, refcheck=False)
        return self._array


def _joined(parts: Sequence[SparseRows] | Sequence[LabelRows]) -> NDArray[np.int64]:
    # np.diff takes five times as long for a part of one row
    return offsets(np.concatenate([part.indptr[1:] - part.indptr[:-1] for part in parts]))


def _cut(indptr: NDArray[np.int64], first: int, last: int) -> tuple[NDArray[np.int64], slice]:
    """Return the offsets of rows first .. last - 1, and the slice of their entries."""
    part = indptr[first : last + 1]
    return part - part[0], slice(int(part[0]), int(part[-1]))


def _select(
    indptr: NDArray[np.int64], chosen: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of the chosen rows side by side, and the indices of their entries."""
    sizes = indptr[chosen + 1] - indptr[chosen]
    return offsets(sizes), ranges(indptr[chosen], sizes)


NUMBERS_MAX = 4096  # the most numbers of a vector


def checked_vectors(
    matrix: NDArray[Any], place: str, n_rows: int | None = None, first: int = 0
) -> NDArray[np.float32]:
    """Return vectors of training rows, or of a file, as float32[n, numbers]. Raises BadData.

    place   what errors call the matrix
    n_rows  the number of texts; None: any
    first   the number of the first row, for errors
    """
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise BadData(
            f"{place}: expected a matrix of floats, a row for each text, found "
            f"{matrix.dtype}{list(matrix.shape)}"
        )
    if n_rows is not None and len(matrix) != n_rows:
        raise BadData(f"{place}: expected {n_rows} rows, as many as texts, found {len(matrix)}")
    if not 1 <= matrix.shape[1] <= NUMBERS_MAX:
        raise BadData(
            f"{place}: expected vectors of 1 to {NUMBERS_MAX} numbers, found {matrix.shape[1]}"
        )
    with np.errstate(over="ignore"):  # a number too large for 32 bits becomes infinite: refused
        vectors = np.ascontiguousarray(matrix, np.float32)
    if not np.isfinite(vectors).all():
        row, position = np.argwhere(~np.isfinite(vectors))[0].tolist()
        raise BadData(
            f"{place}: row {first + row}: expected a vector of finite 32-bit numbers, "
            f"found {vectors[row, position]}"
        )
    return vectors
