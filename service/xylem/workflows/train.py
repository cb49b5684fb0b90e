"""Train on a data file and publish the result.

A training is a plan: a list of steps, each a function that takes the work so far and returns it
with what the step has made. `plan_of` lists them in their order; the steps stand below in the same
order. A step that is decorated with `when` leaves the work as it is where its condition does not
hold.
"""

import resource
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from xylem.base import (
    Crew,
    DataReport,
    Dataset,
    OnProgress,
    TextFields,
    load_extra,
    no_progress,
    one_step,
)
from xylem.datasets import check_readable
from xylem.engine import libraries_of
from xylem.thresholds import ThresholdDatabase
from xylem.trainers import (
    Passes,
    Tools,
    TrainingSet,
    fit,
)
from xylem.vocabulary import check_installed, featurizer_of, note_without_concept, rerank
from xylem.workflows.calibrate import calibrated_draft, fit_to_rows
from xylem.workflows.evaluate import note_on, valid_figures
from xylem.workflows.going_on import (
    GoingOn,
    go_on,
    going_on,
    kept_rows,
    origin_of,
    other_rows,
    rows_of_passes,
    rows_with_new_labels,
)
from xylem.workflows.label_info import with_label_info
from xylem.workflows.labelled import (
    note_never_answered,
    note_repeated_rows,
    read_labelled_with,
)
from xylem.workflows.prepared import (
    PreparedRows,
    prepare,
    prepare_dataset,
)
from xylem.workflows.progressive import thresholds_beside
from xylem.workflows.request import Chosen, TrainRequest as TrainRequest
from xylem.workflows.training_work import MADE_LATER, Step, TrainingWork, TrainReport, when
from xylem.workflows.version_report import version_report
from xylem.workflows.weights import round_weights
from xylem_store import (
    MADE_FOR,
    ORIGIN,
    REPORT,
    Draft,
    EncoderArrays,
    LabelInfo,
    Store,
    StoreError,
    TrainerInfo,
    check_model,
    find_names,
    json_array,
    model_of,
    name_of,
    origin_arrays,
    parent_of,
    parse_named,
)

# Why a version that was calibrated has no F-measures after training.
FITTED = "scores were fitted to the validation rows: xylem evaluate measures them on others"


def plan_of(request: TrainRequest, continuation: GoingOn | None) -> list[Step]:
    """Return the steps of a training that publishes a version, in their order.

    The plans differ in the rows that are read, and in what is made of them.
    """
    if continuation is None:
        rows_and_trees = [read_rows, note_concepts, read_valid, find_thresholds_beside, fit_trees]
    elif continuation.state is not None:
        rows_and_trees = [read_rows_of_passes, note_concepts, read_valid, fit_trees]
    elif request.extends:
        rows_and_trees = [read_rows_with_new_labels, note_concepts, read_valid, grow_trees]
    else:
        rows_and_trees = [read_other_rows, note_concepts, read_valid, grow_trees]
    return [*rows_and_trees, *FINISH, rank_candidates, publish, store_thresholds]


