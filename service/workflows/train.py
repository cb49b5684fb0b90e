"""Train on a data file and publish what comes of it, or estimate its size before."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import Weights
from model_store.errors import StoreError
from model_store.identifiers import check_model
from model_store.made_for import MADE_FOR, made_for_array
from model_store.manifest import DataInfo, TrainerInfo
from model_store.names import NameTable, build_names
from model_store.origin import ORIGIN, origin_array, parent_of
from model_store.report import REPORT, report_array
from model_store.store import Store
from model_store.version import Draft, Model, manifest_of
from service.columns import DEFAULT_COLUMNS, TableColumns
from service.datasets import Dataset, check_readable
from service.errors import BadParameter
from service.features import Featurizer, featurizer_arrays, featurizer_config
from service.features.languages import libraries_of
from service.thresholds.store.state import ThresholdDatabase
from service.trainers import Trained, estimate, train, train_stream
from service.trainers.source import OnPlan, no_plan
from service.workflows.calibrate import calibrated_draft, fit_to_rows
from service.workflows.choose_features import FeatureChoice
from service.workflows.evaluate import note_on, valid_figures
from service.workflows.labelled import Labelled, OnProgress, no_progress, read_labelled, read_labelled_with
from service.workflows.parameters import Chosen, from_json, parse
from service.workflows.prepared import Prepared, prepare, prepare_dataset, prepare_stream, warnings_of
from service.workflows.progressive import ProgressiveThresholds
from service.workflows.report import Sample, version_report
from service.workflows.rounding import round_weights
from service.workflows.standard_input import OnStart, learn_standard_input, no_start
from service.workflows.train_checks import check_together

FITTED = "scores were fitted to the validation rows: xylem evaluate measures them on others"
"""Why a version that was calibrated has no F-measures after training."""

STDIN = Path("-")
"""The data file that is standard input."""


@dataclass(frozen=True)
class TrainRequest:
    """What to train on, and how.

    data        a file, or STDIN: lines that are learnt as they come
    parameters  "key=value" each, or the values of a JSON object by name; those whose names begin with
                "features." are the features', others the trainer's
    label_names  for numeric data files: line i + 1 is the name of label i
    columns     of data and valid, where they are tables
    weights     the type in which weights are stored
    stream      read the data again for each pass, and never hold it in memory
    origin      fields of the version's origin (`model_store.origin`), as its job; its parent is what `latest`
                names before, unless it is given here
    latest      whether `latest` moves to what is published; it always does to a first version
    calibrate   whether scores are fitted to the validation rows (`service.workflows.calibrate`)
    made_for    an id for which a version is published once: if there is one already, it stays the only one
    """

    trainer: str
    data: Path
    valid: Path | None = None
    parameters: Sequence[str] | Mapping[str, Any] = ()
    label_names: Path | None = None
    columns: TableColumns = DEFAULT_COLUMNS
    weights: Weights = "float32"
    seed: int = 0
    threads: int = 1
    stream: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)
    latest: bool = True
    calibrate: bool = False
    made_for: str | None = None


class TrainReport(NamedTuple):
    """A published version and what it took. Metrics are of the validation file, none without one.

    note      what to know about the metrics, if there is something
    warnings  what may be wrong with the data, if something is
    features  what `features.kind=auto` chose, and of what
    calibration_error  before and after it was calibrated, where it was: see `CalibrationFit`
    thresholds  that were found beside the training: `ProgressiveThresholds.keep`, and their epoch
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


class _Outcome(NamedTuple):
    """A training's result, and what it was made of; `counts` are the training rows of each label.

    sample  the training rows, if they were held in memory
    valid   the validation rows, if there are any and they were read before the training
    n_empty  training rows without a feature, as far as they were counted
    choice  what features were tried, where they were to be chosen
    warning  what the reader of the data says that may be wrong with them
    found   thresholds that were found beside the training
    """

    trained: Trained
    data: DataInfo
    names: NameTable
    featurizer: Featurizer
    counts: NDArray[np.int64]
    train_seconds: float
    sample: Sample | None = None
    valid: Labelled | None = None
    n_empty: int = 0
    choice: FeatureChoice | None = None
    warning: str | None = None
    found: ProgressiveThresholds | None = None

    def warnings(self) -> list[str]:
        """Return what may be wrong with the data."""
        read = [] if self.warning is None else [self.warning]
        return [*read, *warnings_of(self.n_empty, self.data.rows, self.featurizer.kind)]

    def notes(self) -> dict[str, Any]:
        """Return what the version's report says of the data and the features, times left out."""
        warnings = self.warnings()
        found: dict[str, Any] = {"warnings": warnings} if warnings else {}
        return found if self.choice is None else {**found, "features": self.choice.without_times()}


