"""Train on a data file and publish the result."""

import resource
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from xylem.base import Crew, Dataset
from xylem.datasets import check_readable
from xylem.engine import ForestPredictor, libraries_of
from xylem.evaluation import Reached, forest_report, size_report
from xylem.thresholds import ThresholdDatabase
from xylem.trainers import Passes, Tools, Trained, TrainingSet, fit, no_progress
from xylem.workflows.calibrate import calibrated_draft, fit_to_rows
from xylem.workflows.evaluate import note_on, valid_figures
from xylem.workflows.going_on import GoingOn, go_on, going_on, kept_rows, origin_of, prepare_on
from xylem.workflows.labelled import Labelled, OnProgress, read_labelled, read_labelled_with
from xylem.workflows.prepared import (
    PreparedRows,
    PreparedSource,
    prepare,
    prepare_dataset,
    warnings_of,
)
from xylem.workflows.progressive import ProgressiveThresholds
from xylem.workflows.ranker import check_installed
from xylem.workflows.request import Chosen
from xylem.workflows.request import TrainRequest as TrainRequest
from xylem.workflows.rerank import rerank
from xylem.workflows.weights import round_weights
from xylem_store import (
    MADE_FOR,
    ORIGIN,
    REPORT,
    Draft,
    Model,
    Store,
    StoreError,
    TrainerInfo,
    Weights,
    check_model,
    json_array,
    model_of,
    origin_arrays,
    parent_of,
    parse_named,
)

FITTED = "scores were fitted to the validation rows: xylem evaluate measures them on others"
"""Why a version that was calibrated has no F-measures after training."""


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


class _Outcome(NamedTuple):
    """The result of a training, and the rows that it was made from.

    valid  the validation rows, if there are any and they were read before the training
    threshold_learner  has found thresholds beside the training
    """

    trained: Trained
    source: PreparedSource
    train_seconds: float
    valid: Labelled | None = None
    threshold_learner: ProgressiveThresholds | None = None
    weights: Weights = "float32"

    @property
    def sample(self) -> TrainingSet | None:
        """Return the training rows, if they are in memory."""
        return self.source.data if isinstance(self.source, PreparedRows) else None

    def warnings(self) -> list[str]:
        """Return warnings about the data or the model."""
        return [*warnings_of(self.source), *self.trained.warnings]


def train_and_publish(
    store: Store,
    model: str,
    request: TrainRequest,
    on_progress: OnProgress = no_progress,
    database: ThresholdDatabase | None = None,
) -> TrainReport:
    """Train on a data file and publish the result as the model's next version.

    database  for a request with thresholds, which are found beside the training and stored there

    `train_seconds` are the trainer's alone, without reading the file and making features of it; on
    a stream they are all but publishing. Raises BadInput for what cannot be trained on, StoreError
    if the result cannot be published; then nothing is. A store that cannot be written to is refused
    before anything is read. A validation file that cannot be used is refused before the training;
    on a stream this holds only for one that cannot be read.
    """
    check_model(model)
    chosen = request.chosen()
    continuation = None
    if request.base is not None:
        continuation = going_on(store.open(*parse_named(request.base)), request, chosen)
        request = continuation.request
        chosen = continuation.chosen
    request.check(chosen)
    assert (request.thresholds is None) == (database is None)
    if request.rerank:
        check_installed()
    store.prepare()
    origin = (
        {"parent": parent_in(store, model), **request.origin}
        if continuation is None
        else origin_of(continuation.base, request)
    )
    if request.valid is not None:
        check_readable(request.valid)
    with request.crew() as crew:
        source = (
            prepare(request, chosen, crew, on_progress)
            if continuation is None
            else prepare_on(continuation, crew, on_progress)
        )
        threshold_learner = (
            None if database is None else ProgressiveThresholds(source, request.threads, database)
        )
        outcome = _train_prepared(
            source, request, chosen, crew, on_progress, threshold_learner, continuation
        )
        finished = _finish(outcome, request, origin, on_progress)
        rerank_report = None
        if request.rerank:
            finished, rerank_report = _rerank_finished(finished, request, crew, on_progress)
        on_progress("publish", 0, 1)
        manifest = store.publish(model, finished.draft, latest=request.latest)
        on_progress("publish", 1, 1)
        thresholds = None if threshold_learner is None else threshold_learner.keep(manifest)
    return TrainReport(
        model=model,
        version=manifest.version,
        trainer=request.trainer,
        train_seconds=outcome.train_seconds,
        peak_memory_bytes=peak_memory_bytes(),
        model_bytes=manifest.model_bytes,
        metrics=manifest.metrics,
        note=finished.note,
        warnings=outcome.warnings() or None,
        features=source.choice and source.choice.as_json(),
        calibration_error=finished.calibration_error,
        thresholds=thresholds,
        rerank=rerank_report,
        grown=None
        if continuation is None or continuation.state is not None
        else outcome.trained.report,
    )


