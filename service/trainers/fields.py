"""Parameters that several trainers have: their ranges, and what they do."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

LabelTrees: TypeAlias = Annotated[
    int, Field(ge=1, le=100, description="number of trees; their probabilities are averaged")
]
DecisionTrees: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, description="number of trees; their scores are averaged")
]
LeafSize: TypeAlias = Annotated[
    int, Field(ge=1, le=1_000_000, description="a group of at most so many labels is not divided further")
]
CostDecay: TypeAlias = Annotated[
    float,
    Field(ge=0.0, le=1.0, description="a node with n of all N rows has the cost C * (N / n)^cost_decay"),
]
RareDecay: TypeAlias = Annotated[
    float,
    Field(
        ge=0.0,
        le=1.0,
        description="a child with p of its node's n rows has the node's cost times (n / p)^rare_decay",
    ),
]
Eps: TypeAlias = Annotated[
    float,
    Field(ge=1e-4, le=10.0, description="stop a classifier when its dual gradients differ by at most this"),
]
MaxEpochs: TypeAlias = Annotated[
    int, Field(ge=1, le=100_000, description="maximum number of passes for one classifier")
]
MaxDepth: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, description="most splits on a path from the root to a leaf")
]
LeafLabels: TypeAlias = Annotated[
    int, Field(ge=1, le=1_000_000, description="a leaf stores so many labels, the most frequent")
]
Prune: TypeAlias = Annotated[
    float, Field(ge=0.0, le=100.0, description="remove weights with a smaller absolute value; 0 keeps all")
]
Idf: TypeAlias = Annotated[
    Literal["auto", "yes", "no"],
    Field(
        description="train as if features were weighted by inverse document frequency; auto: yes if the "
        "values within each row are equal, so that they only say which features the row has"
    ),
]
Rerank: TypeAlias = Annotated[
    Literal["no", "yes"], Field(description="re-rank the trees' labels by the distance to their mean rows")
]
Alpha: TypeAlias = Annotated[
    float, Field(ge=0.0, le=1.0, description="weight of the trees in the re-ranked score; 1: the trees alone")
]
Gamma: TypeAlias = Annotated[
    float,
    Field(ge=0.0, le=1e6, description="how fast the score falls with the distance to a label's mean row"),
]
