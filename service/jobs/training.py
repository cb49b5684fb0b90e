"""Jobs of training and threshold tuning; a training: train, publish once, tune, judge, promote.

Killed at any moment and begun again it ends as if it had not been: the version says that it was made for the
job, and the store takes one such; thresholds are tuned only if the version has none yet; a verdict is kept
before the alias moves, and later acted on once.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from sqlalchemy import Connection

from model_store.errors import VersionNotFound
from model_store.identifiers import parse_named
from model_store.manifest import Manifest
from model_store.moves import Cause
from model_store.origin import read_report
from model_store.store import Store
from service.base.columns import DEFAULT_COLUMNS, TableColumns, is_table
from service.base.errors import BadData
from service.jobs.context import JobContext, WatchedFiles, patiently
from service.jobs.promotion import LATEST, promote_if
from service.jobs.requests import (
    FittingJob,
    PromotionRule,
    PublishingJob,
    TrainingJob,
    TuningChoice,
    TuningJob,
)
from service.thresholds.store.state import ThresholdDatabase
from service.workflows.extend import carry_thresholds
from service.workflows.labelled import OnProgress
from service.workflows.train import TrainRequest, train_and_publish
from service.workflows.tune import OnKeep, request_of, tune_and_keep


class Publication(NamedTuple):
    """What publishes the version of a job.

    data, valid  files, if there are any
    """

    context: JobContext
    files: WatchedFiles
    data: Path | None
    valid: Path | None

    @property
    def store(self) -> Store:
        """The store, whose history names the job."""
        job = self.context.job
        return Store(self.context.store.root, by=Cause(f"a {job.kind} job", job=job.id))

    @property
    def on_progress(self) -> OnProgress:
        """What tells how far it is, and looks at the files before the version is published."""
        return self.files.watching(self.context.on_progress, "publish")

    def marks(self, request: PublishingJob) -> dict[str, Any]:
        """Return the fields `origin`, `latest` and `made_for` of a workflow's request."""
        rule, job = _rule(request), self.context.job.id
        return {
            "origin": {"job": job, "rule": _rule_json(request.promotion)},
            "latest": rule is None or rule.alias not in (LATEST, None),
            "made_for": job,
        }


R = TypeVar("R", bound=PublishingJob)


def run(context: JobContext, request: TrainingJob) -> dict[str, Any]:
    """Do the job; return the figures of the version."""
    found = publish(context, request, _train)
    if request.base is not None:
        carry(context)
    return found


def carry(context: JobContext) -> None:
    """Give the version that the job has published the thresholds of the one before, if they fit."""
    store, name = context.store, context.job.model
    published = store.published(name, context.job.id)
    if published is not None:
        thresholds = ThresholdDatabase(context.database)
        patiently(lambda: carry_thresholds(store, name, published.version, thresholds))


def publish(context: JobContext, request: R, make: Callable[[Publication, R], Any]) -> dict[str, Any]:
    """Do a job that publishes a version, which `make` does; return the figures of the version."""
    files = WatchedFiles(context.data)
    rule = _rule(request)
    manifest = _published(context)
    valid: Path | None = None
    if manifest is None or request.thresholds is not None or (rule is not None and rule.conditions):
        data, valid = _files(context, files, request)
        if manifest is None:
            make(Publication(context, files, data, valid), request)
            manifest = _published(context)
            assert manifest is not None
    version = manifest.version
    patiently(lambda: context.leases.record_version(context.claim, version))
    if request.thresholds is not None:
        assert valid is not None
        _tune(context, files, version, request.thresholds, valid, request.columns())
    if rule is not None and rule.alias is not None:
        promote_if(context, rule, version, valid, request.columns())
    return {
        "trainer": manifest.trainer.name,
        "model_bytes": manifest.model_bytes,
        "rows": manifest.data.rows,
        "labels": manifest.n_labels,
        "metrics": dict(manifest.metrics),
        **_notes(context, version),
    }


def _notes(context: JobContext, version: int) -> dict[str, Any]:
    """Return what the version's report says besides its figures: warnings, and what was tried."""
    report = read_report(context.store.open(context.job.model, version, verify=False).arrays)
    return {name: report[name] for name in ("warnings", "features", "rerank", "combined") if name in report}


def _rule(request: PublishingJob) -> PromotionRule | None:
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


def _files(
    context: JobContext, files: WatchedFiles, request: PublishingJob
) -> tuple[Path | None, Path | None]:
    """Return the file of rows and the validation file, if there are any: parts of the data where it is
    split.
    """
    valid = None if request.valid is None else files.find(request.valid, "valid")
    if not isinstance(request, FittingJob):
        return None, valid
    data = files.find(request.data)
    if request.split is None:
        return data, valid
    share, report = request.split, context.on_progress
    return split_lines(data, context.work, share, request.seed, report, request.columns())