def train_and_publish(
    store: Store,
    model: str,
    request: TrainRequest,
    on_progress: OnProgress = no_progress,
    database: ThresholdDatabase | None = None,
    label_info: LabelInfo | None = None,
) -> TrainReport:
    """Train on a data file and publish the result as the model's next version.

    database    for a request with thresholds, which are found beside the training and stored there
    label_info  becomes that of the model; None: it keeps its own, if it has one

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
    chosen = chosen.opened_from(store)
    origin = (
        {"parent": parent_in(store, model), **request.origin}
        if continuation is None
        else origin_of(continuation.base, request)
    )
    if request.valid is not None:
        check_readable(request.valid)
    with request.crew() as crew:
        work = TrainingWork(
            request=request,
            chosen=chosen,
            crew=crew,
            on_progress=on_progress,
            origin=origin,
            store=store,
            model=model,
            database=database,
            continuation=continuation or MADE_LATER,
            label_info=label_info or store.label_info(model),
        )
        for step in plan_of(request, continuation):
            work = step(work)
    report = TrainReport(
        model=work.model,
        version=work.manifest.version,
        trainer=work.request.trainer,
        train_seconds=work.train_seconds,
        peak_memory_bytes=peak_memory_bytes(),
        model_bytes=work.manifest.model_bytes,
        metrics=work.manifest.metrics,
        note=work.note,
        warnings=work.warnings or None,
        features=work.source.choice and work.source.choice.as_json(),
        fields=work.source.weighting and work.source.weighting.as_json(),
        calibration_error=work.calibration_error,
        thresholds=work.thresholds,
        rerank=work.rerank_report,
        grown=work.grown,
    )
    return report if label_info is None else with_label_info(store, report, label_info)


def train_dataset(
    dataset: Dataset,
    request: TrainRequest,
    on_progress: OnProgress = no_progress,
    crew: Crew | None = None,
    chosen: Chosen | None = None,
) -> Draft:
    """Train on rows that are passed directly; return what can be published. Raises BadInput.

    crew    runs the steps; None: threads of this process do
    chosen  the parameters with an opened encoder; None: the parameters of the request, which
            names no encoder

    The files that the request names are ignored: data, valid, label_names and columns.
    """
    work = TrainingWork(
        request=request.model_copy(update={"valid": None}),
        chosen=chosen or request.chosen().opened_from(None),
        crew=crew or Crew(request.threads),
        on_progress=on_progress,
        origin=dict(request.origin),
        dataset=dataset,
    )
    for step in [make_rows, fit_trees, *FINISH]:
        work = step(work)
    return work.draft


def read_rows(work: TrainingWork) -> TrainingWork:
    """Read the data and make rows of it: in memory, as a stream, or as they arrive."""
    request = work.request
    source = prepare(request, work.chosen, work.crew, work.on_progress, store=work.store)
    for name in ("keep_rows", "rerank"):
        if getattr(request, name) and isinstance(source, PreparedRows):
            source.data.labels.refuse_weights(name)
    if request.columns.texts.unweighted is not None:
        request = request.model_copy(
            update={"columns": request.columns._replace(texts=source.featurizer.fields)}
        )
    return replace(work, request=request, source=source)


def make_rows(work: TrainingWork) -> TrainingWork:
    """Make rows of a data set that was passed directly."""
    return replace(
        work,
        source=prepare_dataset(
            work.dataset, work.request.seed, work.crew, work.chosen, work.on_progress
        ),
    )


def read_rows_of_passes(work: TrainingWork) -> TrainingWork:
    """Read the rows of the passes before again, or new ones of standard input."""
    return replace(work, source=rows_of_passes(work.continuation, work.crew, work.on_progress))


def read_rows_with_new_labels(work: TrainingWork) -> TrainingWork:
    """Read rows with labels that the version lacks, and join them to those it was trained on."""
    return replace(
        work, source=rows_with_new_labels(work.continuation.base, work.request, work.on_progress)
    )


def read_other_rows(work: TrainingWork) -> TrainingWork:
    """Read other rows, whose labels the version has learnt."""
    return replace(work, source=other_rows(work.continuation.base, work.request, work.on_progress))


def early_and_late(applies: Callable[[TrainingWork], bool], step: Step) -> tuple[Step, Step]:
    """Return a step that needs the labels and features of the rows, twice; one of them applies.

    Rows in memory have them before the training, others after it.
    """
    return (
        when(lambda work: applies(work) and work.source.reads == "rows")(step),
        when(lambda work: applies(work) and work.source.reads != "rows")(step),
    )


def _note_concepts(work: TrainingWork) -> TrainingWork:
    """Add the finding that labels of the rows have no concept in the label info, if some have."""
    assert work.label_info is not None
    names = work.source.names
    note_without_concept(
        work.source.report,
        [
            name_of(names, label)
            for label, subject in enumerate(
                find_names(work.label_info.keys, names.utf8, names.offsets).tolist()
            )
            if subject < 0
        ],
        names.n_names,
        strict=work.request.columns.strict,
    )
    return work


note_concepts, note_concepts_late = early_and_late(
    lambda work: work.label_info is not None, _note_concepts
)


def _read_valid(work: TrainingWork) -> TrainingWork:
    """Read the validation file."""
    assert work.request.valid is not None
    source = work.source
    valid = read_labelled_with(
        source.names,
        source.featurizer,
        work.request.valid,
        work.on_progress,
        work.request.columns,
        with_vectors=work.with_vectors,
    )
    note_repeated_rows(source.digests, valid, strict=work.request.columns.strict)
    allowed = work.label_info and work.label_info.allowed(
        find_names(work.label_info.keys, source.names.utf8, source.names.offsets)
    )
    if allowed is not None:
        labels = np.unique(valid.labels.indices)
        note_never_answered(
            valid, source.names, labels[allowed[labels] == 0], strict=work.request.columns.strict
        )
    return replace(work, valid=valid)


read_valid, read_valid_late = early_and_late(
    lambda work: work.request.valid is not None, _read_valid
)


@when(lambda work: work.database is not None)
def find_thresholds_beside(work: TrainingWork) -> TrainingWork:
    """Let OFO find thresholds on rows before they are learnt."""
    assert work.database is not None
    return replace(work, beside=thresholds_beside(work.source, work.request.threads, work.database))


def fit_trees(work: TrainingWork) -> TrainingWork:
    """Make trees of the rows, or the passes that are left from the state of a version."""
    request = work.request
    state = work.continuation and work.continuation.state
    start = time.perf_counter()
    trained = fit(
        request.trainer,
        work.chosen.trainer,
        work.source,
        Tools(
            request.seed,
            work.crew,
            work.on_progress,
            work.beside,
            Passes(state, request.until, request.keep_state),
        ),
    )
    if work.beside is not None:
        work.beside.check()
    return replace(work, trained=trained, train_seconds=time.perf_counter() - start)


def grow_trees(work: TrainingWork) -> TrainingWork:
    """Add labels to the trees of the version, or learn other rows from its weights."""
    assert isinstance(work.source, PreparedRows)
    start = time.perf_counter()
    trained = go_on(work.continuation.base, work.source, work.request, work.crew, work.on_progress)
    return replace(
        work,
        trained=trained,
        trained_weights=work.continuation.base.manifest.weights,
        train_seconds=time.perf_counter() - start,
        grown=trained.report,
    )


def make_draft(work: TrainingWork) -> TrainingWork:
    """Put trees, labels and features together."""
    request = work.request
    source = work.source
    # until here vectors of texts stood beside them, whoever made them
    featurizer = source.featurizer.encoded_by(work.chosen.encoder)
    trained = work.trained
    n_rows, label_rows = source.census.weighed.rounded()
    draft = Draft(
        kind=trained.kind,
        link=trained.link,
        weights=work.trained_weights,
        n_features=featurizer.n_features,
        trainer=TrainerInfo(request.trainer, trained.parameters),
        seed=request.seed,
        data=source.data_info._replace(rows=n_rows),
        metrics={},
        features=featurizer.config(),
        ensemble=trained.ensemble,
        labels=source.names,
        extra={
            **featurizer.arrays(),
            "labels/counts": label_rows,
            **(kept_rows(work.sample) if request.keep_rows and work.sample else {}),
            **work.row_digests,
            **trained.extra,
            **({} if trained.state is None else trained.state.stored(request.trainer)),
        },
    )
    return replace(work, draft=draft, trial=model_of(draft))


@when(lambda work: work.valid is not None)
def measure(work: TrainingWork) -> TrainingWork:
    """Measure the draft on the validation rows."""
    assert work.valid is not None
    metrics, figures = valid_figures(work.trial, work.valid, work.request.threads, work.on_progress)
    return replace(
        work, draft=replace(work.draft, metrics=metrics), figures=figures, note=note_on(work.trial)
    )


def describe(work: TrainingWork) -> TrainingWork:
    """Make the report of the version."""
    with one_step(work.on_progress, "report"):
        valid = work.valid
        report = version_report(
            work.trial,
            work.trained.report,
            work.sample,
            valid and TrainingSet(valid.rows, valid.labels),
        )
        if work.warnings:
            report["warnings"] = work.warnings
        if work.source.choice is not None:
            report["features"] = work.source.choice.as_json(times=False)
        if work.source.weighting is not None:
            report[TextFields.key] = work.source.weighting.as_json(times=False)
        report.update(DataReport.result_of([work.source.report, valid and valid.report]))
    return replace(work, report=report)


@when(lambda work: work.trained_weights == "float32")
def round_to_type(work: TrainingWork) -> TrainingWork:
    """Store the weights in the requested type, and measure what that costs."""
    draft, figures = round_weights(
        work.draft,
        work.request.weights,
        work.request.threads,
        work.valid,
        work.sample,
        work.on_progress,
    )
    return replace(work, draft=draft, figures=figures or work.figures)


def record(work: TrainingWork) -> TrainingWork:
    """Add the report and the origin to the draft."""
    report = dict(work.report)
    if work.figures is not None:
        report["validation"] = work.figures
    origin = work.origin
    libraries = libraries_of(work.source.featurizer.parameters)
    if "encoder/model" in work.draft.extra:
        libraries |= load_extra("encoder").library_versions()
        origin = {
            **origin,
            "encoder": {
                "name": work.draft.features["vectors.encoder"],
                "sha256": EncoderArrays.among(work.draft.extra).digest,
            },
        }
    if libraries:
        origin = {**origin, "libraries": libraries}
    if origin and "data" in report:  # rows in memory have no origin
        origin = {**origin, "data": report["data"]}
    return replace(
        work,
        draft=replace(
            work.draft,
            extra={
                **work.draft.extra,
                REPORT: json_array(REPORT, report),
                **origin_arrays(origin, work.request.made_for),
            },
        ),
        origin=origin,
    )


@when(lambda work: work.request.calibrate and work.valid is not None)
def calibrate(work: TrainingWork) -> TrainingWork:
    """Fit the scores to the validation rows, so that they are probabilities."""
    assert work.valid is not None
    with one_step(work.on_progress, "calibrate"):
        fitted = fit_to_rows(model_of(work.draft), work.valid, work.request.threads, no_progress)
    return replace(
        work,
        draft=calibrated_draft(work.draft, fitted, work.origin),
        note=FITTED,
        calibration_error=fitted.errors,
    )


# The steps that make a draft of trees, in every plan.
FINISH: tuple[Step, ...] = (
    make_draft,
    note_concepts_late,
    read_valid_late,
    measure,
    describe,
    round_to_type,
    record,
    calibrate,
)


@when(lambda work: work.request.rerank)
def rank_candidates(work: TrainingWork) -> TrainingWork:
    """Add a ranker of the candidates by similar training rows, if held-out rows gain by it."""
    request = work.request
    on_progress = work.on_progress
    for_part = request.model_copy(update={"weights": "float32"})
    chosen = work.chosen.with_features_of(work.source.featurizer)
    dataset = work.source.featurizer.drop_unused_vectors(request.read(on_progress))
    with (
        nullcontext()
        if chosen.encoder is None
        else chosen.encoder.remembering([dataset], on_progress, work.store, work.crew)
    ):
        draft, gained = rerank(
            work.draft,
            dataset,
            lambda part: train_dataset(part, for_part, crew=work.crew, chosen=chosen),
            request.seed,
            on_progress,
        )
    if not gained["kept"]:
        return replace(work, rerank_report=gained)
    origin = {name: array for name, array in work.draft.extra.items() if name in (ORIGIN, MADE_FOR)}
    report: dict[str, Any] = {"rerank": gained}
    if request.valid is not None:
        trial = model_of(draft)
        metrics, report["validation"] = valid_figures(
            trial,
            read_labelled_with(
                trial.labels,
                featurizer_of(trial),
                request.valid,
                on_progress,
                request.columns,
                with_vectors=work.source.featurizer.drop_unused_vectors,
            ),
            request.threads,
            on_progress,
        )
        draft = replace(draft, metrics=metrics)
    draft = replace(draft, extra={**draft.extra, **origin, REPORT: json_array(REPORT, report)})
    return replace(work, draft=draft, rerank_report=gained)


def publish(work: TrainingWork) -> TrainingWork:
    """Publish the draft as the model's next version; `latest` moves to it if requested."""
    with one_step(work.on_progress, "publish"):
        manifest = work.store.publish(work.model, work.draft, latest=work.request.latest)
    return replace(work, manifest=manifest)


@when(lambda work: work.beside is not None)
def store_thresholds(work: TrainingWork) -> TrainingWork:
    """Store the thresholds that were found beside the training."""
    assert work.beside is not None
    return replace(work, thresholds=work.beside.keep(work.manifest))


def parent_in(store: Store, model: str) -> dict[str, Any] | None:
    """Return the parent for the origin of the next version, None if none can be read."""
    try:
        return parent_of(store.manifest(model, store.resolve(model)))
    except StoreError:
        return None


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
