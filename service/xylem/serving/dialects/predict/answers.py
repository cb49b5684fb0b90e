"""Parts of answers: the version that answered, and explanations of scores."""

from typing import Annotated, Literal, NotRequired, TypeAlias

import numpy as np
from pydantic import Field, GetPydanticSchema
from pydantic_core import core_schema
from typing_extensions import TypedDict

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
