"""A tuning job: what `xylem thresholds` does. Its result is kept in the transaction that keeps the
thresholds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from service.jobs.context import JobContext, WatchedFiles, patiently
from service.jobs.requests import TuningJob
from service.workflows.tune import request_of, tune_and_keep


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
    start = None if request.start is None else (request.start[0], request.start[1])
    methods = [request.method]
    columns = request.columns()
    tuning = request_of(
        methods, data, test, request.empty_labels, request.kappa, start, context.threads, columns
    )
    opened = context.store.open(job.model, version)

    def on_keep(connection: Connection, report: dict[str, Any]) -> None:
        files.check()
        context.leases.record_result(connection, context.claim, report)

    told = context.on_progress
    return tune_and_keep(
        opened, context.database, tuning, shadow=request.shadow, on_progress=told, on_keep=on_keep
    )
