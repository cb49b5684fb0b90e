"""What serves one version: its engine, its features and its label names, opened and warm."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xylem.engine import FastRequests, FeatureNames, Featurizer, Searcher
from xylem.serving.feedback.prediction_ids import PredictionIds
from xylem.serving.label_choice import LabelMasks, LabelWeights
from xylem.serving.label_info import LiveLabelInfo
from xylem.serving.live.models import LiveModels
from xylem.thresholds import ServedThresholds
from xylem_store import Model, NameTable

DEFAULT_ALIAS = "latest"


class DeniedLabels(NamedTuple):
    """The labels that answers never have, as they meet one version.

    names      those that the alias denies, as it has them; others are deprecated
    n_unknown  how many of them the version does not have
    allowed    uint8[K], 0 for the others; mask: the same as searches take it
    by_info    `allowed` of the label info that this was made by
    """

    names: tuple[str, ...]
    n_unknown: int
    allowed: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    by_info: NDArray[np.uint8] | None


class ServedVersion(NamedTuple):
    """One version of a model, ready to answer; for an alias that denies
    labels, as it answers for that alias.

    features  their names, if they have any
    fast      answers requests from their bytes; for the event loop only
    opened    the version's arrays, mapped
    info      what is known of its labels besides their names; for those who ask for it
    denied    the labels that it never answers; None: it may answer all
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
