"""Weights of labels, by which an answer ranks them: as a request says them, or inverse propensities."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable
from service.base.errors import UnsupportedOption
from service.evaluation.propensity import USUAL_CONSTANTS, PropensityConstants, propensities
from service.inference.allowed import label_ids
from service.inference.predictor import NodeWeights
from service.inference.searcher import Searcher


class LabelWeights:
    """The weights of the labels of one served version; inverse propensities are prepared once.

    counts, n_rows  training rows of each label, and of all; None for a version that does not have them
    constants       of the propensities, those that the version was trained with
    """

    def __init__(
        self,
        predictor: Searcher,
        labels: NameTable,
        counts: NDArray[Any] | None,
        n_rows: int,
        constants: PropensityConstants = USUAL_CONSTANTS,
    ) -> None:
        self._predictor = predictor
        self._labels = labels
        self._counts = counts
        self._n_rows = n_rows
        self._constants = constants
        self._inverse: NodeWeights | None = None

    def prepare(self, asked: Literal["propensity"] | dict[str, float]) -> NodeWeights:
        """Return weights for the engine; labels that are not named weigh 1. O(nodes).

        Raises UnknownLabel, and UnsupportedOption for propensities of labels that were never counted.
        """
        if isinstance(asked, str):
            return self._inverse_propensities()
        weights = np.ones(self._predictor.n_labels, np.float32)
        weights[label_ids(self._labels, list(asked), "label_weights")] = list(asked.values())
        return self._predictor.node_weights(weights)

    def _inverse_propensities(self) -> NodeWeights:
        if self._inverse is None:
            if self._counts is None or self._n_rows < 1:
                fault = "label_weights: expected a version that knows how often its labels occur, found one "
                raise UnsupportedOption(fault + "that was imported").at("label_weights")
            found = 1.0 / propensities(self._counts, self._n_rows, *self._constants)
            self._inverse = self._predictor.node_weights(found.astype(np.float32))
        return self._inverse
