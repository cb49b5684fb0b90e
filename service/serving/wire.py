"""The shapes of the answers: typed dictionaries, which orjson writes as they are."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import orjson

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


class FeatureContribution(TypedDict):
    """What a feature added to a node's margin, by the feature's name or, if it has none, its id."""

    feature: str
    contribution: np.float32


class ExplainedNode(TypedDict):
    """A node of a path: its probability given its parent, and the product of those down to here."""

    node: int
    probability: np.float32
    score: np.float32
    features: list[FeatureContribution]


class ExplainedTree(TypedDict):
    """A tree's path to a label, from below the root to the leaf; empty if the tree lacks the label."""

    path: list[ExplainedNode]


class LabelExplanation(TypedDict):
    """Why a label has its score."""

    trees: list[ExplainedTree]


class RoutedNode(TypedDict):
    """A node on an instance's way down a decision tree: the margin by which it was sent there."""

    node: int
    margin: np.float32
    features: list[FeatureContribution]


class ExplainedLeaf(TypedDict):
    """A leaf with the label that an instance reached: the label's value there, and what that counts."""

    tree: int
    leaf: int
    value: np.float32
    weight: np.float32
    path: list[RoutedNode]


class RoutedLabelExplanation(TypedDict):
    """Why a label of a model of decision trees has its score: the sum over the leaves of weight * value."""

    leaves: list[ExplainedLeaf]


class PlainLabel(TypedDict):
    """A predicted label. A score is a float32, written with as few digits as tell it from its neighbours."""

    label: str
    id: int
    score: np.float32


class NamedLabel(PlainLabel, total=False):
    """A predicted label, with its explanation if the request asks for one."""

    explanation: LabelExplanation


class Statistics(TypedDict):
    """What a prediction cost: inner nodes whose children were scored, and bytes of their weights read."""

    nodes: int
    weight_bytes: int


class PlainPrediction(TypedDict):
    """What is predicted for one instance: `labels` are the JSON of a list of NamedLabel, best label first."""

    labels: orjson.Fragment
    prediction_id: str
    exact: bool


class Prediction(PlainPrediction, total=False):
    """What is predicted for one instance, with what it cost if the request asks for that.

    no_known_features   there, and true, if the model knows nothing of a text or of named features
    """

    statistics: Statistics
    no_known_features: bool


class PredictAnswer(TypedDict):
    """The answer of a predict request, a prediction an instance."""

    model: str
    version: int
    threshold_epoch: int | None
    predictions: list[Prediction]


class ModelSummary(TypedDict):
    """A model of the store, its versions and what its aliases serve."""

    name: str
    versions: list[int]
    aliases: dict[str, int]


class VersionSummary(TypedDict):
    """A version as its manifest describes it."""

    version: int
    created_at: str
    kind: str
    trainer: dict[str, Any]
    features: dict[str, Any]
    n_labels: int
    n_features: int
    n_trees: int
    model_bytes: int
    metrics: dict[str, float]


def dump(value: object) -> bytes:
    """Return a value of this file's shapes as JSON."""
    return orjson.dumps(value, option=_OPTIONS)


def dump_line(value: object) -> bytes:
    """Return a value as a line of NDJSON."""
    return orjson.dumps(value, option=_OPTIONS | orjson.OPT_APPEND_NEWLINE)
