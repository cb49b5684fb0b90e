"""Weighing features by how rare they are, for rows that only say which features they have."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from model_store.compiled.handles import F32, I32
from model_store.ensemble import Chunk
from service.base.rows import SparseRows, offsets

PART_ROWS = 1 << 16

_ALIKE = 1e-6
"""Values of a row that differ by no more than this share are the same number scaled to the row's length."""


class Weighed(NamedTuple):
    """Rows as a trainer takes them, and the way back to weights for the rows as they were.

    rows   with each value multiplied by the factor of its feature
    scale  float32[D]: these factors; None: all are 1
    """

    rows: SparseRows
    scale: F32 | None

    def plain(self, features: I32, weights: F32) -> F32:
        """Return the weights that give the rows as they were what these give `rows`; one feature a weight."""
        return weights if self.scale is None else weights * self.scale[features]

    def plain_chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk with such weights."""
        features = np.repeat(chunk.features, np.diff(chunk.row_ptr))
        return chunk._replace(weight=self.plain(features, chunk.weight))

    def weighed_chunk(self, chunk: Chunk) -> Chunk:
        """Return the chunk that gives `rows` what this one gives the rows as they were."""
        if self.scale is None:
            return chunk
        factors = self.scale[np.repeat(chunk.features, np.diff(chunk.row_ptr))]
        return chunk._replace(weight=(chunk.weight / factors).astype(np.float32))


def weigh(rows: SparseRows, idf: str, in_place: bool = False) -> Weighed:
    """Multiply each feature by its inverse document frequency, ln((1 + n) / (1 + rows with it)) + 1.

    Rows are not scaled to their length again, so that the factors can go into the weights of linear scorers:
    with an L2 penalty, that is a prior that lets the weights of rare features be larger. A common factor
    keeps the sum of squares of all values, so that a cost means the same. Where a text's weights already
    heed the frequencies, as tf-idf does, doing so twice costs precision: `auto` leaves all rows as they are
    unless the values of every row are equal in size (docs/trainers/label-tree.md has figures).

    idf       auto, yes or no
    in_place  whether the values themselves change, rather than a copy

    Cost: a pass over the values. Deterministic.
    """
    if idf == "no" or not rows.values.any() or (idf == "auto" and not all(map(_alike, parts_of(rows)))):
        return Weighed(rows, None)
    every = np.arange(rows.n_features)
    squares: Any = np.zeros(rows.n_features)
    with_it = np.zeros(rows.n_features, np.int64)
    for part in parts_of(rows):
        with_it += np.bincount(part.indices[part.values != 0], minlength=rows.n_features)
        # the sums go on as if the rows were one part
        terms = np.concatenate([squares, np.abs(part.values).astype(np.float64) ** 2])
        squares = np.bincount(np.concatenate([every, part.indices]), terms, rows.n_features)
    factors = np.log((1.0 + rows.n_rows) / (1.0 + with_it)) + 1.0
    factors *= np.sqrt(squares.sum() / (squares @ factors**2))
    scale = factors.astype(np.float32)
    values = rows.values if in_place else np.empty_like(rows.values)
    for part, out in zip(parts_of(rows), parts_of(rows._replace(values=values)), strict=True):
        np.multiply(part.values, scale[part.indices], out=out.values)
    return Weighed(rows._replace(values=values), scale)


def parts_of(rows: SparseRows) -> Iterator[SparseRows]:
    """Yield the rows some at a time, so that what is computed of them is never as large as all."""
    for first in range(0, rows.n_rows, PART_ROWS):
        yield rows.cut(first, min(first + PART_ROWS, rows.n_rows))


def _alike(rows: SparseRows) -> bool:
    """Return whether the values of each row but zeros are equal in size."""
    sizes = np.abs(rows.values)
    used = sizes > 0
    ends = offsets(used)[rows.indptr]
    kept, starts = sizes[used], ends[:-1][np.diff(ends) > 0]
    if not len(kept):
        return True
    largest = np.maximum.reduceat(kept, starts)
    least = np.minimum.reduceat(kept, starts)
    return bool((least >= largest * np.float32(1 - _ALIKE)).all())
