"""Options of predictions, and thresholds and weights that are prepared for a model."""

from typing import NamedTuple, NewType

import numpy as np

from xylem.base import writeable
from xylem.engine.kernels.search.calibrated import NO_KNOTS, Knots
from xylem.engine.kernels.search.subtrees import set_logs
from xylem_store import F32, U8

# The empty arrays by which kernels know that there is no mask, no weights, no thresholds.
ALL_ALLOWED = np.empty(0, np.uint8)
ALL_EQUAL = np.empty(0, np.float32)
ALL_PASS = np.empty(0, np.float32)


# Thresholds of labels, prepared for searches: the logarithm of a threshold for each node.
#
# The layout is that of `xylem.engine.kernels.search.call.Search.log_threshold`. For decision trees
# they are float32[K], the logarithms of the labels' thresholds.
NodeThresholds = NewType("NodeThresholds", F32)

# Weights of labels, prepared for searches: float32[N], a logarithm for each node.
#
# For decision trees they are float32[K], the weights themselves.
NodeWeights = NewType("NodeWeights", F32)


class PredictOptions(NamedTuple):
    """Options of a prediction.

    top_r       the most labels of a row, >= 1
    beam_width  inner nodes kept on a level, >= 1; without effect when exact
    exact       search until the answer is proved to be right, instead of with a beam
    threshold   answer only labels of at least this probability, calibrated if the model is: a
                number in [0, 1], for which the search is exact whatever `exact` says, because that
                costs less than a beam; or what Predictor.node_thresholds prepared
    mask        what Predictor.label_mask prepared, or None: all labels are allowed
    weights     what Predictor.node_weights prepared, or None: labels are ranked by their
                probability alone
    costs       whether to count the nodes scored and bytes read for each row
    stop        uint8[1] or None: once another thread sets it, the search ends, and the answer is
                what it has found so far; if exact and without a threshold, only those of these
                labels that are proved to be the best. Decision trees answer nothing then if exact
                or with a threshold, combined versions never answer a part
    limit       the most labels of a row that belongs to tuned thresholds, >= 1: the answer has no
                more than top_r and no more than this; None: the thresholds have no limit
    """

    top_r: int = 5
    beam_width: int = 10
    exact: bool = False
    threshold: float | NodeThresholds | None = None
    mask: U8 | None = None
    weights: NodeWeights | None = None
    costs: bool = False
    stop: U8 | None = None
    limit: int | None = None


def log_thresholds(threshold: float | NodeThresholds | None, knots: Knots) -> F32:
    """Return the logarithms of thresholds as kernels take them: [0], [1], or the prepared ones.

    knots  those of the model's calibration: a threshold is compared with calibrated scores
    """
    if threshold is None:
        return ALL_PASS
    return (
        threshold
        if isinstance(threshold, np.ndarray)
        else logs_of(np.array([threshold], np.float32), knots)
    )


def logs_of(numbers: F32, knots: Knots = NO_KNOTS) -> F32:
    """Return the logarithms that traversals compare: of weights, or of thresholds.

    knots  those of the model's calibration, for thresholds of calibrated scores
    """
    logs = np.empty(len(numbers), np.float32)
    set_logs(knots, writeable(numbers), logs)
    return logs


class LabelScores(NamedTuple):
    """The scores of requested labels.

    scores  float32[..]  their probabilities
    logs    float32[..]  the logarithms; -inf where the score is 0
    """

    scores: F32
    logs: F32
