"""Trainer `fastxml`: an ensemble of decision trees whose splits rank labels well."""

from __future__ import annotations

import numpy as np

from service.trainers.ranking_forest import (
    ForestParameters,
    assemble_forest,
    bound_forest,
    estimate_forest,
    grow_forest,
)
from service.trainers.size import SizeEstimate
from service.trainers.spec import Trained, TrainerSpec, TrainingSet
from service.trainers.work import Crew, Progress


class FastXmlParameters(ForestParameters):
    """Parameters of `fastxml`."""


def train_fastxml(
    data: TrainingSet, parameters: FastXmlParameters, seed: int, crew: Crew, progress: Progress
) -> Trained:
    """Train FastXML: nDCG splits with sparse linear separators; a leaf has the label shares of its rows.

    Source: Prabhu, Varma 2014, "FastXML: a fast, accurate and stable tree-classifier for extreme multi-label
    learning", algorithms 1 and 2; deviations: `grow_tree`, `solve_separator`. Rows without labels are left
    out: a share is of the rows that carry any label.
    """
    ones = np.ones(data.labels.n_labels, np.float32)
    forest = grow_forest(data, parameters, ones, parameters.trees, seed, crew, progress)
    return assemble_forest(data, parameters, forest, ones, {})


def estimate_fastxml(
    data: TrainingSet, parameters: FastXmlParameters, seed: int, crew: Crew, progress: Progress
) -> SizeEstimate:
    """Return the size of what `train_fastxml` would train, as `estimate_forest` forecasts it."""
    ones = np.ones(data.labels.n_labels, np.float32)
    return estimate_forest(data, parameters, ones, seed, crew, progress)


FASTXML = TrainerSpec(
    name="fastxml",
    about="decision trees with nDCG splits: few sparse products a row, whatever the number of labels",
    parameters=FastXmlParameters,
    train=train_fastxml,
    estimate=estimate_fastxml,
    bound=bound_forest,
)
