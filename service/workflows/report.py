"""The report of a version: what its trainer told, and what its trees are like."""

from __future__ import annotations

from typing import Any

import numpy as np

from model_store.version import Model
from service.evaluation.forest_report import Reached, forest_report
from service.evaluation.size_report import size_report
from service.inference.forest_predictor import ForestPredictor
from service.trainers import TrainingSet

ROWS_MAX = 4000
"""So many rows, at most, are sent down the trees for a report: evenly many of the file."""


def version_report(
    model: Model, training: dict[str, Any], train: TrainingSet | None, test: TrainingSet | None
) -> dict[str, Any]:
    """Return the report of a version as JSON takes it.

    training  what the trainer told, kept under "training" unless empty
    train     the training rows, None when they were not kept; test: a validation file's

    Decision trees have "forest" (`forest_report`) if there are training rows; label trees "size"
    (`size_report`). Deterministic.
    """
    report: dict[str, Any] = {"training": training} if training else {}
    if model.manifest.kind == "label-tree":
        report["size"] = size_report(model.ensemble)
    elif train is not None:
        predictor = ForestPredictor(model)
        reached = [None if part is None else _reached(predictor, part) for part in (train, test)]
        assert reached[0] is not None
        report["forest"] = forest_report(model.ensemble, reached[0], reached[1])
    return report


def _reached(predictor: ForestPredictor, sample: TrainingSet) -> Reached:
    n_rows = sample.rows.n_rows
    chosen = np.unique(np.linspace(0, n_rows - 1, min(n_rows, ROWS_MAX)).astype(np.int64))
    ptr, leaves = predictor.leaves_reached(sample.rows, chosen)
    return Reached(ptr, leaves, sample.labels.take(chosen))
