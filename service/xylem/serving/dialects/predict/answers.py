"""Answers: predictions (written by kernels), their explanations, and problems (RFC 9457)."""

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

import numpy as np
from pydantic import Field, GetPydanticSchema, with_config
from pydantic_core import core_schema
from typing_extensions import TypedDict


class FieldFault(TypedDict):
    """A fault in one field of a request."""

    path: Annotated[str, Field(description="where the field is, such as instances[3].indices[0]")]
    detail: str


class LineError(TypedDict):
    """An error in a line."""

    code: str
    detail: str
    line: Annotated[
        NotRequired[int],
        Field(description="counted from 1; left out if the error ended the stream"),
    ]
    errors: NotRequired[list[FieldFault]]


class ProblemDetails(TypedDict):
    """The reason why a request was refused, or failed (RFC 9457)."""

    type: Annotated[
        str, Field(description="where the code is explained", examples=["/docs#bad-request"])
    ]
    title: str
    status: int
    detail: Annotated[str, Field(description="what was expected, and what was found")]
    code: Annotated[str, Field(description="stable; new ones may come", examples=["bad-request"])]
    instance: Annotated[str, Field(description="the path of the request")]
    request_id: str
    errors: NotRequired[list[FieldFault]]
    error: Annotated[
        NotRequired[str], Field(description="only for paths under /v2/: the same as detail")
    ]


Float32: TypeAlias = Annotated[
    np.float32, GetPydanticSchema(lambda _, __: core_schema.float_schema())
]
"""A number, written with just enough digits to tell it from other float32 numbers."""


class VersionAnswer(TypedDict):
    """The version that answered."""

    model: str
    version: int


class FeatureContribution(TypedDict):
    """The contribution of a feature to a node's margin: its value times its weight."""

    feature: Annotated[str, Field(description="its name, or its id if it has none")]
    contribution: Float32
    part: Annotated[
        NotRequired[Literal["chars"]],
        Field(
            description="present if the feature is an n-gram of characters within a word, "
            "including blanks"
        ),
    ]


class ExplainedNode(TypedDict):
    """A node of a path, and the features that added most to its margin or took most away."""

    node: int
    probability: Annotated[Float32, Field(description="of the node given its parent")]
    score: Annotated[
        Float32, Field(description="the product of the probabilities to here, not calibrated")
    ]
    features: list[FeatureContribution]


class ExplainedTree(TypedDict):
    """A tree's path to a label, from below the root to the leaf.

    It is empty if the tree lacks the label.
    """

    path: list[ExplainedNode]


class TreesExplanation(TypedDict):
    """An explanation of a label's score by a model of label trees."""

    trees: list[ExplainedTree]


class RoutedNode(TypedDict):
    """A node on an instance's way down a decision tree; the margin is why it was sent there."""

    node: int
    margin: Float32
    features: list[FeatureContribution]


class ExplainedLeaf(TypedDict):
    """A leaf that an instance reached, and that has the label.

    The label's score is the sum of weight * value over the leaves.
    """

    tree: int
    leaf: int
    value: Annotated[Float32, Field(description="of the label in the leaf")]
    weight: Annotated[Float32, Field(description="of the leaf")]
    path: list[RoutedNode]


class LeavesExplanation(TypedDict):
    """An explanation of a label's score by a model of decision trees."""

    leaves: list[ExplainedLeaf]


class ExplainedMember(TypedDict):
    """The part of a member of a combined version in a label's score."""

    member: Annotated[str, Field(description="model and version")]
    score: Annotated[
        NotRequired[Float32], Field(description="present if the member proposed the label")
    ]
    rank: Annotated[NotRequired[int], Field(description="among the member's labels; 1 is the best")]
    explanation: Annotated[
        NotRequired[TreesExplanation | LeavesExplanation],
        Field(description="present if the member has the label"),
    ]


class ExplainedName(TypedDict):
    """A name of a label that was found in the text."""

    name: str
    kind: Literal["preferred", "alternative", "hidden"]
    words: Annotated[list[str], Field(description="words of the text")]


class MembersExplanation(TypedDict):
    """An explanation of a label's score by a combined model: its members, and names in the text."""

    members: list[ExplainedMember]
    names: list[ExplainedName]


LabelExplanation: TypeAlias = TreesExplanation | LeavesExplanation | MembersExplanation
"""An explanation of a label's score."""


_EXAMPLE: dict[str, Any] = {
    "labels": [{"label": "role::program", "id": 12, "score": 0.93}],
    "prediction_id": "5f0c1d2e3a4b5c6d-1",
    "exact": False,
}


class DescribedLabel(TypedDict):
    """The label info of a label, as far as the request asks for it."""

    uri: Annotated[NotRequired[str | None], Field(description="with language or label_info")]
    notation: Annotated[NotRequired[str | None], Field(description="with language or label_info")]
    name: Annotated[NotRequired[str | None], Field(description="with language: in it, or in none")]
    names: Annotated[NotRequired[dict[str, str]], Field(description="with label_info: by language")]
    broader: Annotated[NotRequired[list[str]], Field(description="with label_info: URIs")]


class NamedLabel(DescribedLabel):
    """A predicted label. A score is a float32, written with just enough digits."""

    label: str
    id: int
    score: Float32
    learned: Annotated[
        NotRequired[Literal[False]],
        Field(description="there, and false, of a combined model's label without training rows"),
    ]
    explanation: NotRequired[LabelExplanation]


class Statistics(TypedDict):
    """The cost of a prediction: inner nodes with children scored, and bytes of weights read."""

    nodes: int
    weight_bytes: int


@with_config(json_schema_extra={"example": _EXAMPLE})
class Prediction(TypedDict):
    """The prediction for one instance."""

    labels: Annotated[
        list[NamedLabel], Field(description="the best first; of equal scores the smaller id")
    ]
    prediction_id: Annotated[str, Field(description="opaque, and unique")]
    exact: Annotated[
        bool, Field(description="whether these are surely the labels that an exact search finds")
    ]
    statistics: NotRequired[Statistics]
    no_known_features: Annotated[
        NotRequired[bool],
        Field(
            description="there, and true, if the model knows nothing of the text or the "
            "named features: the "
            "labels are those of an empty instance"
        ),
    ]


class PredictAnswer(VersionAnswer):
    """A prediction for each instance, in their order."""

    threshold_epoch: Annotated[int | None, Field(description="null: no tuned thresholds")]
    predictions: list[Prediction]


class BatchPrediction(Prediction):
    """The prediction for the instance of a line, with the id that the line has."""

    id: NotRequired[str | int]


class BatchError(TypedDict):
    """The error of a line, with the id that the line has; or the error that ended the batch."""

    id: NotRequired[str | int]
    error: LineError


BatchAnswerLine: TypeAlias = BatchPrediction | BatchError
"""A line of the answer to a batch."""
