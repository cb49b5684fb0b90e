"""How to predict: options, and thresholds and weights prepared for a model."""

from typing import NamedTuple, NewType

import numpy as np

from xylem.base import writeable
from xylem.engine.kernels.search.calibrated import NO_KNOTS, Knots
from xylem.engine.kernels.search.subtrees import set_logs
from xylem_store import F32, U8

ALL_ALLOWED = np.empty(0, np.uint8)
ALL_EQUAL = np.empty(0, np.float32)
ALL_PASS = np.empty(0, np.float32)
"""What no mask, no weights and no thresholds are for kernels."""


NodeThresholds = NewType("NodeThresholds", F32)
"""Thresholds of labels, prepared: as
`xylem.engine.kernels.search.call.Search.log_threshold` has them.

For decision trees float32[K], the labels' logarithms.
"""

NodeWeights = NewType("NodeWeights", F32)
"""Weights of labels, prepared: float32[N], a logarithm a node; for
decision trees float32[K], weights.
"""


class PredictOptions(NamedTuple):
    """How to predict.

    top_r       at most so many labels a row, >= 1
    beam_width  inner nodes kept a level, >= 1; without effect when exact
    exact       search until the answer is surely right, instead of with a beam
    threshold   labels with at least this probability only, calibrated if the model is: a number in
                [0, 1], which is exact whatever `exact` says, because it costs less than a beam; or
                what Predictor.node_thresholds prepared
    mask        what Predictor.label_mask prepared, or None: all labels are allowed
    weights     what Predictor.node_weights prepared, or None: labels are ranked by their
                probability alone
    costs       whether to count what each row costs
    stop        uint8[1] or None: once another thread sets it, the answer is what was found until
                then, and if exact and without a threshold, those labels of it that are surely the
                best
    """

    top_r: int = 5
    beam_width: int = 10
    exact: bool = False
    threshold: float | NodeThresholds | None = None
    mask: U8 | None = None
    weights: NodeWeights | None = None
    costs: bool = False
    stop: U8 | None = None


def log_thresholds(threshold: float | NodeThresholds | None, knots: Knots) -> F32:
    """Return the logarithms of thresholds as kernels take them: none, one, or those prepared.

    knots  of the model's calibration: a threshold is compared with calibrated scores
    """
    if threshold is None:
        return ALL_PASS
    if isinstance(threshold, np.ndarray):
        return threshold
    return logs_of(np.array([threshold], np.float32), knots)


def logs_of(numbers: F32, knots: Knots = NO_KNOTS) -> F32:
    """Return the logarithms of weights, or of thresholds of calibrated
    scores, as traversals compare them.
    """
    logs = np.empty(len(numbers), np.float32)
    set_logs(knots, writeable(numbers), logs)
    return logs


class LabelScores(NamedTuple):
    """Scores of labels that were named.

    scores  float32[..]  their probabilities
    logs    float32[..]  the logarithms; -inf where the score is 0
    """

    scores: F32
    logs: F32
