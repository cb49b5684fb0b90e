"""The interface of a trainer: parameters that several trainers share, its result (`Trained`)
and its description (`TrainerSpec`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from xylem.base import Parameters, Scalar, SparseRows
from xylem.trainers.size import SizeEstimate
from xylem.trainers.source import Reads, RowSource, Tools, TrainingSet
from xylem.trainers.state import LearnerState, PassPlan
from xylem_store import LINKS, Kind, Link, Model, Tree, TreeEnsemble, build_ensemble

if TYPE_CHECKING:
    from xylem.trainers.regrowing import Regrown


LabelTrees: TypeAlias = Annotated[
    int, Field(ge=1, le=100, description="number of trees; their probabilities are averaged")
]
DecisionTrees: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, description="number of trees; their scores are averaged")
]
LeafSize: TypeAlias = Annotated[
    int,
    Field(
        ge=1, le=1_000_000, description="a group of at most this many labels is not divided further"
    ),
]
CostDecay: TypeAlias = Annotated[
    float,
    Field(
        ge=0.0,
        le=1.0,
        description="a node with n of all N rows has the cost C * (N / n)^cost_decay",
    ),
]
RareDecay: TypeAlias = Annotated[
    float,
    Field(
        ge=0.0,
        le=1.0,
        description="a child with p of its node's n rows has the node's cost times (n / "
        "p)^rare_decay",
    ),
]
Eps: TypeAlias = Annotated[
    float,
    Field(
        ge=1e-4,
        le=10.0,
        description="stop a classifier when its dual gradients differ by at most this",
    ),
]
MaxEpochs: TypeAlias = Annotated[
    int, Field(ge=1, le=100_000, description="maximum number of passes for one classifier")
]
MaxDepth: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, description="most splits on a path from the root to a leaf")
]
LeafLabels: TypeAlias = Annotated[
    int, Field(ge=1, le=1_000_000, description="a leaf stores this many labels, the most frequent")
]
Prune: TypeAlias = Annotated[
    float,
    Field(
        ge=0.0, le=100.0, description="remove weights with a smaller absolute value; 0 keeps all"
    ),
]
Idf: TypeAlias = Annotated[
    Literal["auto", "yes", "no"],
    Field(
        description="train as if features were weighted by inverse document frequency; auto: "
        "yes if the "
        "values within each row are equal, so that they only say which features the row has"
    ),
]
Rerank: TypeAlias = Annotated[
    Literal["no", "yes"],
    Field(description="re-rank the trees' labels by the distance to their mean rows"),
]
Alpha: TypeAlias = Annotated[
    float,
    Field(
        ge=0.0, le=1.0, description="weight of the trees in the re-ranked score; 1: the trees alone"
    ),
]
Gamma: TypeAlias = Annotated[
    float,
    Field(
        ge=0.0,
        le=1e6,
        description="how fast the score falls with the distance to a label's mean row",
    ),
]


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    ensemble    the trees, with float32 weights
    parameters  as the manifest stores them
    n_nonzeros  number of weights in all chunks, without biases
    extra       further arrays of the version by "group/name", such as those of xylem_store.extras
    report      figures of the training as values of JSON; they are stored with the version
                (FORMAT.md)
    warnings    sentences about what may be wrong with the model
    state       the state from which another training can continue, if one was asked for
    """

    ensemble: TreeEnsemble
    kind: Kind
    link: Link
    parameters: dict[str, Scalar]
    n_nonzeros: int
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    state: LearnerState | None = None

    @classmethod
    def from_trees(
        cls,
        trees: list[Tree],
        n_labels: int,
        n_features: int,
        link: Link,
        parameters: Parameters,
        zeros: Callable[[int, Any], NDArray[Any]] = np.zeros,
        **fields: Any,
    ) -> "Trained":
        """Return the result of a training with these trees.

        zeros   makes the arrays that grow with the weights, as for `build_ensemble`
        fields  other fields of the result by name: extra, report, warnings, state
        """
        kind = next(kind for kind, links in LINKS.items() if link in links)
        return cls(
            ensemble=build_ensemble(trees, n_labels, n_features, zeros=zeros),
            kind=kind,
            link=link,
            parameters=parameters.model_dump(),
            n_nonzeros=sum(
                len(chunk.get().weight)
                for tree in trees
                for chunk in tree.chunks
                if chunk is not None
            ),
            **fields,
        )


class Regrows(Protocol):
    """The two ways to change the trees of a version without training from the beginning.

    data  the rows. For `extend` the old rows and the new ones, for `refit` any rows. Their labels
          are those of the version, and after them the new ones
    """

    def extend(self, model: Model, data: TrainingSet, tools: Tools) -> "Regrown":
        """Return the trees with a leaf for each new label.

        Weights of nodes that have no new label below them do not change.
        """

    def refit(self, model: Model, data: TrainingSet, tools: Tools) -> "Regrown":
        """Return the same trees, their classifiers trained further from their weights.

        Raises BadParameter if the trainer cannot do this.
        """


@dataclass(frozen=True)
class TrainerSpec(Generic[P]):
    """A trainer: its name, its parameters, how it reads rows, and its functions.

    about     one line for lists of trainers
    fit       trains on the rows of a source
    estimate  returns a bound on the size of the model before its training, from rows in memory
    estimate_blocks  does the same from a stream, for a trainer that stores its rows in blocks;
              None: the trainer does not
    reads     what the trainer needs at least: "rows" all rows in memory, "passes" a source that can
              be read several times, "once" a source that can be read once
    is_exact  whether the probabilities are exact and sum to 1 over the labels, so that they are
              never calibrated
    shows     whether `Tools.on_rows` gets rows before they are learnt
    growth    returns the object that adds new labels to trees and trains them further from their
              weights, for some parameters and rows. It raises BadParameter for parameters for which
              this is not possible. None: it never is
    plan      returns the number of passes for some parameters, or None if the training cannot stop
              after a pass and be continued later
    alone     returns the reason why one process has to do the whole training with some parameters.
              None: the work is divided into steps (`xylem.base.executors.steps`), which other
              machines may run
    weighs    whether the trainer uses the weights of rows with some parameters. If not, it gets
              each row as often as its weight says (`WholeRows`)
    worker_bytes  returns the memory that the largest step takes besides its fields and its result
    """

    name: str
    about: str
    parameters: type[P]
    fit: Callable[[RowSource, P, Tools], Trained]
    estimate: Callable[[TrainingSet, P, Tools], SizeEstimate]
    reads: Reads = "rows"
    estimate_blocks: Callable[[RowSource, P, Tools], SizeEstimate] | None = None
    is_exact: bool = False
    shows: bool = False
    growth: Callable[[P, SparseRows], Regrows] | None = None
    plan: Callable[[P], PassPlan | None] = lambda parameters: None
    alone: Callable[[P], str | None] = lambda parameters: "which learns one row after the other"
    weighs: Callable[[P], bool] = lambda parameters: False
    worker_bytes: Callable[[TrainingSet, P], int] = lambda data, parameters: 0
