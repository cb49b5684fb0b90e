"""A version that is open and warm: its engine, its featurizer and its label names."""

from typing import NamedTuple, TypeAlias

from xylem.engine import FeatureNames, Featurizer, Searcher
from xylem.serving.dialects.predict.fast_request import FastRequests
from xylem.serving.feedback.prediction_ids import PredictionIds
from xylem.serving.label_choice import LabelMasks, LabelWeights
from xylem.serving.label_info import LiveLabelInfo
from xylem.serving.live.models import LiveModels
from xylem.thresholds import ServedThresholds
from xylem_store import U8, Model, NameTable

DEFAULT_ALIAS = "latest"


class DeniedLabels(NamedTuple):
    """The labels that one version never answers.

    names      the names of the labels that the alias denies; all other denied labels are deprecated
    n_unknown  how many of these names the version does not have
    allowed    uint8[K], 0 for labels that are never answered
    mask       the same mask, as searches take it
    by_info    uint8[K], 0 for deprecated labels, when this was made; None: no label was
    """

    names: tuple[str, ...]
    n_unknown: int
    allowed: U8
    mask: U8
    by_info: U8 | None


class ServedVersion(NamedTuple):
    """One version of a model, ready to answer; for an alias that denies labels, without those.

    features  the names of its features; None if they have none
    fast      answers requests straight from their bytes; event loop only
    opened    the version's arrays, mapped
    info      the label info, for requests that ask for it
    denied    the labels that it never answers; None: all may be answered
    """

    name: str
    version: int
    predictor: Searcher
    featurizer: Featurizer
    labels: NameTable
    features: FeatureNames | None
    weights: LabelWeights
    masks: LabelMasks
    thresholds: ServedThresholds
    ids: PredictionIds
    fast: FastRequests
    opened: Model
    info: LiveLabelInfo
    denied: DeniedLabels | None = None


LiveServed: TypeAlias = LiveModels[ServedVersion]
