"""Jobs that publish a version or tune thresholds. A training trains, publishes, tunes and promotes.

A job that is killed at any moment and run again ends as if it had not been killed: the version has
the id of its job, and the store accepts one such version; thresholds are tuned only if the version
has none yet; and a verdict on the promotion is stored before the alias moves, and acted on once.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from xylem.admin.jobs.context import JobContext, WatchedFiles, patiently
from xylem.admin.jobs.model_learning import ModelLearning
from xylem.admin.jobs.promotion import promote_if
from xylem.admin.jobs.requests import (
    CombineJob,
    ExtendJob,
    FittingJob,
    PromotionRule,
    PublishingJob,
    TrainingJob,
    TuningChoice,
    TuningJob,
    VocabularyJob,
)
from xylem.admin.jobs.sources import join_sources, split_lines
from xylem.base import (
    DEFAULT_COLUMNS,
    BadParameter,
    DataReport,
    OnProgress,
    TableColumns,
    TextFields,
    TrainingOptions,
)
from xylem.serving import store_of
from xylem.thresholds import OnKeep, ThresholdDatabase, keep, request_of
from xylem.vocabulary import (
    CombineRequest,
    VocabularyRequest,
    combine_and_publish,
    read_label_info,
    set_vocabulary,
)
from xylem.workflows import (
    TrainRequest,
    carry_thresholds,
    extend_and_publish,
    part_trainer,
    train_and_publish,
    tune as tune_version,
)
from xylem_store import (
    FEEDBACK,
    LATEST,
    URI,
    Cause,
    Manifest,
    Store,
    VersionNotFound,
    parse_named,
    read_report,
)


class _Rows(NamedTuple):
    """The file of rows and the validation file, if there are any, and how they are read."""

    data: Path | None
    valid: Path | None
    columns: TableColumns


class Publication(NamedTuple):
    """The context of a function that publishes a version for a job."""

    context: JobContext
    files: WatchedFiles
    rows: _Rows

    @property
    def store(self) -> Store:
        """Return the store; its history will name the job."""
        return store_of(
            self.context.store.root,
            Cause(f"a {self.context.job.kind} job", job=self.context.job.id),
        )

    @property
    def on_progress(self) -> OnProgress:
        """Return `on_progress` with a check of the files before the version is published."""
        return self.files.watching(self.context.on_progress, "publish")

    def label_names(self, request: TrainingJob | ExtendJob) -> Path | None:
        """Return the file with the names of labels, if there is one."""
        return (
            None
            if request.label_names is None
            else self.files.find(request.label_names, "label_names")
        )

    def marks(self, request: PublishingJob) -> dict[str, Any]:
        """Return the fields `origin`, `latest` and `made_for` of a workflow's request."""
        rule = _rule(request)
        job = self.context.job
        return {
            "origin": {
                "job": job.id,
                "rule": request.promotion
                and request.promotion.model_dump(mode="json", by_alias=True),
                FEEDBACK: dict.fromkeys(request.feedback, job.created),
            },
            "latest": rule is None or rule.alias not in (LATEST, None),
            "made_for": job.id,
        }


R = TypeVar("R", bound=PublishingJob)


def publish(
    context: JobContext, request: R, make: Callable[[Publication, R], Any]
) -> dict[str, Any]:
    """Do a job that publishes a version, with `make`; return the figures of the version."""
    files = WatchedFiles(context.data)
    rule = _rule(request)
    manifest = _published(context)
    valid: Path | None = None
    columns = DEFAULT_COLUMNS
    if manifest is None or request.thresholds is not None or (rule is not None and rule.conditions):
        rows = _read_rows(context, files, request)
        valid = rows.valid
        columns = rows.columns.for_any_version
        if manifest is None:
            make(Publication(context, files, rows), request)
            manifest = _published(context)
            assert manifest is not None
    version = manifest.version
    patiently(lambda: context.leases.record_version(context.claim, version))
    if request.thresholds is not None:
        assert valid is not None
        thresholds = ThresholdDatabase(context.database)
        # else an earlier run, or feedback, has set thresholds
        if patiently(lambda: thresholds.load(request.model, version, manifest.digest)) is None:

            def on_keep(connection: Connection, _: dict[str, Any]) -> None:
                files.check()
                context.leases.check(connection, context.claim)

            tune(context, version, request.thresholds, on_keep, valid, columns)
    elif request.goes_on:
        thresholds = ThresholdDatabase(context.database)
        patiently(lambda: carry_thresholds(context.store, request.model, version, thresholds))
    if rule is not None and rule.alias is not None:
        promote_if(context, rule, version, valid, columns)
    report = read_report(context.store.open(context.job.model, version, verify=False).arrays)
    return {
        "trainer": manifest.trainer.name,
        "model_bytes": manifest.model_bytes,
        "rows": manifest.data.rows,
        "labels": manifest.n_labels,
        "metrics": dict(manifest.metrics),
        **{
            name: report[name]
            for name in ("data", "findings", "warnings", "features", "fields", "rerank", "combined")
            if name in report
        },
    }