def _train(made: Publication, request: TrainingJob) -> None:
    assert made.data is not None
    names = None if request.label_names is None else made.files.find(request.label_names, "label_names")
    train = TrainRequest(
        trainer=request.trainer,
        data=made.data,
        valid=made.valid,
        parameters=dict(request.parameters),
        label_names=names,
        columns=request.columns(),
        weights=request.weights,
        seed=request.seed,
        calibrate=request.calibrate,
        rerank=request.rerank,
        keep_rows=request.keep_rows,
        base=None if request.base is None else parse_named(request.base),
        threads=made.context.threads,
        **made.marks(request),
    )
    train_and_publish(made.store, made.context.job.model, train, made.on_progress)


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


def run_tuning(context: JobContext, request: TuningJob) -> dict[str, Any]:
    """Do the job; return the report of the tuning.

    A run that finds a result finds the thresholds kept: it has nothing to do.
    """
    job = context.job
    if job.result is not None:
        return dict(job.result)
    files = WatchedFiles(context.data)
    data = files.find(request.data)
    test = None if request.test is None else files.find(request.test, "test")
    version = job.version
    if version is None:
        version = context.store.resolve(job.model, "latest" if request.version is None else request.version)
        patiently(lambda: context.leases.record_version(context.claim, version))

    def on_keep(connection: Connection, report: dict[str, Any]) -> None:
        files.check()
        context.leases.record_result(connection, context.claim, report)

    return tune(context, version, request, data, test, request.columns(), request.shadow, on_keep)


def tune(
    context: JobContext,
    version: int,
    choice: TuningChoice,
    data: Path,
    test: Path | None,
    columns: TableColumns,
    shadow: bool,
    on_keep: OnKeep,
) -> dict[str, Any]:
    """Tune a version's thresholds and keep them, as `tune_and_keep` does; return its report."""
    start = None if choice.start is None else (choice.start[0], choice.start[1])
    how = choice.empty_labels, choice.kappa, start, context.threads, columns
    request = request_of([choice.method], data, test, *how)
    opened = context.store.open(context.job.model, version)
    report = context.on_progress
    return tune_and_keep(
        opened, context.database, request, shadow=shadow, on_progress=report, on_keep=on_keep
    )


_TELL_EVERY = 10_000


def split_lines(
    data: Path,
    directory: Path,
    share: float,
    seed: int,
    on_progress: OnProgress,
    columns: TableColumns = DEFAULT_COLUMNS,
) -> tuple[Path, Path]:
    """Write the lines of a file to two in a directory; return those: to train on, and to measure on.

    Each line is kept out with probability `share`, by a generator of `seed`: the same call, the same files.
    Rows of a table become JSON lines. The header of a .txt file gets the right numbers of rows. Lines stay in
    their order. Raises BadData where one of the two would be empty, or the file has no header.
    """
    name = f"{data.name}.jsonl" if is_table(data) else data.name.removesuffix(".gz")
    paths = tuple(directory / part / name for part in ("train", "valid"))
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    counts = [0, 0]
    header = b""
    with _opened(data, columns) as source, paths[0].open("wb") as train, paths[1].open("wb") as valid:
        lines = _lines(source, has_header=name.endswith(".txt"))
        if name.endswith(".txt"):  # there an empty line is a row
            header = next(lines, b"")
            for file in (train, valid):
                file.write(_header_with(header, 0, data))
        for number, line in enumerate(lines):
            part = int(rng.random() < share)
            (train, valid)[part].write(line)
            counts[part] += 1
            if number % _TELL_EVERY == 0:
                on_progress("split", number, 0)
        for file, count in zip((train, valid), counts, strict=True):
            if header:
                file.seek(0)
                file.write(_header_with(header, count, data))
    if not all(counts):
        fault = f"expected rows to train on and rows to measure on, found {counts[0]} and {counts[1]}"
        raise BadData(f"{data}: {fault}: split another share")
    return paths[0], paths[1]


def _opened(data: Path, columns: TableColumns) -> BinaryIO:
    if is_table(data):
        from service.datasets.tables import TableLines  # with it come kernels

        return TableLines(data, columns, with_labels=True)  # type: ignore[return-value]
    return gzip.open(data) if data.suffix == ".gz" else data.open("rb")  # type: ignore[return-value]


def _lines(source: BinaryIO, *, has_header: bool) -> Iterator[bytes]:
    """Yield the lines, each with its end; empty ones, which are rows after a header only, left out."""
    read: Callable[[], bytes] = source.readline
    while line := read():
        if has_header or line.strip():
            yield line if line.endswith(b"\n") else line + b"\n"


def _header_with(header: bytes, count: int, data: Path) -> bytes:
    """Return the header of a .txt file with another number of rows, as long as it was."""
    fields = header.split()
    if len(fields) != 3:
        raise BadData(f"{data}:1: expected a header of 3 numbers, found {header[:60]!r}")
    return b" ".join([str(count).zfill(len(fields[0])).encode(), *fields[1:]]) + b"\n"
