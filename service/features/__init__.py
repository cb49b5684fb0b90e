"""Instances to sparse rows: text (tf-idf or hashing), named features, raw ids and values."""

from service.features.featurizer import Featurizer
from service.features.parameters import FeatureParameters, parameters_of
from service.features.registry import (
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
