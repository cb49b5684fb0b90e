"""A tuning job: what `xylem thresholds` does. Its result is kept in the transaction that keeps the
thresholds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from service.columns import TableColumns
from service.jobs.context import JobContext, WatchedFiles, patiently
from service.jobs.requests import TuningChoice, TuningJob
from service.workflows.tune import OnKeep, request_of, tune_and_keep


def run(context: JobContext, request: TuningJob) -> dict[str, Any]:
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
