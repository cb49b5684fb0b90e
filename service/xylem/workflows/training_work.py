"""A training and what its steps have made so far, and its report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xylem.base import Crew, Dataset, OnProgress
from xylem.evaluation import Labelled
from xylem.thresholds import ProgressiveThresholds, ThresholdDatabase
from xylem.trainers import (
    Trained,
    TrainingSet,
)
from xylem.vocabulary import ROW_DIGESTS
from xylem.workflows.going_on import (
    GoingOn,
)
from xylem.workflows.prepared import (
    PreparedRows,
    PreparedSource,
    warnings_of,
)
from xylem.workflows.request import Chosen, TrainRequest
from xylem_store import (
    Draft,
    LabelInfo,
    Manifest,
    Model,
    Store,
    Weights,
)


class TrainReport(NamedTuple):
    """A published version, and the cost of its training.

    metrics   of the validation file, empty without one
    note      on the metrics, if there is one
    warnings  about the data, if there are any
    features  what `features.kind=auto` chose, and from what
    calibration_error  before and after the calibration, if there was one: see `CalibrationFit`
    thresholds  that were found beside the training: see `ProgressiveThresholds.keep`; with their
              epoch
    rerank    P@1, P@3 and P@5 of held-out rows, "alone" and "ranked", and whether the ranker is
              "kept"
    grown     for a training that continues from a version: labels added, groups divided,
              classifiers trained
    fields    the weight that was chosen for a column, and from what
    """

    model: str
    version: int
    trainer: str
    train_seconds: float
    peak_memory_bytes: int
    model_bytes: int
    metrics: Mapping[str, float]
    note: str | None = None
    warnings: list[str] | None = None
    features: dict[str, Any] | None = None
    calibration_error: dict[str, float] | None = None
    thresholds: dict[str, Any] | None = None
    rerank: dict[str, Any] | None = None
    grown: dict[str, Any] | None = None
    fields: dict[str, Any] | None = None


# The value of a field of the work before the step that makes it; no earlier step looks at it.
MADE_LATER: Any = None


@dataclass(frozen=True, kw_only=True)
class TrainingWork:
    """A training, and what its steps have made so far.

    origin           fields of the version's origin
    continuation     the version that the training continues from
    label_info       of the model, which labels should have a concept in; None: there is none
    dataset          rows that are passed directly, without a file
    source           the rows to learn, with their names and features
    valid            the validation rows, if there are any and they were read
    beside           finds thresholds beside the training, if that was requested
    trained          what the trainer has made
    trained_weights  the type of its weights, which is that of the version it continues from
    train_seconds    the time that the trainer took
    grown            what was added to the version that the training continues from, if it grew
    draft            what will be published
    trial            the draft as a model, before its weights are rounded
    figures          of the validation rows, for the report; None without such rows
    report           of the version, without these figures
    note             on the metrics
    calibration_error  before and after the calibration, if there was one
    rerank_report    what re-ranking gains, if it was tried
    manifest         of the published version
    thresholds       the report on thresholds that were found beside the training
    """

    request: TrainRequest
    chosen: Chosen
    crew: Crew
    on_progress: OnProgress
    origin: Mapping[str, Any]
    store: Store = MADE_LATER
    model: str = ""
    database: ThresholdDatabase | None = None
    continuation: GoingOn = MADE_LATER
    label_info: LabelInfo | None = None
    dataset: Dataset = MADE_LATER
    source: PreparedSource = MADE_LATER
    valid: Labelled | None = None
    beside: ProgressiveThresholds | None = None
    trained: Trained = MADE_LATER
    trained_weights: Weights = "float32"
    train_seconds: float = 0.0
    grown: dict[str, Any] | None = None
    draft: Draft = MADE_LATER
    trial: Model = MADE_LATER
    figures: dict[str, Any] | None = None
    report: dict[str, Any] = field(default_factory=dict)
    note: str | None = None
    calibration_error: dict[str, float] | None = None
    rerank_report: dict[str, Any] | None = None
    manifest: Manifest = MADE_LATER
    thresholds: dict[str, Any] | None = None

    @property
    def sample(self) -> TrainingSet | None:
        """Return the training rows, if they are in memory."""
        return self.source.data if isinstance(self.source, PreparedRows) else None

    def with_vectors(self, dataset: Dataset) -> Dataset:
        """Return a data set with vectors beside its texts, if the rows of the training have some.

        They are those of its file, or an encoder makes them. `vectors.weight=auto` leaves them out
        if the rows are as good without.
        """
        if self.chosen.encoder is not None and self.source.featurizer.tail_features:
            dataset = self.chosen.encoder.with_vectors(
                dataset, self.crew, self.on_progress, self.store
            )
        return self.source.featurizer.drop_unused_vectors(dataset)

    @property
    def row_digests(self) -> dict[str, NDArray[Any]]:
        """Return the array of the rows that the version has seen; its base has seen some too."""
        digests = [self.source.digests.astype(np.uint32)]
        if self.continuation is not None:
            digests.append(self.continuation.base.arrays.get(ROW_DIGESTS, digests[0]))
        seen = np.unique(np.concatenate(digests))
        return {ROW_DIGESTS: seen} if len(seen) else {}

    @property
    def warnings(self) -> list[str]:
        """Return warnings about the data or the model."""
        return [*warnings_of(self.source), *self.trained.warnings]


Step: TypeAlias = Callable[[TrainingWork], TrainingWork]


def when(applies: Callable[[TrainingWork], bool]) -> Callable[[Step], Step]:
    """Let a step apply to some trainings only: it leaves the work of the others as it is."""

    def decorate(step: Step) -> Step:
        @wraps(step)
        def run(work: TrainingWork) -> TrainingWork:
            return step(work) if applies(work) else work

        return run

    return decorate
