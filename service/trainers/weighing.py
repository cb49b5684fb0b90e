"""Weighing features by how rare they are, for rows that only say which features they have."""

from typing import NamedTuple

import numpy as np

from model_store.compiled.handles import F32, I32
from model_store.ensemble import Chunk
from service.base.rows import SparseRows, offsets

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


def weigh(rows: SparseRows, idf: str) -> Weighed:
    """Multiply each feature by its inverse document frequency, ln((1 + n) / (1 + rows with it)) + 1.

    Rows are not scaled to their length again, so that the factors can go into the weights of linear scorers:
    with an L2 penalty, that is a prior that lets the weights of rare features be larger. A common factor
    keeps the sum of squares of all values, so that a cost means the same. Where a text's weights already
    heed the frequencies, as tf-idf does, doing so twice costs precision: `auto` leaves all rows as they are
    unless the values of every row are equal in size (docs/trainers/label-tree.md has figures).

    idf  auto, yes or no

    Cost: a pass over the values, and a copy of them when they change. Deterministic.
    """
    sizes = np.abs(rows.values)
    if idf == "no" or not sizes.any() or (idf == "auto" and not _alike(rows, sizes)):
        return Weighed(rows, None)
    with_it = np.bincount(rows.indices[rows.values != 0], minlength=rows.n_features)
    factors = np.log((1.0 + rows.n_rows) / (1.0 + with_it)) + 1.0
    of_feature = np.bincount(rows.indices, sizes.astype(np.float64) ** 2, rows.n_features)
    factors *= np.sqrt(of_feature.sum() / (of_feature @ factors**2))
    scale = factors.astype(np.float32)
    return Weighed(rows._replace(values=rows.values * scale[rows.indices]), scale)


def _alike(rows: SparseRows, sizes: F32) -> bool:
    """Return whether the values of each row but zeros are equal in size."""
    used = sizes > 0
    ends = offsets(used)[rows.indptr]
    kept, starts = sizes[used], ends[:-1][np.diff(ends) > 0]
    largest = np.maximum.reduceat(kept, starts)
    least = np.minimum.reduceat(kept, starts)
    return bool((least >= largest * np.float32(1 - _ALIKE)).all())
