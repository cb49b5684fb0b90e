"""The report of an evaluation: all figures that `xylem evaluate --json` prints."""

import numpy as np

from xylem.evaluation import (
    USUAL_EMPTY,
    A,
    B,
    EmptyConvention,
    PredictedRows,
    Truth,
    f_measures,
    propensities,
    ranking_metrics,
)
from xylem_store import I64

Report = dict[str, float | int | str | None]
"""Figures by name; None for a figure that cannot be computed."""


def evaluation_report(
    ranked: PredictedRows,
    decided: PredictedRows,
    truth: Truth,
    label_counts: I64 | None,
    n_training_rows: int,
    *,
    empty: EmptyConvention = USUAL_EMPTY,
    constants: tuple[float, float] = (A, B),
) -> Report:
    """Return every figure of an evaluation: percentages, `rows`, `empty_label_convention`.

    ranked        the first labels of each row (at least five, if there are so many)
    decided       the labels of each row at the thresholds that are measured
    truth         the true labels
    label_counts  int64[K], training rows of each label, for the propensities; None if they are not
                  known (models of other libraries): then the propensity-scored figures are None
    constants     a and b of the propensities

    Raises ValueError if the numbers of rows differ.
    """
    is_known = label_counts is not None and n_training_rows > 0
    if label_counts is None or not is_known:
        label_counts = np.zeros(truth.labels.n_labels, np.int64)
        n_training_rows = 1
    ranking = ranking_metrics(
        ranked,
        truth,
        propensities(label_counts, n_training_rows, *constants),
        float(propensities(0, n_training_rows, *constants)),
    )
    scored: Report = {
        name: None if name.startswith("PS") and not is_known else value
        for name, value in ranking.items()
    }
    return {"rows": truth.labels.n_rows, **scored, **f_measures(decided, truth, empty)._asdict()}
