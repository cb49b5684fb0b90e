"""Parameters that several trainers have: their ranges, and what they do."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

LabelTrees: TypeAlias = Annotated[
    int, Field(ge=1, le=100, description="trees of the ensemble; their probabilities are averaged")
]
DecisionTrees: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, description="trees of the ensemble; their scores are averaged")
]
LeafSize: TypeAlias = Annotated[
    int, Field(ge=1, le=1_000_000, description="parts of no more labels are not divided")
]
CostDecay: TypeAlias = Annotated[
    float,
    Field(ge=0.0, le=1.0, description="a node of n of the root's N rows has the cost C * (N / n)^cost_decay"),
]
RareDecay: TypeAlias = Annotated[
    float,
    Field(
        ge=0.0,
        le=1.0,
        description="a child with p of its node's n rows has the cost of the node times (n / p)^rare_decay",
    ),
]
Eps: TypeAlias = Annotated[
    float,
    Field(ge=1e-4, le=10.0, description="a classifier is done when its dual gradients differ by no more"),
]
MaxEpochs: TypeAlias = Annotated[
    int, Field(ge=1, le=100_000, description="a classifier is given up after so many passes")
]
MaxDepth: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, description="most splits between the root and a leaf")
]
LeafLabels: TypeAlias = Annotated[
    int, Field(ge=1, le=1_000_000, description="a leaf keeps so many labels, the most frequent ones")
]
Prune: TypeAlias = Annotated[
    float, Field(ge=0.0, le=100.0, description="leave out smaller weights; 0 keeps them all")
]
Idf: TypeAlias = Annotated[
    Literal["auto", "yes", "no"],
    Field(
        description="train as if features were weighed by inverse document frequency; auto: when rows only "
        "say which features they have, by values that are equal within a row"
    ),
]
Rerank: TypeAlias = Annotated[
    Literal["no", "yes"], Field(description="re-rank the labels of the trees by the labels' mean rows")
]
Alpha: TypeAlias = Annotated[
    float,
    Field(ge=0.0, le=1.0, description="share of the trees in the re-ranked score; 1: the trees alone"),
]
Gamma: TypeAlias = Annotated[
    float,
    Field(ge=0.0, le=1e6, description="how fast the score falls with the distance from a label's mean row"),
]