def _rule(request: PublishingJob) -> PromotionRule | None:
    """Return the rule for the promotion; None if `latest` moves at the publication.

    With a rule that has no alias, no alias moves. If the thresholds of a version must still be
    tuned, or copied from the version that it continues, `latest` moves only after that.
    """
    return (
        PromotionRule()
        if request.promotion is None and (request.thresholds is not None or request.goes_on)
        else request.promotion
    )


def _published(context: JobContext) -> Manifest | None:
    """Return the version that an earlier run of this job published; None if there is none.

    Raises VersionNotFound if the version has been deleted.
    """
    job = context.job
    manifest = context.store.published(job.model, job.id)
    if manifest is None and job.version is not None:
        raise VersionNotFound(
            f"{job.model}: expected version {job.version}, which this job published, found "
            "that it was deleted"
        )
    return manifest


def _read_rows(context: JobContext, files: WatchedFiles, request: PublishingJob) -> _Rows:
    """Return the files of rows. With a split both are parts of the data.

    Files that the job has written itself are UTF-8. Raises BadParameter if rows are to be joined
    that the job divides or joins before.
    """
    valid = None if request.valid_file is None else files.find(request.valid_file, "valid")
    columns = request.columns(files.find)
    if not isinstance(request, FittingJob):
        return _Rows(None, valid, columns)
    if request.split is None and isinstance(request.data, str):
        return _Rows(files.find(request.data), valid, columns)
    if columns.join:
        raise BadParameter("join_rows: expected one file without split, found others")
    columns_of_version = columns
    for name, reference in map(parse_named, reversed(request.bases)):
        columns_of_version = columns_of_version.for_version(
            TextFields.of_options(
                context.store.manifest(name, context.store.resolve(name, reference)).fields
            )
        )
    if isinstance(request.data, str):
        data = files.find(request.data)
    else:
        data, held_out = join_sources(context, files, request, columns_of_version)
        valid = held_out or valid
    if request.split is not None:
        data, valid = split_lines(
            data,
            context.work,
            request.split,
            request.seed,
            context.on_progress,
            columns_of_version,
        )
    return _Rows(data, valid, columns._replace(encoding=""))


def _train(publication: Publication, request: TrainingJob) -> None:
    assert publication.rows.data is not None
    train = TrainRequest(
        trainer=request.trainer,
        data=publication.rows.data,
        valid=publication.rows.valid,
        parameters=request.parameters,
        label_names=publication.label_names(request),
        columns=publication.rows.columns,
        threads=publication.context.threads,
        **request.model_dump(include=set(TrainingOptions.model_fields)),
        **_steps(publication.context, request),
        **publication.marks(request),
    )
    train_and_publish(
        publication.store, publication.context.job.model, train, publication.on_progress
    )


def _extend(publication: Publication, request: ExtendJob) -> None:
    assert publication.rows.data is not None
    train_request = TrainRequest(
        trainer="",
        data=publication.rows.data,
        valid=publication.rows.valid,
        label_names=publication.label_names(request),
        columns=publication.rows.columns,
        threads=publication.context.threads,
        base=request.bases[0],
        rows=[publication.files.find(name, f"rows[{i}]") for i, name in enumerate(request.rows)],
        **publication.marks(request),
    )
    extend_and_publish(publication.store, request.model, train_request, publication.on_progress)


# Do a training; return the figures of the version.
run = partial(publish, make=_train)

# Add labels to a version; return the figures of the version that was published.
run_extend = partial(publish, make=_extend)


