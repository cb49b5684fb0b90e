"""Trainer `pfastrexml`: FastXML that counts a rare label for more, and re-ranks by the labels' mean rows."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from service.evaluation.propensity import A, B, propensities
from service.trainers.ranking.forest import (
    ForestParameters,
    assemble_forest,
    estimate_forest,
    grow_forest,
)
from service.trainers.rerank import rerank_arrays
from service.trainers.size import SizeEstimate
from service.trainers.source import RowSource, TrainingSet, all_rows
from service.trainers.spec import Trained, TrainerSpec
from service.trainers.work import Tools


class PfastreXmlParameters(ForestParameters):
    """Parameters of `pfastrexml`; alpha and gamma were chosen on held-out training rows."""

    propensity_a: float = Field(A, ge=0.0, le=10.0, description="constant A of the propensities of labels")
    propensity_b: float = Field(B, ge=0.0, le=1e6, description="constant B of the propensities of labels")
    rerank: Literal["yes", "no"] = Field(
        "yes", description="re-rank the labels of the trees by the labels' mean rows"
    )
    alpha: float = Field(
        0.5, ge=0.0, le=1.0, description="share of the trees in the re-ranked score; 1: the trees alone"
    )
    gamma: float = Field(
        30.0, ge=0.0, le=1e4, description="how fast the score falls with the distance from a label's mean row"
    )


def _worths(data: TrainingSet, parameters: PfastreXmlParameters) -> NDArray[np.float32]:
    """Return 1 / propensity of each label, float32[K], >= 1."""
    counts = np.bincount(data.labels.indices, minlength=data.labels.n_labels)
    a, b = parameters.propensity_a, parameters.propensity_b
    return (1.0 / propensities(counts, data.rows.n_rows, a, b)).astype(np.float32)


def fit_pfastrexml(source: RowSource, parameters: PfastreXmlParameters, tools: Tools) -> Trained:
    """Train PFastreXML: FastXML with propensity-scored gains, and the mean rows that re-rank its answers.

    Source: Jain, Prabhu, Varma 2016, "Extreme multi-label loss functions for recommendation, tagging, ranking
    & other missing label applications": a label gains 1 / its propensity in the splits' nDCG; re-ranking: see
    `rerank_arrays`. The value of a label in a leaf is its propensity-scored share, scaled by the least
    propensity into [0, 1]. Deviation: gamma and alpha as measured (the authors' code: 30 and 0.8).
    Rows without labels are left out of the trees.
    """
    data = all_rows(source)
    worths = _worths(data, parameters)
    forest = grow_forest(data, parameters, worths, parameters.trees, tools)
    extra = {}
    if parameters.rerank == "yes":
        extra = rerank_arrays(data.rows, data.labels, parameters.alpha, parameters.gamma)
    return assemble_forest(data, parameters, forest, worths / worths.max(), extra)


def estimate_pfastrexml(data: TrainingSet, parameters: PfastreXmlParameters, tools: Tools) -> SizeEstimate:
    """Return the size of the trees of what `fit_pfastrexml` would train, as `estimate_forest` forecasts it.

    The mean rows come on top: 8 bytes for each feature of each label, at most the non-zeros of the rows once
    for each of their labels.
    """
    return estimate_forest(data, parameters, _worths(data, parameters), tools)


PFASTREXML = TrainerSpec(
    name="pfastrexml",
    about="fastxml for rare labels: gains by propensity, and re-ranking by the labels' mean rows",
    parameters=PfastreXmlParameters,
    fit=fit_pfastrexml,
    estimate=estimate_pfastrexml,
)
