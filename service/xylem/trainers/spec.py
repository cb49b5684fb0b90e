"""What a trainer is given, with parameters that several have, what it
gives back, and what describes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

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
        ge=1, le=1_000_000, description="a group of at most so many labels is not divided further"
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
    int, Field(ge=1, le=1_000_000, description="a leaf stores so many labels, the most frequent")
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
    """What a training gives.

    ensemble    with float32 weights
    parameters  as the manifest keeps them
    n_nonzeros  weights in all chunks, biases not counted
    extra       further arrays of the version by "group/name", such as those of xylem_store.extras
    report      what the trainer tells of the training, as JSON takes it: the version keeps it
                (FORMAT.md)
    warnings    what may be wrong with the model, if something is
    state       what another training goes on from, where one was to be left
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
    def of(
        cls,
        trees: list[Tree],
        n_labels: int,
        n_features: int,
        link: Link,
        parameters: Parameters,
        **fields: Any,
    ) -> Trained:
        """Return what a training gives whose trees these are, with `extra`, `report`, `state`."""
        kind = next(kind for kind, links in LINKS.items() if link in links)
        n_nonzeros = sum(
            len(chunk.weight) for tree in trees for chunk in tree.chunks if chunk is not None
        )
        ensemble = build_ensemble(trees, n_labels, n_features)
        return cls(ensemble, kind, link, parameters.model_dump(), n_nonzeros, **fields)


class Regrows(Protocol):
    """How the trees of a version grow on.

    data  rows old and new, or others; the version's labels, and after them new ones
    """

    def extend(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Return the trees with a leaf for each new label; what does not concern these stays."""

    def refit(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Return the same trees, whose classifiers go on from their weights.

        Raises BadParameter.
        """


@dataclass(frozen=True)
class TrainerSpec(Generic[P]):
    """A trainer: its name, its parameters, how it reads rows, and what trains.

    fit       trains on the rows of a source
    estimate  the size of the model before its training, from rows in memory
    estimate_blocks  the same from a stream, of a trainer that holds its rows in blocks
    reads     the least that it needs of a source: "rows" needs all of them in memory, "passes"
              reads them again and again, "once" learns from rows as they come
    is_exact  whether probabilities are exact, and sum to 1 over the labels: they are not to be
              calibrated
    shows     whether rows are shown before they are learnt (`Tools.on_rows`)
    growth    how its trees get new labels and go on from old weights, rows being given; it raises
              BadParameter for parameters with which they do not. None: they never do
    plan      the passes that parameters plan, of a trainer that may stop after each and go on, or
              None
    alone     says why a training with these parameters is one process's work; None: its work is
              steps (`xylem.base.executors.values`), which other machines may run
    worker_bytes  what the largest of its steps takes besides its fields and its result
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
    worker_bytes: Callable[[TrainingSet, P], int] = lambda data, parameters: 0
