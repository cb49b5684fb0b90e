"""A store with jobs that run in this process, and requests for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.jobs_helpers import N_LABELS, TRAINING, Desk, settings_for
from xylem.admin.jobs.context import JobContext
from xylem.admin.jobs.job import Job
from xylem.admin.jobs.kinds import run_job
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

At = Callable[[str], None] | None
"""What is called at the beginning of each phase of a job."""


LEASE_SECONDS = 3600
"""No test takes so long, even on a machine with much else to do."""


def train_plainly(directory: Path) -> None:
    """Publish a version of m that no job made."""
    request = TrainRequest(
        trainer="label-tree", data=directory / "data" / "train.jsonl", parameters=("trees=1",)
    )
    train_and_publish(Store(directory / "store"), "m", request)


class Place:
    """A store with its jobs: runs them in this process, as their processes would."""

    def __init__(self, directory: Path) -> None:
        # A refused job stays claimed here: a lease that ended would have it claimed instead of
        # the job that a test has just submitted.
        self.desk = Desk(settings_for(directory)).limited(job_lease_seconds=LEASE_SECONDS)
        self.store = Store(self.desk.settings.store)
        self.data = directory / "data"
        self.phases: list[str] = []

    def submit(self, kind: str, request: dict[str, Any]) -> str:
        return self.desk.jobs.submit(kind, request).id

    def run(self, job_id: str, at: At = None) -> Job:
        """Claim the job, run it, and let it have succeeded."""
        context = self.claimed(job_id, at)
        result = run_job(context)
        self.desk.leases.succeed(context.claim, result)
        return self.desk.jobs.get(job_id)

    def die(self, job_id: str, phase: str, after: str = "") -> None:
        """Run the job as a process that dies when a phase begins,
        after another one if one is named.
        """

        def at(now: str) -> None:
            if now == phase and (not after or after in self.phases):
                raise Killed

        with pytest.raises(Killed):
            self.run(job_id, at)
        self.desk.end_lease(job_id)

    def do(self, kind: str, request: dict[str, Any], at: At = None) -> Job:
        """Submit a job and run it."""
        return self.run(self.submit(kind, request), at)

    def train(self, at: At = None, **changes: Any) -> Job:
        return self.do("training", {**TRAINING, **changes}, at)

    def batch(self, **request: Any) -> Job:
        return self.do("batch", {"model": "m", **request})

    def predictions(self, job: Job) -> list[Any]:
        """The answers of a batch, without the ids, of which no two are alike."""
        lines = self.desk.jobs.result_file(job.id).read_bytes().splitlines()
        return [{**json.loads(line), "prediction_id": None} for line in lines]

    def tuned(self, model: str, version: int) -> Tuned | None:
        return ThresholdDatabase(self.desk.database).load(model, version)

    def claimed(self, job_id: str, at: At = None) -> JobContext:
        claim = self.desk.claim()
        assert claim.job.id == job_id

        def told(phase: str, done: int, total: int) -> None:
            if self.phases[-1:] != [phase]:
                self.phases.append(phase)
                if at is not None:
                    at(phase)

        return self.desk.context(claim, self.store, told)


class Killed(BaseException):
    """The process of a job dies here."""


def rule(alias: str, *conditions: tuple[str, float]) -> dict[str, Any]:
    return {
        "alias": alias,
        "if": [{"metric": name, "least_change": change} for name, change in conditions],
    }


ANYWAY = rule("latest", ("P@1", -100.0))
"""A rule that holds, after both versions were measured."""


VOCABULARY = "uri,label_en\n" + "".join(f"label{i},first{i}\n" for i in range(N_LABELS))
COMBINE = {"model": "both", "members": ["m@1"], "vocabulary": "names.csv", "language": "en"}
