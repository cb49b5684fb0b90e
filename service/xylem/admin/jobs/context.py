"""The context of a run of a job: its claim, its store and its files."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from xylem.admin.jobs.data import DataRoot, Fingerprint, fingerprint
from xylem.admin.jobs.files import WORK
from xylem.admin.jobs.job import Job
from xylem.admin.jobs.leases import Claim, Leases
from xylem.base import BadData, Database, DatabaseUnavailable, OnProgress, Settings
from xylem_store import LATEST, Store

# How long a run waits for a database that does not answer; after that, the job is queued again.
PATIENCE_SECONDS = 60.0

_PAUSE_SECONDS = 1.0

T = TypeVar("T")


class JobContext(NamedTuple):
    """A claimed job, and the objects that its run needs.

    directory    the job's own directory in the store
    on_progress  called with how far the job is
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
        """Return a directory for files that are needed only while the job runs."""
        return self.directory / WORK

    @property
    def threads(self) -> int:
        """Return how many threads the job may use."""
        return self.settings.limits.job_threads_max

    def resolve_version(self, requested: int | str | None) -> int:
        """Return the version that the job works with, and record it with the job.

        Later runs of the job work with the same version, even if aliases have moved.
        """
        if self.job.version is not None:
            return self.job.version
        version = self.store.resolve(self.job.model, LATEST if requested is None else requested)
        patiently(lambda: self.leases.record_version(self.claim, version))
        return version


class WatchedFiles:
    """The data files of a run, which must not change until its result is stored."""

    def __init__(self, data: DataRoot) -> None:
        self._data = data
        self._fingerprints: dict[Path, Fingerprint] = {}

    def find(self, name: str, field: str = "data") -> Path:
        """Return the path of a data file, and remember its fingerprint.

        Raises BadRequest and BadData.
        """
        path = self._data.path_of(name, field)
        self._fingerprints[path] = fingerprint(path)
        return path

    def prints(self) -> list[Fingerprint]:
        """Return the fingerprints of the files as they were found."""
        return list(self._fingerprints.values())

    def check(self) -> None:
        """Raise BadData if one of the files has been changed, replaced or removed."""
        for path, expected in self._fingerprints.items():
            if fingerprint(path) != expected:
                raise BadData(
                    f"{path}: expected a file that does not change while a job reads it, "
                    "found it changed"
                )

    def watching(self, on_progress: OnProgress, *phases: str) -> OnProgress:
        """Return `on_progress` with a check of the files at the start of each of these phases."""

        def report(phase: str, done: int, total: int) -> None:
            if phase in phases:
                self.check()
            on_progress(phase, done, total)

        return report


def patiently(call: Callable[[], T]) -> T:
    """Call a function that uses the database, and return its result.

    While the database does not answer, the call is repeated for up to PATIENCE_SECONDS.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except DatabaseUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
