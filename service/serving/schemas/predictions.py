"""Answers to predict requests and lines of a batch: kernels write them, and these shapes describe them."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypeAlias

from pydantic import Field, with_config
from typing_extensions import TypedDict

from service.serving.schemas.explanations import Float32, LabelExplanation
from service.serving.schemas.problems import LineError

_EXAMPLE: dict[str, Any] = {
    "labels": [{"label": "role::program", "id": 12, "score": 0.93}],
    "prediction_id": "5f0c1d2e3a4b5c6d-1",
    "exact": False,
}


class NamedLabel(TypedDict):
    """A predicted label. A score is a float32, written with as few digits as tell it from its neighbours."""

    label: str
    id: int
    score: Float32
    uri: Annotated[NotRequired[str | None], Field(description="with language or label_info")]
    notation: Annotated[NotRequired[str | None], Field(description="with language or label_info")]
    name: Annotated[NotRequired[str | None], Field(description="with language: in it, or in none")]
    names: Annotated[NotRequired[dict[str, str]], Field(description="with label_info: by language")]
    broader: Annotated[NotRequired[list[str]], Field(description="with label_info: URIs")]
    explanation: NotRequired[LabelExplanation]


class Statistics(TypedDict):
    """What a prediction cost: inner nodes whose children were scored, and bytes of their weights read."""

    nodes: int
    weight_bytes: int


@with_config(json_schema_extra={"example": _EXAMPLE})
class Prediction(TypedDict):
    """What is predicted for one instance."""

    labels: Annotated[list[NamedLabel], Field(description="the best first; of equal scores the smaller id")]
    prediction_id: Annotated[str, Field(description="opaque, and unique")]
    exact: Annotated[
        bool, Field(description="whether these are surely the labels that an exact search finds")
    ]
    statistics: NotRequired[Statistics]
    no_known_features: Annotated[
        NotRequired[bool],
        Field(
            description="there, and true, if the model knows nothing of the text or the named features: the "
            "labels are those of an empty instance"
        ),
    ]


class PredictAnswer(TypedDict):
    """A prediction for each instance, in their order."""

    model: str
    version: int
    threshold_epoch: Annotated[int | None, Field(description="null: no tuned thresholds")]
    predictions: list[Prediction]


class BatchPrediction(Prediction):
    """What is predicted for the instance of a line, with the id that the line has."""

    id: NotRequired[str | int]


class BatchError(TypedDict):
    """Why a line has no prediction, with the id that the line has; or what ended the batch."""

    id: NotRequired[str | int]
    error: LineError


BatchAnswerLine: TypeAlias = BatchPrediction | BatchError
"""A line of the answer to a batch."""
