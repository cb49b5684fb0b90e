"""Label vectors of few dimensions, summed up in one pass over rows that need not fit in memory."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from service.kernels.training.label_projection import add_projected
from service.trainers.representations import Representations
from service.trainers.source import RowSource
from service.trainers.work import Tools

PROJECTED = 512
"""Dimensions of the label vectors that k-means trees are made of where rows may come as a stream."""


def projected_vectors(source: RowSource, tools: Tools) -> Representations:
    """Return the normalised sums of the x of each label's rows, projected to PROJECTED dimensions."""
    census = source.census
    sums = np.zeros((len(census.label_rows), PROJECTED), np.float32)
    gone = 0
    for part in source.parts():
        add_projected(part.rows, part.labels, sums)
        gone += part.rows.n_rows
        tools.progress("label representations", gone, census.n_rows)
    lengths = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    np.divide(sums, lengths, out=sums, where=lengths > 0)
    found = sparse.csr_array(sums)
    return Representations(
        found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data, PROJECTED
    )
