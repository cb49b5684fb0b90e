"""The report of a version: of its trainer, and of its trees."""

from typing import Any

import numpy as np

from xylem.engine import ForestPredictor
from xylem.trainers import (
    Reached,
    TrainingSet,
    forest_report,
    size_report,
)
from xylem_store import (
    Model,
)

# At most this many rows are sent down the trees for a report, spread evenly over the file.
ROWS_MAX = 4000


def version_report(
    model: Model, training: dict[str, Any], train: TrainingSet | None, test: TrainingSet | None
) -> dict[str, Any]:
    """Return the report of a version as JSON takes it.

    training  the trainer's own report, stored under "training" unless it is empty
    train     the training rows, None if they are not in memory
    test      the rows of a validation file, if there is one

    Decision trees have "forest" (`forest_report`) if there are training rows; label trees "size"
    (`size_report`). Deterministic.
    """
    report: dict[str, Any] = {"training": training} if training else {}
    if model.manifest.kind == "label-tree":
        report["size"] = size_report(model.ensemble)
    elif train is not None:
        predictor = ForestPredictor(model)

        def reached(sample: TrainingSet) -> Reached:
            n_rows = sample.rows.n_rows
            chosen = np.unique(np.linspace(0, n_rows - 1, min(n_rows, ROWS_MAX)).astype(np.int64))
            return Reached(
                *predictor.leaves_reached(sample.rows, chosen), sample.labels.take(chosen)
            )

        report["forest"] = forest_report(model.ensemble, reached(train), test and reached(test))
    return report
