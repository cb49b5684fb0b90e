"""What a trainer is given, what it gives back, and how the registry describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import Kind, Link, TreeEnsemble
from service.errors import BadData
from service.parameters import Parameters, Scalar
from service.rows import LabelRows, SparseRows, offsets
from service.trainers.size import SizeEstimate
from service.trainers.work import Crew, Progress

if TYPE_CHECKING:
    from service.trainers.bounds import Bound, Counts
    from service.trainers.source import OnPlan, OnRows, RowSource

P = TypeVar("P", bound=Parameters)


class TrainingSet(NamedTuple):
    """Instances and their labels; rows without features or labels, and unused labels, are allowed."""

    rows: SparseRows
    labels: LabelRows


@dataclass(frozen=True)
class Trained:
    """What a training gives.

    ensemble    with float32 weights
    parameters  as the manifest keeps them
    n_nonzeros  weights in all chunks, biases not counted
    extra       further arrays of the version by "group/name", such as those of model_store.rerank
    report      what the trainer tells of the training, as JSON takes it: the version keeps it (FORMAT.md)
    """

    ensemble: TreeEnsemble
    kind: Kind
    link: Link
    parameters: dict[str, Scalar]
    n_nonzeros: int
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)


class OnlineTrainer(Protocol):
    """What learns from rows as they come; the same rows in the same order give the same bits."""

    @property
    def bytes_max(self) -> int:
        """Return the bytes that learning takes at most, besides the rows at hand."""

    def learn(self, data: TrainingSet) -> Iterator[int]:
        """Learn from rows whose labels are numbered by first appearance; yields how many are done."""

    def finish(self, n_labels: int, n_features: int, ids: NDArray[np.int32]) -> Trained:
        """Return what has been learnt. ids int32[labels so far]: the final id of each label."""


@dataclass(frozen=True)
class TrainerSpec(Generic[P]):
    """A trainer: its name, its parameters, and functions of (data, parameters, seed, crew, progress).

    train     the same data, parameters and seed give the same bits, whatever the number of threads
    estimate  the size of the model before its training
    bound     what a training takes at most, from counts of its rows; bounds.py makes a Plan of it
    train_stream  the same on rows that need not fit in memory, saying before what it will take; None for a
              trainer that cannot
    train_shown   the same, which shows rows of its first pass before it learns from them; None for a trainer
              that does not
    online    what learns from rows that are seen once, with a seed; None for a trainer that cannot
    is_exact  whether probabilities are exact, and sum to 1 over the labels: they are not to be calibrated
    """

    name: str
    about: str
    parameters: type[P]
    train: Callable[[TrainingSet, P, int, Crew, Progress], Trained]
    estimate: Callable[[TrainingSet, P, int, Crew, Progress], SizeEstimate]
    bound: Callable[[P, Counts], Bound]
    train_stream: Callable[[RowSource, P, int, Crew, Progress, OnPlan], Trained] | None = None
    train_shown: Callable[[RowSource, P, int, Crew, Progress, OnPlan, OnRows], Trained] | None = None
    online: Callable[[P, int], OnlineTrainer] | None = None
    is_exact: bool = False


def check_training_set(data: TrainingSet) -> None:
    """Raise BadData when rows and labels disagree, no row carries a label, or a value is not finite."""
    n_rows, n_labelled = data.rows.n_rows, data.labels.n_rows
    if n_rows != n_labelled:
        raise BadData(f"expected labels for {n_rows} rows, found them for {n_labelled}")
    if not len(data.labels.indices):
        raise BadData(f"expected rows with labels, found none in {n_rows} rows")
    wrong = np.flatnonzero(~np.isfinite(data.rows.values))
    if len(wrong):
        row = int(np.searchsorted(data.rows.indptr, wrong[0], "right")) - 1
        raise BadData(f"row {row}: expected finite values, found {data.rows.values[wrong[0]]}")


def rows_by_label(labels: LabelRows) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return (ptr int64[n_labels + 1], rows int32[..]): the rows that carry each label, ascending."""
    order = np.argsort(labels.indices, kind="stable")
    rows = np.repeat(np.arange(labels.n_rows, dtype=np.int32), np.diff(labels.indptr))[order]
    counts = np.bincount(labels.indices, minlength=labels.n_labels)
    return offsets(counts), rows
