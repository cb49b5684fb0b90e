"""Weighing features by how rare they are, for rows that only say which features they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from xylem.base import SparseRows, offsets
from xylem_store import F32, F64, I32, I64, Chunk

PART_ROWS = 1 << 16

_FEW = 100

_ALIKE = 1e-6
"""Values of a row that differ by no more than this share are the same
number scaled to the row's length.
"""


class Weighed(NamedTuple):
    """Rows as a trainer takes them, and the way back to weights for the rows as they were.

    rows   with each value multiplied by the factor of its feature
    scale  float32[D]: these factors; None: all are 1
    """

    rows: SparseRows
    scale: F32 | None

    def plain(self, features: I32, weights: F32) -> F32:
        """Return the weights that give the rows as they were what these
        give `rows`; one feature a weight.
        """
        return weights if self.scale is None else weights * self.scale[features]

    def plain_chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk with such weights."""
        return chunk._replace(weight=self.plain(chunk.feature, chunk.weight))

    def weighed_chunk(self, chunk: Chunk) -> Chunk:
        """Return the chunk that gives `rows` what this one gives the rows as they were."""
        if self.scale is None:
            return chunk
        factors = self.scale[chunk.feature]
        return chunk._replace(weight=(chunk.weight / factors).astype(np.float32))


class FeatureCounts(NamedTuple):
    """What is counted of rows, all of them or a block, to weigh their features.

    n_rows   how many rows
    alike    whether the values of each row but zeros are equal in size
    with_it  int64[D]    rows that have the feature
    squares  float64[D]  the sum of squares of its values
    """

    n_rows: int
    alike: bool
    with_it: I64
    squares: F64

    def __add__(self, other: FeatureCounts) -> FeatureCounts:  # type: ignore[override]
        """Return the counts of both."""
        sums = self.with_it + other.with_it, self.squares + other.squares
        return FeatureCounts(self.n_rows + other.n_rows, self.alike and other.alike, *sums)

    def factors(self, idf: str) -> F32 | None:
        """Return float32[D], the factor of each feature as `weigh` says; None: all are 1."""
        if not self.with_it.any() or (idf == "auto" and not self.alike):
            return None
        factors = np.log((1.0 + self.n_rows) / (1.0 + self.with_it)) + 1.0
        factors *= np.sqrt(self.squares.sum() / (self.squares @ factors**2))
        rounded: F32 = factors.astype(np.float32)
        return rounded


def count_features(rows: SparseRows) -> FeatureCounts:
    """Return the counts of rows. Cost: some passes over the values."""
    every = np.arange(rows.n_features)
    squares: Any = np.zeros(rows.n_features)
    with_it = np.zeros(rows.n_features, np.int64)
    for part in parts_of(rows):
        with_it += np.bincount(part.indices[part.values != 0], minlength=rows.n_features)
        # the sums go on as if the rows were one part
        terms = np.concatenate([squares, np.abs(part.values).astype(np.float64) ** 2])
        squares = np.bincount(np.concatenate([every, part.indices]), terms, rows.n_features)
    return FeatureCounts(rows.n_rows, all(map(_alike, parts_of(rows))), with_it, squares)


def scale_features(rows: SparseRows, scale: F32 | None, in_place: bool = False) -> SparseRows:
    """Return rows with each value multiplied by the factor of its feature."""
    if scale is None:
        return rows
    values = rows.values if in_place else np.empty_like(rows.values)
    for part, out in zip(parts_of(rows), parts_of(rows._replace(values=values)), strict=True):
        np.multiply(part.values, scale[part.indices], out=out.values)
    return rows._replace(values=values)


def weigh(rows: SparseRows, idf: str, in_place: bool = False) -> Weighed:
    """Multiply each feature by its inverse document frequency,
    ln((1 + n) / (1 + rows with it)) + 1.

    Rows are not scaled to their length again, so that the factors can go into the weights of linear
    scorers: with an L2 penalty, that is a prior that lets the weights of rare features be larger. A
    common factor keeps the sum of squares of all values, so that a cost means the same. Where a
    text's weights already heed the frequencies, as tf-idf does, doing so twice costs precision:
    `auto` leaves all rows as they are unless the values of every row are equal in size
    (docs/trainers/label-tree.md has figures).

    idf       auto, yes or no
    in_place  whether the values themselves change, rather than a copy

    Cost: some passes over the values. Deterministic.
    """
    # most rows say so at once
    if idf == "auto" and not _alike(rows.cut(0, min(_FEW, rows.n_rows))):
        idf = "no"
    scale = None if idf == "no" else count_features(rows).factors(idf)
    return Weighed(scale_features(rows, scale, in_place), scale)


def parts_of(rows: SparseRows) -> Iterator[SparseRows]:
    """Yield the rows some at a time, so that what is computed of them is never as large as all."""
    for first in range(0, rows.n_rows, PART_ROWS):
        yield rows.cut(first, min(first + PART_ROWS, rows.n_rows))


def _alike(rows: SparseRows) -> bool:
    """Return whether the values of each row but zeros are equal in size."""
    sizes = np.abs(rows.values)
    used = sizes > 0
    ends = offsets(used)[rows.indptr]
    used_sizes = sizes[used]
    starts = ends[:-1][np.diff(ends) > 0]
    if not len(used_sizes):
        return True
    largest = np.maximum.reduceat(used_sizes, starts)
    least = np.minimum.reduceat(used_sizes, starts)
    return bool((least >= largest * np.float32(1 - _ALIKE)).all())
