"""Runs of a training job that are killed at random moments, by a process that forks them.

A run is killed after a number of calls of the file system, as in `tests.helpers.publishers`, and of
progress. Then another run of the same job follows, as after the end of its lease, until one
succeeds.

python -m tests.helpers.job_runners DIRECTORY JOBS SEED prints one JSON object. The parent has
loaded everything before it forks, so that a run takes a fraction of a second.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from tests.helpers.jobs_helpers import TRAINING, Desk, settings_for
from tests.helpers.publishers import SignallingFileSystem
from xylem.admin.jobs.kinds import run_job
from xylem_store.store import Store

REQUEST: dict[str, Any] = {
    **TRAINING,
    "thresholds": {"method": "ofo"},
    "promotion": {"alias": "stable", "if": [{"metric": "P@5", "least_change": -100.0}]},
}
ATTEMPTS = 4
"""The number of runs of a job: the last one is not killed."""


def run_once(directory: Path, calls: int) -> None:
    """Run the waiting job as a worker would; write a byte to descriptor `calls` for each call."""
    desk = Desk(settings_for(directory, job_attempts_max=100))
    claim = desk.claim()
    store = Store(desk.settings.store, fs=SignallingFileSystem(calls))
    context = desk.context(claim, store, lambda *_: os.write(calls, b"!"))
    desk.leases.succeed(claim, run_job(context))
    desk.database.close()


def calls_of(directory: Path) -> int:
    """Return how many calls a complete run makes, approximately."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    run_once(directory, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        return len(file.read())


def main(directory: Path, n_jobs: int, seed: int) -> dict[str, Any]:
    """Run jobs, each killed a few times; count lost versions, and those published twice."""
    rng = random.Random(seed)
    desk = Desk(settings_for(directory, job_attempts_max=100))
    desk.jobs.submit("training", REQUEST)
    calls_max = calls_of(directory)
    kills, ids = 0, []
    for number in range(n_jobs):
        job_id = desk.jobs.submit("training", {**REQUEST, "seed": number}).id
        ids.append(job_id)
        for attempt in range(ATTEMPTS):
            read_end, write_end = os.pipe()
            desk.database.close()
            child = os.fork()
            if child == 0:
                os.close(read_end)
                run_once(directory, write_end)
                os._exit(0)
            os.close(write_end)
            n_calls_left = rng.randint(1, calls_max) if attempt < ATTEMPTS - 1 else -1
            while n_calls_left and os.read(read_end, 1):
                n_calls_left -= 1
            if n_calls_left == 0:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read_end)
            if desk.jobs.get(job_id).state == "succeeded":
                break
            kills += 1
            desk.end_lease(job_id)
    store = Store(desk.settings.store)
    versions = store.versions("m")
    for version in versions:
        store.verify("m", version)
    store.collect()
    jobs = [desk.jobs.get(job_id) for job_id in ids]
    published = [store.published("m", job.id) for job in jobs]
    with desk.database.read() as connection:
        epochs = list(connection.exec_driver_sql("SELECT epoch FROM threshold_versions").scalars())
    desk.database.close()
    return {
        "kills": kills,
        "succeeded": sum(job.state == "succeeded" for job in jobs),
        "versions": len(versions),
        "distinct": len({job.version for job in jobs}),
        "of_their_jobs": sum(
            manifest is not None and manifest.version == job.version
            for job, manifest in zip(jobs, published, strict=True)
        ),
        "tuned_once": epochs.count(1),
        "stable": store.resolve("m", "stable"),
        "latest": store.resolve("m"),
        "left": len(list((desk.settings.store / "staging").iterdir())),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
