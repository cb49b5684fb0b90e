"""How models learn by their recipes: what waits for the next run, and what runs have reported."""

import contextlib
import datetime
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from xylem.admin.jobs.jobs import LEARN, Jobs
from xylem.admin.jobs.schedules import Schedules
from xylem.base import BadRequest
from xylem.thresholds import FeedbackRows
from xylem_store import Store, StoreError, learnt_feedback, read_origin, read_report

RUNS_MAX = 50  # runs of a recipe in an answer


class ModelLearning(NamedTuple):
    """How the models of a store learn, as `xylem.Client` shows it. Calls block.

    All methods raise DatabaseUnavailable, and ModelNotFound for a model that does not exist and has
    no recipe.
    """

    store: Store
    schedules: Schedules
    jobs: Jobs
    rows: FeedbackRows

    def learning(self, model: str) -> dict[str, Any]:
        """Return the recipe of a model, its schedule, its next run, and the runs so far."""
        recipe = None
        with contextlib.suppress(BadRequest):
            recipe = self.schedules.recipe(model)["recipe"]
        if recipe is None:
            self.store.resolve(model)  # raises ModelNotFound if there is no such model
        runs = list(islice(self._runs(model), RUNS_MAX))
        span = self.rows.span(model, recipe and recipe["feedback_days"])
        if runs:
            span = span._replace(since=max(span.since, runs[0]["until"]))
        schedules = (
            {
                **{name: schedule[name] for name in ("id", "cron", "rows")},
                "next_at": schedule["next"] and _seconds(schedule["next"]),
            }
            for schedule in self.schedules.schedules()
            if (schedule["kind"], schedule["model"]) == (LEARN, model)
        )
        jobs = self.jobs.list(model=model, kind=LEARN, limit=1)
        return {
            "recipe": recipe,
            "schedule": next(schedules, None),
            "n_waiting": self.rows.count(span),
            "job": next(
                ({"id": job.id, "state": job.state} for job in jobs if not job.has_ended), None
            ),
            "runs": runs,
        }

    def _runs(self, model: str) -> Iterator[dict[str, Any]]:
        """Yield the reports of the versions that runs have published, the newest first."""
        for version in reversed(self.store.versions(model)):
            try:
                opened = self.store.open(model, version, verify=False)
                report = read_report(opened.arrays).get("learning", {})
                until = learnt_feedback(opened.arrays).get(model, 0.0)
                # a version with another vocabulary has the report of its parent, and no recipe
                is_run = "recipe" in read_origin(opened.arrays)
            except StoreError:  # deleted meanwhile, or damaged: the others can be shown
                continue
            if is_run and report:
                yield {
                    "version": version,
                    "at": _seconds(opened.manifest.created_at),
                    "until": until,
                    **report["promotion"],
                    "judges": report["judges"]["rows"],
                    "figures": report["judges"]["figures"],
                    **{name: report[name] for name in ("corrections", "concepts", "sources")},
                }


def _seconds(time: str) -> float:
    return datetime.datetime.fromisoformat(time).timestamp()