def _steps(context: JobContext, request: TrainingJob) -> dict[str, Any]:
    """Return the fields of TrainRequest for steps on a Ray cluster; empty for local steps.

    A later run of the job resumes from the results of steps in the job's directory.
    """
    if request.executor == "local":
        return {}
    address = context.settings.ray_address
    if address is None:
        raise BadParameter(
            "executor: expected XYLEM_RAY_ADDRESS to be set for the worker too, found that "
            "it is not"
        )
    return {"ray": address, "steps": context.work / "steps", "resume": True}


def run_tuning(context: JobContext, request: TuningJob) -> dict[str, Any]:
    """Do a tuning; return its report.

    A run that finds a result has nothing to do: the thresholds were stored together with it.
    """
    if context.job.result is not None:
        return dict(context.job.result)
    files = WatchedFiles(context.data)
    data = files.find(request.data)
    test = None if request.test is None else files.find(request.test, "test")
    columns = request.columns(files.find)
    version = context.resolve_version(request.version)

    def on_keep(connection: Connection, report: dict[str, Any]) -> None:
        files.check()
        context.leases.record_result(connection, context.claim, report)

    return tune(context, version, request, on_keep, data, columns, test, shadow=request.shadow)


def tune(
    context: JobContext,
    version: int,
    choice: TuningChoice,
    on_keep: OnKeep,
    data: Path,
    columns: TableColumns,
    test: Path | None = None,
    *,
    shadow: bool = False,
) -> dict[str, Any]:
    """Tune the thresholds of a version and store them; return the report of `keep`, with `data`."""
    from xylem.datasets import collect_reports  # imported only now: kernels come with it

    start = None if choice.start is None else (choice.start[0], choice.start[1])
    options = choice.empty_labels, choice.kappa, start, context.threads, columns
    request = request_of([choice.method], data, test, *options, objective=choice.objective)
    opened = context.store.open(context.job.model, version)
    with collect_reports() as reports:
        outcomes = tune_version(opened, request, context.on_progress)
    facts = DataReport.result_of(reports)

    def keep_with_data(connection: Connection, report: dict[str, Any]) -> None:
        on_keep(connection, {**report, **facts})

    report = keep(opened, context.database, outcomes, shadow=shadow, on_keep=keep_with_data)
    return {**report, **facts}


def combine(context: JobContext, request: CombineJob) -> dict[str, Any]:
    """Combine versions; return the figures of the version that was published."""
    figures = publish(context, request, _combine)
    if request.vocabulary is not None and context.store.label_info(request.model) is None:
        # an earlier run was killed before it stored the label info, or somebody has removed it
        context.store.put_label_info(
            request.model,
            read_label_info(
                context.data.path_of(request.vocabulary, "vocabulary"),
                request.by or URI,
                request.language,
                first_name=request.first_name,
            ),
        )
    return figures


def _combine(publication: Publication, request: CombineJob) -> None:
    assert publication.rows.data is not None
    find = publication.files.find
    combine_request = CombineRequest(
        members=[parse_named(member) for member in request.members],
        data=publication.rows.data,
        vocabulary=None if request.vocabulary is None else find(request.vocabulary, "vocabulary"),
        key_kind=request.by or URI,
        rerank=None if request.rerank is None else find(request.rerank, "rerank"),
        trainer_of=part_trainer if request.folds else None,
        columns=publication.rows.columns,
        **request.model_dump(
            include={"language", "first_name", "candidates", "beam_width", "ranker", "seed"}
        ),
        **publication.marks(request),
    )
    combine_and_publish(publication.store, request.model, combine_request, publication.on_progress)


def _set_vocabulary(publication: Publication, request: VocabularyJob) -> None:
    context = publication.context
    learning = ModelLearning.of_store(context.store, context.database, context.settings)
    vocabulary_request = VocabularyRequest(
        publication.files.find(request.vocabulary, "vocabulary"),
        request.language,
        request.by,
        request.first_name,
        added=patiently(lambda: learning.additions(request.model))["concepts"],
        **publication.marks(request),
    )
    set_vocabulary(
        publication.store,
        request.model,
        LATEST if request.version is None else request.version,
        vocabulary_request,
        publication.on_progress,
    )


def publish_vocabulary(context: JobContext, request: VocabularyJob) -> dict[str, Any]:
    """Publish a version with another vocabulary, or compare that with the present one.

    The version has the figures of the version before it.
    """
    if not request.compare:
        return publish(context, request, _set_vocabulary)
    learning = ModelLearning.of_store(context.store, context.database, context.settings)
    return learning.vocabulary_changes(
        request.model, context.data.path_of(request.vocabulary, "vocabulary")
    )
