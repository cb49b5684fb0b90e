"""What the run of a job works with."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from xylem.admin.jobs.data import DataRoot, Fingerprint, fingerprint
from xylem.admin.jobs.files import WORK
from xylem.admin.jobs.job import Job
from xylem.admin.jobs.leases import Claim, Leases
from xylem.base import BadData, Database, DatabaseUnavailable, Settings
from xylem.workflows import OnProgress
from xylem_store import LATEST, Store

PATIENCE_SECONDS = 60.0
"""So long a run waits for a database that does not answer; then the job waits again
for a worker.
"""

_PAUSE_SECONDS = 1.0

T = TypeVar("T")


class JobContext(NamedTuple):
    """A claimed job, and what its run needs.

    directory   the job's own in the store
    on_progress  tells how far it is
    """

    claim: Claim
    settings: Settings
    store: Store
    database: Database
    leases: Leases
    data: DataRoot
    directory: Path
    on_progress: OnProgress

    @property
    def job(self) -> Job:
        """Return the job as it was when it was claimed."""
        return self.claim.job

    @property
    def work(self) -> Path:
        """Return a directory for what is needed while the job runs."""
        return self.directory / WORK

    @property
    def threads(self) -> int:
        """Return how many threads the job may have."""
        return self.settings.limits.job_threads_max

    def resolve_version(self, requested: int | str | None) -> int:
        """Return the version that the job works with, which stays the
        same whatever aliases do meanwhile.
        """
        if self.job.version is not None:
            return self.job.version
        version = self.store.resolve(self.job.model, LATEST if requested is None else requested)
        patiently(lambda: self.leases.record_version(self.claim, version))
        return version


class WatchedFiles:
    """Data files of a run: found at its beginning, and looked at again before anything is kept."""

    def __init__(self, data: DataRoot) -> None:
        self._data = data
        self._fingerprints: dict[Path, Fingerprint] = {}

    def find(self, name: str, field: str = "data") -> Path:
        """Return the path of a data file, and remember what it is like.

        Raises BadRequest and BadData.
        """
        path = self._data.path_of(name, field)
        self._fingerprints[path] = fingerprint(path)
        return path

    def prints(self) -> list[Fingerprint]:
        """Return what the files were like."""
        return list(self._fingerprints.values())

    def check(self) -> None:
        """Raise BadData if one of the files was changed, replaced or removed since."""
        for path, expected in self._fingerprints.items():
            if fingerprint(path) != expected:
                fault = "expected a file that stays as it is while a job reads it, found it changed"
                raise BadData(f"{path}: {fault}")

    def watching(self, on_progress: OnProgress, *phases: str) -> OnProgress:
        """Return `on_progress` with a check of the files at the beginning of these phases."""

        def report(phase: str, done: int, total: int) -> None:
            if phase in phases:
                self.check()
            on_progress(phase, done, total)

        return report


def patiently(call: Callable[[], T]) -> T:
    """Return what a call of the database returns; it is tried again
    for a while when there is no answer.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except DatabaseUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SECONDS)