def train_dataset(
    dataset: Dataset,
    request: TrainRequest,
    on_progress: OnProgress = no_progress,
    crew: Crew | None = None,
) -> Draft:
    """Train on rows that are passed directly; return what can be published. Raises BadInput.

    crew  runs the steps; None: threads of this process do

    The files that the request names are ignored: data, valid, label_names and columns.
    """
    request = request.model_copy(update={"valid": None})
    chosen = request.chosen()
    crew = crew or Crew(request.threads)
    source = prepare_dataset(dataset, request.seed, crew, chosen, on_progress)
    outcome = _train_prepared(source, request, chosen, crew, on_progress)
    return _finish(outcome, request, dict(request.origin), on_progress).draft


class _Finished(NamedTuple):
    """The draft to publish, a note on its metrics, and the calibration errors before and after."""

    draft: Draft
    note: str | None
    calibration_error: dict[str, float] | None


def _finish(
    outcome: _Outcome, request: TrainRequest, origin: Mapping[str, Any], on_progress: OnProgress
) -> _Finished:
    """Return the result of a training with metrics, report and origin, calibrated if requested."""
    draft = _draft(outcome, request)
    trial = model_of(draft)
    valid = outcome.valid
    validation_figures = None
    if valid is None and request.valid is not None:
        valid = read_labelled(trial, request.valid, on_progress, request.columns)
    if valid is not None:
        metrics, validation_figures = valid_figures(trial, valid, request.threads, on_progress)
        draft = replace(draft, metrics=metrics)
    on_progress("report", 0, 1)
    test = valid and TrainingSet(valid.rows, valid.labels)
    report = version_report(trial, outcome.trained.report, outcome.sample, test)
    if warnings := outcome.warnings():
        report["warnings"] = warnings
    if outcome.source.choice is not None:
        report["features"] = outcome.source.choice.as_json(times=False)
    on_progress("report", 1, 1)
    weights = request.weights if outcome.weights == "float32" else "float32"
    draft, rounded = round_weights(
        draft, weights, request.threads, valid, outcome.sample, on_progress
    )
    if validation_figures is not None:
        report["validation"] = rounded or validation_figures
    if libraries := libraries_of(outcome.source.featurizer.parameters):
        origin = {**origin, "libraries": libraries}
    extra = {REPORT: json_array(REPORT, report), **origin_arrays(origin, request.made_for)}
    draft = replace(draft, extra={**draft.extra, **extra})
    if valid is None or not request.calibrate:
        return _Finished(draft, None if valid is None else note_on(trial), None)
    on_progress("calibrate", 0, 1)
    fit = fit_to_rows(model_of(draft), valid, request.threads, no_progress)
    return _Finished(calibrated_draft(draft, fit, origin), FITTED, fit.errors)


def _rerank_finished(
    finished: _Finished, request: TrainRequest, crew: Crew, on_progress: OnProgress
) -> tuple[_Finished, dict[str, Any]]:
    """Return the result of a training with a ranker of its candidates, and what that gains.

    The result stays as it is if the ranker gains nothing.
    """
    dataset = request.read(on_progress)

    def train_part(part: Dataset) -> Draft:
        return train_dataset(part, request.model_copy(update={"weights": "float32"}), crew=crew)

    draft, gained = rerank(finished.draft, dataset, train_part, request.seed, on_progress)
    if not gained["kept"]:
        return finished, gained
    extra = {
        name: array for name, array in finished.draft.extra.items() if name in (ORIGIN, MADE_FOR)
    }
    report: dict[str, Any] = {"rerank": gained}
    if request.valid is not None:
        trial = model_of(draft)
        valid = read_labelled(trial, request.valid, on_progress, request.columns)
        metrics, report["validation"] = valid_figures(trial, valid, request.threads, on_progress)
        draft = replace(draft, metrics=metrics)
    draft = replace(draft, extra={**draft.extra, **extra, REPORT: json_array(REPORT, report)})
    return finished._replace(draft=draft), gained


