"""Calibrate scores: map a model's own scores to probabilities, and thresholds back to its scores.

The map ascends, also in rounded arithmetic. So calibration does not change the order of labels, and
searches need no map for thresholds: these are converted to logarithms of the model's own scores,
which searches compare.
"""

from typing import TypeAlias

import numpy as np

from xylem.engine.kernels.search.call import ONE_F32, ZERO_F32, Answers, Call, Search
from xylem_store import (
    F32,
    NO_CALIBRATION as _NO_CALIBRATION,
    Calibration,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
)

# x and y of a Calibration, as a plain tuple: numba takes a microsecond more for a NamedTuple.
Knots: TypeAlias = tuple[F32, F32]

NO_KNOTS: Knots = (_NO_CALIBRATION.x, _NO_CALIBRATION.y)

_INFINITY = np.float32(np.inf)
_LEAST_LOG = np.float32(-104.0)  # exp of this is 0 in float32
# the error of a guessed logarithm that is tried first, as a factor of 1 - guess
_MARGIN = np.float32(1e-6)


@inlined
def calibrated(x: F32, y: F32, score: np.float32) -> np.float32:
    """Return the calibrated score of a score in [0, 1]: y at the knots, linear between them.

    A larger score never has a smaller result. A score above 1, by rounding, counts as 1. Cost: a
    binary search.

    x, y  the fields of a Calibration, not empty; if they are exchanged, the result is that of the
          inverse map, but for rounding
    """
    low = 0
    high = len(x) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if x[middle] <= score:
            low = middle
        else:
            high = middle
    if score >= x[high]:
        return np.float32(y[high])
    rate = (np.float64(y[high]) - y[low]) / (np.float64(x[high]) - x[low])
    between = np.float32(y[low] + (np.float64(score) - x[low]) * rate)
    return between if between < y[high] else np.float32(y[high])


@kernel
def calibrate_scores(knots: Knots, scores: F32, scores_out: F32) -> None:
    """Set scores_out, float32[n], to the calibrated scores; `knots` are not NO_KNOTS."""
    x, y = knots
    for i in range(len(scores)):
        scores_out[i] = calibrated(x, y, scores[i])


@inlined
def calibrate_answers(call: Call, search: Search, answers: Answers) -> None:
    """Calibrate the scores of a call's answers, in place.

    Scores with weights are no probabilities, so they are not calibrated.
    """
    knots = struct_at(Calibration, call.calibration)
    if len(knots.x) == 0 or len(search.weight) > 0:
        return
    for row in range(call.first, call.last):
        for i in range(answers.counts[row]):
            answers.scores[row, i] = calibrated(knots.x, knots.y, answers.scores[row, i])


@inlined
def log_reaching(x: F32, y: F32, threshold: np.float32) -> np.float32:
    """Return the least float32 that is the logarithm of a score whose calibrated score reaches
    `threshold`.

    It is +inf if no score reaches it, -inf for a threshold of 0. Without knots it is the logarithm
    in float64, rounded. The inverse map only gives a first guess: the number that is returned has
    been tested to reach the threshold, and the next smaller one not to. Cost: some eight
    calibrations, rarely thirty.
    """
    if len(x) == 0 or threshold <= ZERO_F32:
        return np.float32(np.log(np.float64(threshold)))
    if y[len(y) - 1] < threshold:
        return _INFINITY
    guess = max(_LEAST_LOG, np.float32(np.log(calibrated(y, x, threshold))))
    margin = _MARGIN * (ONE_F32 - guess)
    fails = max(_LEAST_LOG, guess - margin)
    reaches = min(ZERO_F32, guess + margin)
    if calibrated(x, y, np.float32(np.exp(reaches))) < threshold:
        reaches = ZERO_F32
    if calibrated(x, y, np.float32(np.exp(fails))) >= threshold:
        fails = _LEAST_LOG
    while True:
        middle = np.float32(np.float32(0.5) * (fails + reaches))
        if middle <= fails or middle >= reaches:
            return reaches
        if calibrated(x, y, np.float32(np.exp(middle))) >= threshold:
            reaches = middle
        else:
            fails = middle
