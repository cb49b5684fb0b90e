"""Jobs for the tests: settings, queues, small data files, and requests for them."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import update

from tests.conftest import settings_of
from xylem.admin.jobs.context import JobContext
from xylem.admin.jobs.files import WORK, make_directory
from xylem.admin.jobs.jobs import Jobs
from xylem.admin.jobs.leases import Claim, Leases
from xylem.admin.jobs.worker import Worker
from xylem.base.db.engine import Database, default_url
from xylem.base.db.tables import JOBS
from xylem.base.settings import Settings
from xylem_store.store import Store

N_LABELS = 6

TRAINING: dict[str, Any] = {
    "model": "m",
    "trainer": "label-tree",
    "data": "train.jsonl",
    "valid": "valid.jsonl",
    "parameters": {"trees": 1},
}
"""A training that takes a moment."""


def write_data(path: Path, n_rows: int, seed: int = 0, noise: float = 0.0) -> Path:
    """Write texts whose first word tells the label; in a share `noise` of them it is random."""
    rng = random.Random(seed)
    with path.open("w") as file:
        for _ in range(n_rows):
            label = rng.randrange(N_LABELS)
            word = rng.randrange(N_LABELS) if rng.random() < noise else label
            text = f"first{word} " + " ".join(f"word{rng.randrange(30)}" for _ in range(4))
            file.write(json.dumps({"text": text, "labels": [f"label{label}"]}) + "\n")
    return path


def settings_for(directory: Path, **changes: Any) -> Settings:
    """Make a store and a data directory with data to train on; return settings for them."""
    store, data = directory / "store", directory / "data"
    store.mkdir(exist_ok=True)
    if not data.exists():
        data.mkdir()
        write_data(data / "train.jsonl", 200, seed=1)
        write_data(data / "valid.jsonl", 80, seed=2)
    changes = {"job_memory_bytes_max": 1 << 30, "job_threads_max": 1, "job_nice": 0, **changes}
    return settings_of(store, data_dir=data, **changes)


class Desk:
    """The jobs of a store, with the database, the queue and the leases."""

    def __init__(
        self, settings: Settings, url: str | None = None, database: Database | None = None
    ) -> None:
        self.settings = (
            settings if url is None else settings.model_copy(update={"database_url": url})
        )
        self.database = database or Database(url or default_url(settings.store))
        self.jobs = Jobs(self.database, self.settings)
        self.leases = Leases(self.database, self.settings.limits)

    def limited(self, **limits: Any) -> Desk:
        """Return a desk with other limits that shares the database connections."""
        changed = self.settings.limits.model_copy(update=limits)
        return Desk(self.settings.model_copy(update={"limits": changed}), database=self.database)

    def add(self, model: str = "m", **request: Any) -> str:
        """Add a job to the queue without checking its request; return its id."""
        return self.jobs.add("training", model, request).id

    def claim(self) -> Claim:
        """Claim the oldest waiting job, which must exist."""
        claim = self.leases.claim("w")
        assert claim is not None
        return claim

    def finish(self, result: dict[str, Any] | None = None) -> None:
        """Claim the oldest waiting job, and mark it as succeeded."""
        self.leases.succeed(self.claim(), result)

    def context(
        self, claim: Claim, store: Store, on_progress: Callable[[str, int, int], None]
    ) -> JobContext:
        """Make the directory of a claimed job; return the context of its process."""
        home = make_directory(self.settings.store, claim.job.id)
        (home / WORK).mkdir(exist_ok=True)
        services = self.database, self.leases, self.jobs.data
        return JobContext(claim, self.settings, store, *services, home, on_progress)

    def end_lease(self, job_id: str) -> None:
        """End the lease of a job, as if its worker had died."""
        with self.database.write() as connection:
            connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(lease_until=0.0))


@contextlib.contextmanager
def working(settings: Settings, database: Database, *module: str) -> Iterator[None]:
    """Run a worker in this process while the block runs.

    module  the module of the jobs' processes, in place of the usual one
    """
    stopping = threading.Event()
    thread = threading.Thread(
        target=Worker(settings, database, "here", *module).run, args=(stopping,)
    )
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
