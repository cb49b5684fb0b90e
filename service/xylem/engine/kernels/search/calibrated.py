"""Calibrated scores: the map from a model's own scores to
probabilities, and the way back for thresholds.

The map rises, also as it is computed: labels stay in the order that the search left them in, and
thresholds need no map at all once they are logarithms of the model's own scores, which is what
searches compare.
"""

from typing import TypeAlias

import numpy as np

from xylem.engine.kernels.search.call import Answers, Call, Search
from xylem_store import F32, Calibration, struct_at
from xylem_store import NO_CALIBRATION as _NO_CALIBRATION
from xylem_store import nonallocating_inlined as inlined
from xylem_store import nonallocating_kernel as kernel

Knots: TypeAlias = tuple[F32, F32]
"""x and y of a Calibration, as a plain tuple: numba takes a microsecond more for a NamedTuple."""

NO_KNOTS: Knots = (_NO_CALIBRATION.x, _NO_CALIBRATION.y)

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_INFINITY = np.float32(np.inf)
_LEAST_LOG = np.float32(-104.0)  # exp of this is 0 in float32
# how far a guess of a logarithm is tried to be off, relative to one less it
_MARGIN = np.float32(1e-6)


@inlined
def calibrated(x: F32, y: F32, score: np.float32) -> np.float32:
    """Return what becomes of a score in [0, 1]: y at the knots,
    straight between them; not less for more.

    x, y  the fields of a Calibration, not empty; exchanged they lead back, but for rounding
    Cost: a binary search. A score beyond 1, by rounding, counts as 1.
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
    """Set scores_out, float32[n], to what becomes of each score; `knots` are not NO_KNOTS."""
    x, y = knots
    for i in range(len(scores)):
        scores_out[i] = calibrated(x, y, scores[i])


@inlined
def calibrate_answers(call: Call, search: Search, answers: Answers) -> None:
    """Calibrate the scores of a call's answers.

    Scores with weights are no probabilities, and stay.
    """
    knots = struct_at(Calibration, call.calibration)
    if len(knots.x) == 0 or len(search.weight) > 0:
        return
    for row in range(call.first, call.last):
        for i in range(answers.counts[row]):
            answers.scores[row, i] = calibrated(knots.x, knots.y, answers.scores[row, i])


@inlined
def log_reaching(x: F32, y: F32, threshold: np.float32) -> np.float32:
    """Return the least logarithm, of all float32, of a score that is
    calibrated to `threshold` or more.

    +inf where no score is, -inf for a threshold of 0. Without knots the logarithm is float64's,
    rounded. The way back through the map is where it is looked for: what is returned has been
    tried, and the number before it too. Cost: some eight calibrations, rarely thirty.
    """
    if len(x) == 0 or threshold <= _ZERO:
        return np.float32(np.log(np.float64(threshold)))
    if y[len(y) - 1] < threshold:
        return _INFINITY
    guess = max(_LEAST_LOG, np.float32(np.log(calibrated(y, x, threshold))))
    margin = _MARGIN * (_ONE - guess)
    fails = max(_LEAST_LOG, guess - margin)
    reaches = min(_ZERO, guess + margin)
    if calibrated(x, y, np.float32(np.exp(reaches))) < threshold:
        reaches = _ZERO
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
