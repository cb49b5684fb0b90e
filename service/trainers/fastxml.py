"""Trainer `fastxml`: an ensemble of decision trees whose splits rank labels well."""

from __future__ import annotations

import numpy as np

from service.trainers.ranking_forest import (
    ForestParameters,
    assemble_forest,
    estimate_forest,
    grow_forest,
)
from service.trainers.size import SizeEstimate
from service.trainers.source import RowSource, TrainingSet, all_rows
from service.trainers.spec import Trained, TrainerSpec
from service.trainers.work import Tools


class FastXmlParameters(ForestParameters):
    """Parameters of `fastxml`."""


def fit_fastxml(source: RowSource, parameters: FastXmlParameters, tools: Tools) -> Trained:
    """Train FastXML: nDCG splits with sparse linear separators; a leaf has the label shares of its rows.

    Source: Prabhu, Varma 2014, "FastXML: a fast, accurate and stable tree-classifier for extreme multi-label
    learning", algorithms 1 and 2; deviations: `grow_tree`, `solve_separator`. Rows without labels are left
    out: a share is of the rows that carry any label.
    """
    data = all_rows(source)
    ones = np.ones(data.labels.n_labels, np.float32)
    forest = grow_forest(data, parameters, ones, parameters.trees, tools)
    return assemble_forest(data, parameters, forest, ones, {})


def estimate_fastxml(data: TrainingSet, parameters: FastXmlParameters, tools: Tools) -> SizeEstimate:
    """Return the size of what `fit_fastxml` would train, as `estimate_forest` forecasts it."""
    ones = np.ones(data.labels.n_labels, np.float32)
    return estimate_forest(data, parameters, ones, tools)


FASTXML = TrainerSpec(
    name="fastxml",
    about="decision trees with nDCG splits: few sparse products a row, whatever the number of labels",
    parameters=FastXmlParameters,
    fit=fit_fastxml,
    estimate=estimate_fastxml,
)
