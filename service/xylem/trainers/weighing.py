"""Weighing features by inverse document frequency, for rows without weights of their own."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from xylem.base import SparseRows, offsets
from xylem_store import F32, F64, I32, Chunk

PART_ROWS = 1 << 16

_FEW = 100

# Values of a row that differ by no more than this share count as equal: they are the same number,
# divided by the length of the row.
_ALIKE = 1e-6


class Weighed(NamedTuple):
    """Weighed rows, on which a trainer trains.

    Weights that are trained on them can be converted to weights for the original rows, and back.

    rows   the rows, each value multiplied by the factor of its feature
    scale  float32[D]  the factors; None: all are 1
    """

    rows: SparseRows
    scale: F32 | None

    def plain(self, features: I32, weights: F32) -> F32:
        """Return weights that score the original rows as these weights score `rows`.

        features  the feature of each weight
        """
        return weights if self.scale is None else weights * self.scale[features]

    def plain_chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk that scores the original rows as this one scores `rows`."""
        return (
            chunk
            if self.scale is None
            else chunk._replace(weight=self.plain(chunk.feature, chunk.weight))
        )

    def weighed_chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk that scores `rows` as this one scores the original rows."""
        return (
            chunk
            if self.scale is None
            else chunk._replace(
                weight=(chunk.weight / self.scale[chunk.feature]).astype(np.float32)
            )
        )


class FeatureCounts(NamedTuple):
    """The counts of some rows from which the factors of features are computed.

    If rows have weights, numbers and sums are weighted.

    n_rows   number of rows
    alike    whether within each row all values that are not 0 have the same size
    with_it  int64[D]    number of rows that have the feature; float64 if rows have weights
    squares  float64[D]  sum of the squares of its values
    """

    n_rows: float
    alike: bool
    with_it: NDArray[Any]
    squares: F64

    def __add__(self, other: Self) -> Self:  # type: ignore[override]
        return self._replace(
            n_rows=self.n_rows + other.n_rows,
            alike=self.alike and other.alike,
            with_it=self.with_it + other.with_it,
            squares=self.squares + other.squares,
        )

    def factors(self, idf: str) -> F32 | None:
        """Return float32[D], the factor of each feature (see `weigh`); None if all are 1."""
        if not self.with_it.any() or (idf == "auto" and not self.alike):
            return None
        factors = np.log((1.0 + self.n_rows) / (1.0 + self.with_it)) + 1.0
        factors *= np.sqrt(self.squares.sum() / (self.squares @ factors**2))
        return np.asarray(factors, np.float32)


def count_features(rows: SparseRows, weights: Any = None) -> FeatureCounts:
    """Return the counts of rows. Cost: a few passes over the values."""
    if weights is not None:
        return _count_weighted(rows, weights.rows.astype(np.float64))
    all_features = np.arange(rows.n_features)
    squares: Any = np.zeros(rows.n_features)
    with_it = np.zeros(rows.n_features, np.int64)
    for part in parts_of(rows):
        with_it += np.bincount(part.indices[part.values != 0], minlength=rows.n_features)
        # starts from the sums so far, so that the bits are those of a sum over all rows at once
        terms = np.concatenate([squares, np.abs(part.values).astype(np.float64) ** 2])
        squares = np.bincount(np.concatenate([all_features, part.indices]), terms, rows.n_features)
    return FeatureCounts(rows.n_rows, all(map(_alike, parts_of(rows))), with_it, squares)


def _count_weighted(rows: SparseRows, weights: F64) -> FeatureCounts:

    squares = np.zeros(rows.n_features)
    with_it = np.zeros(rows.n_features)
    for number, part in enumerate(parts_of(rows)):
        first = number * PART_ROWS
        of_value = np.repeat(weights[first : first + part.n_rows], np.diff(part.indptr))
        with_it += np.bincount(part.indices, of_value * (part.values != 0), rows.n_features)
        of_value *= part.values.astype(np.float64) ** 2
        squares += np.bincount(part.indices, of_value, rows.n_features)
    return FeatureCounts(float(weights.sum()), all(map(_alike, parts_of(rows))), with_it, squares)


def scale_features(rows: SparseRows, scale: F32 | None, in_place: bool = False) -> SparseRows:
    """Return rows with each value multiplied by the factor of its feature."""
    if scale is None:
        return rows
    values = rows.values if in_place else np.empty_like(rows.values)
    for part, out in zip(parts_of(rows), parts_of(rows._replace(values=values)), strict=True):
        np.multiply(part.values, scale[part.indices], out=out.values)
    return rows._replace(values=values)


def weigh(rows: SparseRows, idf: str, weights: Any = None, *, in_place: bool = False) -> Weighed:
    """Multiply each feature by its inverse document frequency,
    ln((1 + n) / (1 + rows with it)) + 1.

    The rows are not scaled to length 1 afterwards, so that the factors can be moved into the
    weights of linear scorers. With an L2 penalty, this is a prior that allows larger weights for
    rare features. A common factor keeps the sum of squares of all values, so that a cost has the
    same effect. If the values already contain the frequencies, as those of tf-idf do, weighing them
    again lowers the precision. Therefore `auto` leaves all rows as they are unless the values
    within every row have the same size (docs/trainers/label-tree.md has figures).

    idf       auto, yes or no
    weights   of the rows: one of weight k counts as k rows; None: all are 1
    in_place  whether to overwrite the values instead of copying them

    Cost: a few passes over the values. Deterministic.
    """
    words = rows.without_tail()  # the values of a tail say nothing about those of words
    # in most data whose values differ, the first rows already show it
    if idf == "auto" and not _alike(words.cut(0, min(_FEW, words.n_rows))):
        idf = "no"
    scale = None if idf == "no" else count_features(words, weights).factors(idf)
    scale = with_tail(scale, rows.tail)
    return Weighed(scale_features(rows, scale, in_place), scale)


def with_tail(scale: F32 | None, tail: int) -> F32 | None:
    """Return factors of words with those of the tail behind them, which are 1."""
    return None if scale is None else np.append(scale, np.ones(tail, np.float32))


def parts_of(rows: SparseRows) -> Iterator[SparseRows]:
    """Yield the rows in parts of PART_ROWS, which bounds the size of intermediate results."""
    for first in range(0, rows.n_rows, PART_ROWS):
        yield rows.cut(first, min(first + PART_ROWS, rows.n_rows))


def _alike(rows: SparseRows) -> bool:
    """Return whether within each row all values that are not 0 have the same size."""
    sizes = np.abs(rows.values)
    used = sizes > 0
    ends = offsets(used)[rows.indptr]
    used_sizes = sizes[used]
    starts = ends[:-1][np.diff(ends) > 0]
    if not len(used_sizes):
        return True
    largest = np.maximum.reduceat(used_sizes, starts)
    return bool((np.minimum.reduceat(used_sizes, starts) >= largest * np.float32(1 - _ALIKE)).all())
