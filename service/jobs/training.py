"""A training job: train, publish once, tune, judge, promote.

Killed at any moment and begun again it ends as if it had not been: the version says that it was made for the
job, and the store takes one such; thresholds are tuned only if the version has none yet; a verdict is kept
before the alias moves, and later acted on once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from model_store.errors import VersionNotFound
from model_store.manifest import Manifest
from model_store.moves import Cause
from model_store.report import read_report
from model_store.store import Store
from service.columns import TableColumns
from service.jobs.context import JobContext, WatchedFiles, patiently
from service.jobs.promotion import LATEST, promote_if
from service.jobs.requests import PromotionRule, TrainingJob, TuningChoice
from service.jobs.split import split_lines
from service.jobs.tuning import tune
from service.thresholds.store.state import ThresholdDatabase
from service.workflows.train import TrainRequest, train_and_publish


def run(context: JobContext, request: TrainingJob) -> dict[str, Any]:
    """Do the job; return the figures of the version."""
    files = WatchedFiles(context.data)
    rule = _rule(request)
    manifest = _published(context)
    valid: Path | None = None
    if manifest is None or request.thresholds is not None or (rule is not None and rule.conditions):
        data, valid = _files(context, files, request)
        if manifest is None:
            manifest = _train(context, files, request, data, valid)
    patiently(lambda: context.leases.record_version(context.claim, manifest.version))
    if request.thresholds is not None:
        assert valid is not None
        _tune(context, files, manifest.version, request.thresholds, valid, request.columns())
    if rule is not None and rule.alias is not None:
        promote_if(context, rule, manifest.version, valid, request.columns())
    return {
        "trainer": manifest.trainer.name,
        "model_bytes": manifest.model_bytes,
        "rows": manifest.data.rows,
        "labels": manifest.n_labels,
        "metrics": dict(manifest.metrics),
        **_notes(context, manifest.version),
    }


def _notes(context: JobContext, version: int) -> dict[str, Any]:
    """Return what the version's report says of the data and the features: warnings, and what was tried."""
    report = read_report(context.store.open(context.job.model, version, verify=False).arrays)
    return {name: report[name] for name in ("warnings", "features") if name in report}


def _rule(request: TrainingJob) -> PromotionRule | None:
    """Return the rule by which an alias moves after publication; None: `latest` moves with it.

    A rule without an alias moves none. A version whose thresholds are still to be tuned is not served as
    `latest` before they are.
    """
    if request.promotion is None and request.thresholds is not None:
        return PromotionRule()
    return request.promotion


def _rule_json(rule: PromotionRule | None) -> dict[str, Any] | None:
    return None if rule is None else rule.model_dump(mode="json", by_alias=True)


def _published(context: JobContext) -> Manifest | None:
    """Return the version that an earlier run of this job published. Raises VersionNotFound if it is gone."""
    job = context.job
    found = context.store.published(job.model, job.id)
    if found is None and job.version is not None:
        fault = f"expected version {job.version}, which this job published, found that it was deleted"
        raise VersionNotFound(f"{job.model}: {fault}")
    return found


def _files(context: JobContext, files: WatchedFiles, request: TrainingJob) -> tuple[Path, Path | None]:
    """Return the training file and the validation file, if there is one: parts of the data where it is
    split.
    """
    data = files.find(request.data)
    if request.valid is not None:
        return data, files.find(request.valid, "valid")
    if request.split is None:
        return data, None
    share, report = request.split, context.on_progress
    return split_lines(data, context.work, share, request.seed, report, request.columns())


def _train(
    context: JobContext, files: WatchedFiles, request: TrainingJob, data: Path, valid: Path | None
) -> Manifest:
    """Train and publish, unless the data changed meanwhile."""
    names = None if request.label_names is None else files.find(request.label_names, "label_names")
    job, rule = context.job, _rule(request)
    train = TrainRequest(
        trainer=request.trainer,
        data=data,
        valid=valid,
        parameters=dict(request.parameters),
        label_names=names,
        columns=request.columns(),
        weights=request.weights,
        seed=request.seed,
        calibrate=request.calibrate,
        threads=context.threads,
        origin={"job": job.id, "rule": _rule_json(request.promotion)},
        latest=rule is None or rule.alias not in (LATEST, None),
        made_for=job.id,
    )
    watched = files.watching(context.on_progress, "publish")
    store = Store(context.store.root, by=Cause("a training job", job=job.id))
    report = train_and_publish(store, job.model, train, watched)
    return context.store.manifest(job.model, report.version)


def _tune(
    context: JobContext,
    files: WatchedFiles,
    version: int,
    choice: TuningChoice,
    valid: Path,
    columns: TableColumns,
) -> None:
    """Tune the version's thresholds, unless an earlier run has, or feedback."""
    name = context.job.model
    thresholds = ThresholdDatabase(context.database)
    if patiently(lambda: thresholds.load(name, version)) is not None:
        return

    def on_keep(connection: Connection, _: dict[str, Any]) -> None:
        files.check()
        context.leases.check(connection, context.claim)

    tune(context, version, choice, valid, None, columns, False, on_keep)
