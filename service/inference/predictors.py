"""From an opened model to what answers rows of its kind."""

from __future__ import annotations

from model_store.version import Model
from service.inference.forest_predictor import ForestPredictor
from service.inference.predictor import Predictor
from service.inference.searcher import Searcher


def make_predictor(model: Model) -> Searcher:
    """Return what answers rows from an opened model, whose arrays have been checked."""
    return ForestPredictor(model) if model.manifest.kind == "decision-tree" else Predictor(model)
