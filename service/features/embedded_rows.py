"""Dense rows of trees with softmax nodes: a model's embedding makes them of its sparse rows."""

import numpy as np

from model_store.compiled.handles import F32, F64, I32, read_only
from model_store.extras import Embedding
from service.base.rows import SparseRows, writeable
from service.kernels.search.embed_rows import embed_rows

_SUMS = read_only(np.zeros(1, np.int32))
"""In place of `mean`: sums stay as they are."""


class RowEmbedding:
    """Makes dense rows of the rows that a model takes. Immutable."""

    def __init__(self, embedding: Embedding) -> None:
        self._u = embedding.u.view(f"u{embedding.u.itemsize}")
        self._r, self._mean = embedding.r, embedding.mean
        self.dim = embedding.u.shape[1]
        self._dims = np.arange(self.dim, dtype=np.int32)
        self._one_row = np.array([0, self.dim])

    def rows(self, rows: SparseRows) -> SparseRows:
        """Return each row with `dim` features, all of them there, also where they are 0."""
        arrays = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        dense = embed_rows(*arrays, self._u, self._r, self._mean)
        n_rows = len(dense)
        if n_rows == 1:  # as of most requests
            return SparseRows(self._one_row, self._dims, dense[0], self.dim)
        indptr = np.arange(n_rows + 1, dtype=np.int64) * self.dim
        return SparseRows(indptr, np.tile(self._dims, n_rows), dense.reshape(-1), self.dim)

    def shares(self, indices: I32, values: F32) -> F64:
        """Return what each feature of one row adds to its dense row, float64[features, dim]."""
        alone = np.arange(len(indices) + 1), writeable(indices), np.ones(len(indices), np.float32)
        turned = embed_rows(*alone, self._u, self._r, _SUMS).astype(np.float64)
        total = float(np.abs(values.astype(np.float64)).sum()) if self._mean[0] else 0.0
        found: F64 = turned * (values.astype(np.float64) / (total or 1.0))[:, None]
        return found
