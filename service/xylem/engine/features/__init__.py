"""Instances to sparse rows: text (tf-idf or hashing), named features, raw ids and values."""

from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.parameters import FeatureParameters, parameters_of
from xylem.engine.features.registry import (
    default_kind,
    feature_names,
    fit_featurizer,
    load_featurizer,
    streaming_featurizer,
)

__all__ = [
    "FeatureParameters",
    "Featurizer",
    "default_kind",
    "feature_names",
    "fit_featurizer",
    "load_featurizer",
    "parameters_of",
    "streaming_featurizer",
]
