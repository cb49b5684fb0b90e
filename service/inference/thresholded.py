"""A predictor as thresholds that learn see it: prepare them, move some of them, predict under them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.inference.predictor import NodeThresholds, PredictOptions
from service.inference.predictors import AnyPredictor
from service.rows import SparseRows

PREDICTED_MAX = 1000
"""Labels that a row counts as predicted, at most: the best ones. A finite bound on what an event touches."""


class Thresholded:
    """What `service.thresholds.moving.Traversal` asks for, over a predictor."""

    def __init__(self, predictor: AnyPredictor) -> None:
        self._predictor = predictor
        self._options = PredictOptions()

    def prepare(self, thresholds: NDArray[np.float32]) -> NodeThresholds:
        """Return thresholds, float32[K], prepared for predictions. O(nodes)."""
        return self._predictor.node_thresholds(thresholds)

    def move(
        self, prepared: NodeThresholds, labels: NDArray[np.int32], thresholds: NDArray[np.float32]
    ) -> None:
        """Bring what `prepare` returned up to date where thresholds[labels] changed."""
        self._predictor.move_thresholds(prepared, labels, thresholds)

    def predict(self, prepared: NodeThresholds, row: SparseRows) -> NDArray[np.int32]:
        """Return the labels of one row whose probability reaches their threshold, ascending."""
        options = self._options
        if options.threshold is not prepared:  # the predictor keeps what the same object means
            options = self._options = PredictOptions(top_r=PREDICTED_MAX, threshold=prepared)
        labels = self._predictor.predict(row, options).labels
        labels.sort()
        return labels
