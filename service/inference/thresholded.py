"""A predictor as thresholds that learn see it: prepare them, move some of them, search under them."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from service.base.rows import SparseRows
from service.inference.predictor import NodeThresholds, PredictOptions
from service.inference.searcher import Searcher
from service.kernels.search.threshold_update import RowSearch

PREDICTED_MAX = 1000
"""Labels that a row counts as predicted, at most: the best ones. A finite bound on what an event touches."""


class Thresholded:
    """What `service.thresholds.live.threshold_counters.Traversal` asks for, over a predictor."""

    def __init__(self, predictor: Searcher) -> None:
        self._predictor = predictor

    def prepare(self, thresholds: NDArray[np.float32]) -> NodeThresholds:
        """Return thresholds, float32[K], prepared for predictions. O(nodes)."""
        return self._predictor.node_thresholds(thresholds)

    def move(
        self, prepared: NodeThresholds, labels: NDArray[np.int32], thresholds: NDArray[np.float32]
    ) -> None:
        """Bring what `prepare` returned up to date where thresholds[labels] changed."""
        self._predictor.move_thresholds(prepared, labels, thresholds)

    def rows_to_search(self, rows: SparseRows, chosen: NDArray[np.int64]) -> SparseRows:
        """Return as many rows, of which those chosen are what the search takes."""
        return self._predictor.rows_to_search(rows, chosen)

    def searching(self, prepared: NodeThresholds, n_features: int) -> AbstractContextManager[RowSearch]:
        """Return the search for labels that reach their thresholds; a row has so many features at most."""
        options = PredictOptions(top_r=PREDICTED_MAX, exact=True, threshold=prepared)
        return self._predictor.row_search(options, n_features)