def chosen_of(request: TrainRequest) -> Chosen:
    """Return the parameters that a request says. Raises BadParameter, which tells all that is wrong."""
    if isinstance(request.parameters, Mapping):
        return from_json(request.trainer, dict(request.parameters))
    return parse(request.trainer, request.parameters)


def train_and_publish(
    store: Store,
    model: str,
    request: TrainRequest,
    on_progress: OnProgress = no_progress,
    on_plan: OnPlan = no_plan,
    on_start: OnStart = no_start,
    kept_in: ThresholdDatabase | None = None,
) -> TrainReport:
    """Train on a data file and publish the result as the model's next version.

    `train_seconds` are the trainer's alone, without reading the file and making features of it; on a stream
    they are all but publishing. `on_plan` is told before training begins what it takes at most,
    `on_start` before standard input is read. With `kept_in` thresholds are found beside the training, by OFO,
    and kept there.
    Raises BadInput for what cannot be trained on, StoreError when it cannot be published; then nothing is. A
    store that cannot be written to is refused before anything is read, a validation file that cannot be used
    before the training (on a stream: one that cannot be read).
    """
    check_model(model)
    chosen = chosen_of(request)
    check_together(request, request.data == STDIN, kept_in is not None)
    store.prepare()
    origin = {"parent": _parent(store, model), **request.origin}
    if request.valid is not None:
        check_readable(request.valid)
    if request.data == STDIN:
        outcome = _train_on_standard_input(request, chosen, on_progress, on_start)
    elif request.stream:
        outcome = _train_on_stream(request, chosen, on_progress, on_plan, kept_in)
    else:
        outcome = _train_on_all(request, chosen, on_progress, on_plan)
    finished = _finished(outcome, request, origin, on_progress)
    on_progress("publish", 0, 1)
    manifest = store.publish(model, finished.draft, latest=request.latest)
    on_progress("publish", 1, 1)
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
        features=outcome.choice and outcome.choice.as_json(),
        calibration_error=finished.calibration_error,
        thresholds=None if outcome.found is None else outcome.found.keep(model, manifest.version),
    )


def train_dataset(
    dataset: Dataset,
    request: TrainRequest,
    on_progress: OnProgress = no_progress,
    on_plan: OnPlan = no_plan,
) -> Draft:
    """Train on rows that are at hand; return what can be published. Raises BadInput.

    Of the request what names files is passed over: data, valid, label_names and columns.
    """
    request = replace(request, valid=None)
    chosen = chosen_of(request)
    prepared = prepare_dataset(dataset, request.seed, request.threads, chosen, on_progress)
    outcome = _train_on_rows(prepared, request, chosen, on_progress, on_plan)
    return _finished(outcome, request, dict(request.origin), on_progress).draft


class _Finished(NamedTuple):
    """What can be published, a note on its metrics, and the calibration errors before and after."""

    draft: Draft
    note: str | None
    calibration_error: dict[str, float] | None


def _finished(
    outcome: _Outcome, request: TrainRequest, origin: Mapping[str, Any], on_progress: OnProgress
) -> _Finished:
    """Return what a training made with its metrics, report and origin, calibrated if that is asked for."""
    draft = _draft(outcome, request)
    trial = Model(manifest_of(draft), draft.ensemble, draft.labels, draft.arrays())
    valid = outcome.valid
    if valid is None and request.valid is not None:
        valid = read_labelled(trial, request.valid, on_progress, request.columns)
    kept: dict[str, Any] | None = None
    if valid is not None:
        metrics, kept = valid_figures(trial, valid, request.threads, on_progress)
        draft = replace(draft, metrics=metrics)
    on_progress("report", 0, 1)
    test = valid and Sample(valid.rows, valid.labels)
    report = version_report(trial, outcome.trained.report, outcome.sample, test) | outcome.notes()
    on_progress("report", 1, 1)
    draft, rounded = round_weights(
        draft, request.weights, request.threads, valid, outcome.sample, on_progress
    )
    if kept is not None:
        report["validation"] = rounded or kept
    extra = {REPORT: report_array(report)}
    if libraries := libraries_of(outcome.featurizer.parameters):
        origin = {**origin, "libraries": libraries}
    if any(value is not None for value in origin.values()):
        extra[ORIGIN] = origin_array(origin)
    if request.made_for is not None:
        extra[MADE_FOR] = made_for_array(request.made_for)
    draft = replace(draft, extra={**draft.extra, **extra})
    if valid is None or not request.calibrate:
        return _Finished(draft, None if valid is None else note_on(trial), None)
    on_progress("calibrate", 0, 1)
    stored = Model(manifest_of(draft), draft.ensemble, draft.labels, draft.arrays())
    fit = fit_to_rows(stored, valid, request.threads, no_progress)
    return _Finished(calibrated_draft(draft, fit, origin), FITTED, fit.errors)


