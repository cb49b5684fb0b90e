"""OFO: thresholds that follow the counts of hits and marks, one event at a time.

Source: Jasinska et al. 2016 section 4.3, algorithm 2, and equation (5) for the lower bound.
Deviations:
* The counters hold only what events added, as integers; the start values a and b are separate
  parameters. So counters of several replicas can be added, in any order.
* a / b = F / 2 is a threshold of *probabilities*. The score of a model need not be a probability:
  the scores of hinge3 are about the probability's square. So a score s is read as the probability s
  ** power, and thresholds are kept as scores, (a / b) ** (1 / power). Without that, OFO's
  thresholds are much too high.
* If the scores of all labels are one distribution (link softmax), they add up to 1: at best each of
  the m true labels of a row has 1 / m. So a score s is read as (scale * s) ** power, at most 1,
  where scale is the average number of labels of a training row.
* The lower bound is a probability too. The scores of re-ranked decision trees are not, however they
  are read as (docs/thresholds.md): labels of such a version have LEAST as their bound.
* No probability below LEAST is a threshold, however rare the label: with such a threshold the
  traversal visits most of the tree, for a label whose best F is below 2 LEAST.
* A label is predicted if its probability reaches its threshold (>=, as in the paper's definition
  (2)), not only if it exceeds it (> in section 4.3): the engine's traversal does the same
  everywhere.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadParameter
from xylem.evaluation import EmptyConvention, f_scores
from xylem_store import F32, I64, LABEL_COUNTS, Link, has_calibration, has_rerank, inlined, kernel

POWER_MIN = 0.1
POWER_MAX = 10.0
SCALE_MAX = 1e6

# The least probability that is used as a threshold.
#
# The paper tries down to 1 / 10,000; measured, values from there to 0.02 make no difference in
# macro-F, and low ones let a label without hits be predicted everywhere.
LEAST = 0.01

# The power that scores are read with until one is fitted (`fit_power`), by the link of a model.
#
# Fitted on rows that label trees were not trained on: 0.53 to 0.56 with hinge3, 0.99 to 1.13 with
# hinge2, 0.96 to 0.98 with logistic (Bibtex and two sets of Debian packages).
POWERS: dict[Link, float] = {
    "hinge2": 1.0,
    "hinge3": 0.55,
    "logistic": 1.0,
    "softmax": 1.0,
    "multiway": 1.0,
    "argmax": 1.0,
}


# The power that re-ranked scores (`kernels.routing_tail`) are read with until one is fitted.
#
# Re-ranking multiplies all scores by a factor far below 1: a true label's is about 0.001 to 0.01.
# Fitted on rows that trees were not trained on: 0.41 with PFastreXML, 0.48 with LdSM (Bibtex).
RERANKED_POWER = 0.4


class Counters(NamedTuple):
    """The counts of each label after the events so far; they only grow.

    hits   int64[K]  rows in which the label was true and predicted (the paper's a_j)
    marks  int64[K]  rows in which it was true, plus rows in which it was predicted (b_j)
    """

    hits: I64
    marks: I64

    def macro_f(self, empty: EmptyConvention) -> float:
        """Return the mean of 2 hits / marks over all labels, 0 to 1.

        empty   the convention for the F of a label without marks
        """
        return float(f_scores(np.stack(self, axis=1), empty).mean())

    def micro_f(self) -> float:
        """Return 2 hits / marks of all labels together, 0 to 1; 0 without marks."""
        n_marks = int(self.marks.sum())
        return 2.0 * int(self.hits.sum()) / n_marks if n_marks else 0.0


class Start(NamedTuple):
    """The start values of the counts of every label, and how scores are read as probabilities.

    a, b   0 < a, 2 a <= b: a label's first threshold is the score of the probability a / b. The
           larger they are, the more events it takes to move a threshold
    power  in [POWER_MIN, POWER_MAX]
    scale  in [1, SCALE_MAX]: a score s is read as the probability min(1, scale * s) ** power
    """

    a: float = 1.0
    b: float = 4.0
    power: float = 1.0
    scale: float = 1.0

    def score_of(self, probabilities: NDArray[Any]) -> F32:
        """Return the scores that are read as these probabilities, float32[..]."""
        scores = np.asarray(probabilities, np.float64) ** (1.0 / self.power) / self.scale
        return scores.astype(np.float32)

    def probability_of(self, scores: F32) -> F32:
        """Return the probabilities that these scores are read as, float32[..]."""
        shares = np.minimum(scores * np.float32(self.scale), np.float32(1.0))
        return np.asarray(shares ** np.float32(self.power), np.float32)


def start_for(link: Link, arrays: Mapping[str, NDArray[Any]], n_rows: int) -> Start:
    """Return the start values of a version that was never tuned; a / b is 1/4, for an F of 1/2.

    n_rows  training rows

    The scale is 1 if each label's score is independent of the others', and if labels were not
    counted. Calibrated scores are read as they are.
    """
    if has_calibration(arrays):
        return Start()
    power = RERANKED_POWER if has_rerank(arrays) else POWERS[link]
    counts = arrays.get(LABEL_COUNTS)
    return (
        Start(power=power)
        if link != "softmax" or counts is None or n_rows == 0
        else Start(power=power, scale=float(np.clip(counts.sum() / n_rows, 1.0, SCALE_MAX)))
    )


def check_start(start: Start) -> Start:
    """Return start values. Raises BadParameter if one is out of its range."""
    if not (0.0 < start.a <= start.b / 2.0 < np.inf):
        raise BadParameter(
            f"start values of OFO: expected 0 < a and 2 a <= b, finite, found a = {start.a}, "
            f"b = {start.b}"
        )
    for name, value, low, high in (
        ("power", start.power, POWER_MIN, POWER_MAX),
        ("scale", start.scale, 1, SCALE_MAX),
    ):
        if not low <= value <= high:
            raise BadParameter(
                f"{name} of scores: expected a number from {low} to {high}, found {value}"
            )
    return start


def no_counts(n_labels: int) -> Counters:
    """Return the counters before the first event."""
    return Counters(np.zeros(n_labels, np.int64), np.zeros(n_labels, np.int64))


def counts_that_bound(arrays: Mapping[str, NDArray[Any]]) -> I64 | None:
    """Return the training rows of each label of a version, as `lower_bounds` takes them.

    None if they were not counted (models of other libraries), and if scores are re-ranked and not
    calibrated (see the module's docstring).
    """
    is_reranked = has_rerank(arrays) and not has_calibration(arrays)
    return None if is_reranked else arrays.get(LABEL_COUNTS)


def lower_bounds(label_counts: I64 | None, n_rows: int, n_labels: int) -> F32:
    """Return max(LEAST, nu_j), float32[K] in (0, 0.5]; nu_j = pi_j / (pi_j + 1) is equation (5).

    label_counts  int64[K], training rows of each label, none above n_rows; None: every bound is
                  LEAST
    n_rows        training rows
    """
    if label_counts is None or n_rows == 0:
        return np.full(n_labels, LEAST, np.float32)
    counts = label_counts.astype(np.float64)
    return np.maximum(counts / (counts + n_rows), LEAST).astype(np.float32)


@inlined
def lower_bound_at(label: int, label_counts: I64, n_rows: int) -> np.float32:
    """Return the bound of one label, as `lower_bounds`; label_counts is int64[0] if not counted."""
    if len(label_counts) == 0 or n_rows == 0:
        return np.float32(LEAST)
    count = np.float64(label_counts[label])
    return np.float32(max(count / (count + n_rows), LEAST))


def thresholds_of(counters: Counters, start: Start, lower_bound: F32) -> F32:
    """Return every label's threshold, float32[K]: max((a + hits) / (b + marks), nu_j), as a score.

    With start values of at most a half, and hits of at most half the marks, the probability is at
    most 0.5: the bound of equation (5), F* / 2. The same bits as `count_event` computes. O(K).
    """
    thresholds = np.empty(len(lower_bound), np.float32)
    _set_thresholds(counters.hits, counters.marks, start[:], lower_bound, thresholds)
    return thresholds


@inlined
def threshold_at(
    hits: int, marks: int, start: tuple[float, float, float, float], lower_bound: np.float32
) -> np.float32:
    """Return the threshold of a label with these counts; `start` has the fields of Start."""
    a, b, power, scale = start
    probability = max((a + hits) / (b + marks), np.float64(lower_bound))
    score = probability if power == 1.0 else probability ** (1.0 / power)
    return np.float32(score / scale)


@kernel
def _set_thresholds(
    hits: I64,
    marks: I64,
    start: tuple[float, float, float, float],
    lower_bound: F32,
    thresholds_out: F32,
) -> None:
    for label in range(len(thresholds_out)):
        thresholds_out[label] = threshold_at(hits[label], marks[label], start, lower_bound[label])
