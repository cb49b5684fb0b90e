"""From an opened model to the predictor of its kind."""

from __future__ import annotations

from typing import TypeAlias

from model_store.version import Model
from service.inference.forest_predictor import ForestPredictor
from service.inference.predictor import Predictor

AnyPredictor: TypeAlias = Predictor | ForestPredictor
"""What answers rows, whatever the kind of the model: the methods are the same."""


def make_predictor(model: Model) -> AnyPredictor:
    """Return what answers rows from an opened model, whose arrays have been checked."""
    return ForestPredictor(model) if model.manifest.kind == "decision-tree" else Predictor(model)
