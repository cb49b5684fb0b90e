"""Why a label has its score: shapes that orjson writes as they are."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

import numpy as np
from pydantic import Field, GetPydanticSchema
from pydantic_core import core_schema
from typing_extensions import TypedDict

Float32: TypeAlias = Annotated[np.float32, GetPydanticSchema(lambda _, __: core_schema.float_schema())]
"""A number that is written with as few digits as tell it from other float32."""


class FeatureContribution(TypedDict):
    """What a feature added to a node's margin, or took away: its value times its weight."""

    feature: Annotated[str, Field(description="its name, or its id if it has none")]
    contribution: Float32
    part: Annotated[
        NotRequired[Literal["chars"]],
        Field(description="there if the feature is an n-gram of characters within a word, blanks and all"),
    ]


class ExplainedNode(TypedDict):
    """A node of a path, and the features that added most to its margin or took most away."""

    node: int
    probability: Annotated[Float32, Field(description="of the node given its parent")]
    score: Annotated[Float32, Field(description="the product of the probabilities to here, not calibrated")]
    features: list[FeatureContribution]


class ExplainedTree(TypedDict):
    """A tree's path to a label, from below the root to the leaf; empty if the tree lacks the label."""

    path: list[ExplainedNode]


class TreesExplanation(TypedDict):
    """Why a label of a model of label trees has its score."""

    trees: list[ExplainedTree]


class RoutedNode(TypedDict):
    """A node on an instance's way down a decision tree, and the margin by which it was sent there."""

    node: int
    margin: Float32
    features: list[FeatureContribution]


class ExplainedLeaf(TypedDict):
    """A leaf with the label that an instance reached; the sum of weight * value is the label's score."""

    tree: int
    leaf: int
    value: Annotated[Float32, Field(description="of the label in the leaf")]
    weight: Annotated[Float32, Field(description="of the leaf")]
    path: list[RoutedNode]


class LeavesExplanation(TypedDict):
    """Why a label of a model of decision trees has its score."""

    leaves: list[ExplainedLeaf]


LabelExplanation: TypeAlias = TreesExplanation | LeavesExplanation
"""Why a label has its score."""
