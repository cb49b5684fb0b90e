"""What serves one version: its engine, its features and its label names, opened and warm."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from model_store.names import NameTable
from model_store.version import Model
from service.features import Featurizer
from service.features.tables import FeatureNames
from service.inference.searcher import Searcher
from service.inference.sparse_request import SparseAnswers
from service.serving.label_info import LiveLabelInfo
from service.serving.label_weights import LabelWeights
from service.serving.live import LiveModels
from service.serving.prediction_ids import PredictionIds
from service.thresholds.live.served import ServedThresholds

DEFAULT_ALIAS = "latest"


class ServedVersion(NamedTuple):
    """One version of a model, ready to answer.

    features  their names, if they have any
    sparse    answers sparse requests; for the event loop only
    opened    the version's arrays, mapped
    info      what is known of its labels besides their names; for those who ask for it
    """

    name: str
    version: int
    predictor: Searcher
    featurizer: Featurizer
    labels: NameTable
    features: FeatureNames | None
    weights: LabelWeights
    thresholds: ServedThresholds
    ids: PredictionIds
    sparse: SparseAnswers
    opened: Model
    info: LiveLabelInfo


LiveServed: TypeAlias = LiveModels[ServedVersion]