def _parent(store: Store, model: str) -> dict[str, Any] | None:
    """Return what the origin of the next version says of the one before; None where none can be read."""
    try:
        return parent_of(store.manifest(model, store.resolve(model)))
    except StoreError:
        return None


def _draft(outcome: _Outcome, request: TrainRequest) -> Draft:
    """Return what a training made as a draft of a version, without metrics so far."""
    trained = outcome.trained
    return Draft(
        kind=trained.kind,
        link=trained.link,
        weights="float32",
        n_features=outcome.featurizer.n_features,
        trainer=TrainerInfo(request.trainer, trained.parameters),
        seed=request.seed,
        data=outcome.data,
        metrics={},
        features=featurizer_config(outcome.featurizer),
        ensemble=trained.ensemble,
        labels=outcome.names,
        extra={
            **featurizer_arrays(outcome.featurizer),
            "labels/counts": outcome.counts,
            **trained.extra,
        },
    )


def _train_on_all(
    request: TrainRequest, chosen: Chosen, on_progress: OnProgress, on_plan: OnPlan
) -> _Outcome:
    """Train on a data file read into memory."""
    return _train_on_rows(prepare(request, chosen, on_progress), request, chosen, on_progress, on_plan)


def _train_on_rows(
    prepared: Prepared, request: TrainRequest, chosen: Chosen, on_progress: OnProgress, on_plan: OnPlan
) -> _Outcome:
    """Train on rows in memory; the validation file, if there is one, is read before."""
    dataset, labels = prepared.dataset, prepared.dataset.labels
    valid = None
    if request.valid is not None:
        names, featurizer = prepared.names, prepared.featurizer
        valid = read_labelled_with(names, featurizer, request.valid, on_progress, request.columns)
    start = time.perf_counter()
    trained = train(
        request.trainer,
        chosen.trainer,
        prepared.rows,
        labels,
        request.seed,
        request.threads,
        on_progress,
        on_plan,
    )
    return _Outcome(
        trained,
        DataInfo(dataset.source, dataset.n_rows, dataset.sha256),
        prepared.names,
        prepared.featurizer,
        np.bincount(labels.indices, minlength=labels.n_labels).astype(np.int64),
        time.perf_counter() - start,
        Sample(prepared.rows, labels),
        valid,
        int((np.diff(prepared.rows.indptr) == 0).sum()),
        prepared.choice,
        dataset.warning,
    )


def _train_on_standard_input(
    request: TrainRequest, chosen: Chosen, on_progress: OnProgress, on_start: OnStart
) -> _Outcome:
    """Train on the lines of standard input, each seen once."""
    if request.stream or request.label_names is not None:
        raise BadParameter("expected a file with --stream and --label-names, found standard input")
    start = time.perf_counter()
    learnt = learn_standard_input(request.trainer, chosen, request.seed, on_progress, on_start)
    seconds = time.perf_counter() - start
    names = build_names(learnt.names)
    return _Outcome(learnt.trained, learnt.data, names, learnt.featurizer, learnt.counts, seconds)


def _train_on_stream(
    request: TrainRequest,
    chosen: Chosen,
    on_progress: OnProgress,
    on_plan: OnPlan,
    kept_in: ThresholdDatabase | None,
) -> _Outcome:
    """Train on a data file that is read again for each pass."""
    source = prepare_stream(request, chosen, on_progress)
    start = time.perf_counter()
    found = None if kept_in is None else ProgressiveThresholds(source, request.threads, kept_in)
    trained = train_stream(
        request.trainer, chosen.trainer, source, request.seed, request.threads, on_progress, on_plan, found
    )
    if found is not None:
        found.check()
    return _Outcome(
        trained,
        source.data_info,
        source.names,
        source.featurizer,
        source.census.label_rows,
        time.perf_counter() - start,
        n_empty=source.n_empty,
        warning=source.warning,
        found=found,
    )


def estimate_size(request: TrainRequest, on_progress: OnProgress = no_progress) -> dict[str, Any]:
    """Return the keys of `xylem estimate --json` for a training file. Raises BadInput."""
    chosen = chosen_of(request)
    prepared = prepare(request, chosen, on_progress)
    return estimate(
        request.trainer,
        chosen.trainer,
        prepared.rows,
        prepared.dataset.labels,
        request.seed,
        request.threads,
        on_progress,
    )


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
