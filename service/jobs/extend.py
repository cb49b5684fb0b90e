"""Jobs that add labels to a version."""

from __future__ import annotations

from typing import Any

from model_store.identifiers import LATEST
from service.jobs.context import JobContext
from service.jobs.requests import ExtendJob
from service.jobs.training import Publication, publish
from service.workflows.extend import extend_and_publish
from service.workflows.train import TrainRequest


def run(context: JobContext, request: ExtendJob) -> dict[str, Any]:
    """Add labels to a version; return the figures of the version that was published."""
    return publish(context, request, _extend)


def _extend(made: Publication, request: ExtendJob) -> None:
    assert made.data is not None
    find = made.files.find
    wanted = TrainRequest(
        "",
        made.data,
        made.valid,
        label_names=None if request.label_names is None else find(request.label_names, "label_names"),
        columns=request.columns(),
        threads=made.context.threads,
        base=(request.model, LATEST if request.version is None else request.version),
        rows=[find(name, f"rows[{i}]") for i, name in enumerate(request.rows)],
        **made.marks(request),
    )
    extend_and_publish(made.store, request.model, wanted, made.on_progress)
