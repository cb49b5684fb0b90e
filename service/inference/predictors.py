"""From an opened model to what answers rows of its kind."""

from model_store.version import Model
from service.features.combined import members_of
from service.inference.combined_predictor import CombinedPredictor
from service.inference.forest_predictor import ForestPredictor
from service.inference.predictor import EmbeddedPredictor, Predictor
from service.inference.searcher import Searcher


def make_predictor(model: Model) -> Searcher:
    """Return what answers rows from an opened model, whose arrays have been checked."""
    if model.manifest.kind == "combined":
        return CombinedPredictor(model, [make_predictor(member) for member in members_of(model)])
    if model.manifest.kind == "decision-tree":
        return ForestPredictor(model)
    return EmbeddedPredictor(model) if model.manifest.link == "softmax" else Predictor(model)
