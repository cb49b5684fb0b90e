"""The figures of one evaluation, as `xylem evaluate --json` names them."""

from typing import NamedTuple

import numpy as np

from model_store.compiled.handles import I32, I64
from service.base.rows import LabelRows
from service.evaluation.fmeasure import USUAL_EMPTY, EmptyConvention, f_measures
from service.evaluation.propensity import USUAL_CONSTANTS, PropensityConstants, propensities
from service.evaluation.ranking import PredictedRows, ranking_metrics

Report = dict[str, float | int | str | None]
"""Figures by name; None for one that cannot be had."""


class Truth(NamedTuple):
    """What is true.

    labels     those that the model knows
    unknown    int32[n], how many more each row has that the model does not know
    n_unknown  how many labels these are
    """

    labels: LabelRows
    unknown: I32
    n_unknown: int = 0


def evaluation_report(
    ranked: PredictedRows,
    decided: PredictedRows,
    truth: Truth,
    label_counts: I64 | None,
    n_training_rows: int,
    *,
    empty: EmptyConvention = USUAL_EMPTY,
    constants: PropensityConstants = USUAL_CONSTANTS,
) -> Report:
    """Return every figure of an evaluation: percentages, `rows`, `empty_label_convention`.

    ranked        the first labels of each row (five at least, if so many exist)
    decided       the labels of each row at the thresholds that are to be judged
    truth         the true labels
    label_counts  int64[K], training rows of each label, for the propensities; None where nobody knows (models
                  of other libraries): then the propensity-scored figures are None
    constants     of the propensities

    Raises ValueError when the numbers of rows or labels differ.
    """
    is_known = label_counts is not None and n_training_rows > 0
    if label_counts is None or not is_known:
        label_counts, n_training_rows = np.zeros(truth.labels.n_labels, np.int64), 1
    known = propensities(label_counts, n_training_rows, *constants)
    ranking = ranking_metrics(
        *ranked,
        truth.labels,
        known,
        unknown_labels=truth.unknown,
        unknown_propensity=float(propensities(0, n_training_rows, *constants)),
    )
    scored: Report = {
        name: None if name.startswith("PS") and not is_known else value for name, value in ranking.items()
    }
    f = f_measures(
        *decided, truth.labels, empty=empty, unknown_labels=truth.unknown, n_unknown=truth.n_unknown
    )
    return {"rows": truth.labels.n_rows, **scored, **f._asdict()}
