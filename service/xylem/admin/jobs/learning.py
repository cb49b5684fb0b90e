"""Jobs that repeat the recipe of a model, with what is new."""

import contextlib
from pathlib import Path
from typing import Any

from xylem.admin.jobs.context import JobContext, WatchedFiles, patiently
from xylem.admin.jobs.job import PromotionVerdict
from xylem.admin.jobs.model_learning import ModelLearning
from xylem.admin.jobs.requests import LearnJob
from xylem.base import BadInput
from xylem.serving import store_of
from xylem.thresholds import ThresholdDatabase
from xylem.workflows import LearnRequest, Recipe, learn_and_publish
from xylem_store import LATEST, Cause


def run(context: JobContext, request: LearnJob) -> dict[str, Any]:
    """Run the recipe of a model; return the report of the version.

    Feedback means the rows that had come when the job was submitted. Raises BadData, which names
    the files that a job may not read.
    """
    job = context.job
    learning = ModelLearning.of_store(context.store, context.database, context.settings)
    recipe = Recipe.from_json(patiently(lambda: learning.schedules.recipe(request.model))["recipe"])
    watched = WatchedFiles(context.data)
    files: dict[str, Path] = {}
    for name in recipe.files:
        with contextlib.suppress(BadInput):  # the run names those that are missing
            files[name] = watched.find(name)
    span = learning.rows.span(request.model, recipe.feedback_days, job.created)
    learn_request = LearnRequest(
        recipe=recipe,
        files=files,
        feedback=patiently(lambda: list(learning.rows.lines(span))),
        until=span.until,
        threads=context.threads,
        **patiently(lambda: learning.additions(request.model)),
        job=job.id,
    )
    report = learn_and_publish(
        store_of(context.store.root, Cause(f"a {job.kind} job", job=job.id)),
        request.model,
        learn_request,
        ThresholdDatabase(context.database),
        watched.watching(context.on_progress, "publish"),
    )
    promotion = report["promotion"]
    verdict = PromotionVerdict(
        promotion["promoted"], tuple(promotion["reasons"]), LATEST, report["baseline"]
    )
    patiently(lambda: context.leases.record_version(context.claim, report["version"]))
    patiently(lambda: context.leases.record_verdict(context.claim, verdict))
    return report