def parent_in(store: Store, model: str) -> dict[str, Any] | None:
    """Return the parent for the origin of the next version, None if none can be read."""
    try:
        return parent_of(store.manifest(model, store.resolve(model)))
    except StoreError:
        return None


def _draft(outcome: _Outcome, request: TrainRequest) -> Draft:
    trained = outcome.trained
    source = outcome.source
    return Draft(
        kind=trained.kind,
        link=trained.link,
        weights=outcome.weights,
        n_features=source.featurizer.n_features,
        trainer=TrainerInfo(request.trainer, trained.parameters),
        seed=request.seed,
        data=source.data_info,
        metrics={},
        features=source.featurizer.config(),
        ensemble=trained.ensemble,
        labels=source.names,
        extra={
            **source.featurizer.arrays(),
            "labels/counts": source.census.label_rows,
            **(kept_rows(outcome.sample) if request.keep_rows and outcome.sample else {}),
            **trained.extra,
            **(trained.state.stored(request.trainer) if trained.state is not None else {}),
        },
    )


def _train_prepared(
    source: PreparedSource,
    request: TrainRequest,
    chosen: Chosen,
    crew: Crew,
    on_progress: OnProgress,
    threshold_learner: ProgressiveThresholds | None = None,
    continuation: GoingOn | None = None,
) -> _Outcome:
    """Train on prepared rows.

    With rows in memory the validation file, if there is one, is read before the training.
    """
    valid = None
    if source.reads == "rows" and request.valid is not None:
        names = source.names
        featurizer = source.featurizer
        valid = read_labelled_with(names, featurizer, request.valid, on_progress, request.columns)
    start = time.perf_counter()
    if continuation is not None and continuation.state is None:
        assert isinstance(source, PreparedRows)
        trained = go_on(continuation.base, source, request, crew, on_progress)
        return _Outcome(
            trained,
            source,
            time.perf_counter() - start,
            valid,
            weights=continuation.base.manifest.weights,
        )
    passes = Passes(
        None if continuation is None else continuation.state, request.until, request.keep_state
    )
    tools = Tools(request.seed, crew, on_progress, threshold_learner, passes)
    trained = fit(request.trainer, chosen.trainer, source, tools)
    if threshold_learner is not None:
        threshold_learner.check()
    return _Outcome(trained, source, time.perf_counter() - start, valid, threshold_learner)


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


ROWS_MAX = 4000
"""At most so many rows are sent down the trees for a report, spread evenly over the file."""


def version_report(
    model: Model, training: dict[str, Any], train: TrainingSet | None, test: TrainingSet | None
) -> dict[str, Any]:
    """Return the report of a version as JSON takes it.

    training  the trainer's own report, stored under "training" unless it is empty
    train     the training rows, None if they are not in memory
    test      the rows of a validation file, if there is one

    Decision trees have "forest" (`forest_report`) if there are training rows; label trees "size"
    (`size_report`). Deterministic.
    """
    report: dict[str, Any] = {"training": training} if training else {}
    if model.manifest.kind == "label-tree":
        report["size"] = size_report(model.ensemble)
    elif train is not None:
        predictor = ForestPredictor(model)

        def reached(sample: TrainingSet) -> Reached:
            n_rows = sample.rows.n_rows
            chosen = np.unique(np.linspace(0, n_rows - 1, min(n_rows, ROWS_MAX)).astype(np.int64))
            return Reached(
                *predictor.leaves_reached(sample.rows, chosen), sample.labels.take(chosen)
            )

        report["forest"] = forest_report(model.ensemble, reached(train), test and reached(test))
    return report
