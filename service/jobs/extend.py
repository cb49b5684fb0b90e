"""Jobs that add labels to a version."""

from __future__ import annotations

from typing import Any

from model_store.identifiers import LATEST
from service.jobs.context import JobContext, patiently
from service.jobs.requests import ExtendJob
from service.jobs.training import Publication, publish
from service.thresholds.store.state import ThresholdDatabase
from service.workflows.extend import ExtendRequest, carry_thresholds, extend_and_publish


def run(context: JobContext, request: ExtendJob) -> dict[str, Any]:
    """Add labels to a version; return the figures of the version that was published."""
    found = publish(context, request, _extend)
    _carry(context, request.model)  # an earlier run may have died before it did
    return found


def _extend(made: Publication, request: ExtendJob) -> None:
    find = made.files.find
    wanted = ExtendRequest(
        find(request.data),
        [find(name, f"rows[{i}]") for i, name in enumerate(request.rows)],
        made.valid,
        None if request.label_names is None else find(request.label_names, "label_names"),
        request.columns(),
        made.context.threads,
        **made.marks(request),
    )
    version = LATEST if request.version is None else request.version
    extend_and_publish(made.store, request.model, version, wanted, made.on_progress)
    _carry(made.context, request.model)


def _carry(context: JobContext, model: str) -> None:
    """Give the version that the job has published the thresholds of the one before."""
    published = context.store.published(model, context.job.id)
    if published is not None:
        thresholds = ThresholdDatabase(context.database)
        patiently(lambda: carry_thresholds(context.store, model, published.version, thresholds))
