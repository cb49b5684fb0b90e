"""The files of jobs, in the store, which all workers and servers
share: `STORE/jobs/ID/` for each job.

log, log.before  what the job's process wrote, and its worker told: the newest bytes, bounded
result.jsonl     the answers of a batch that has succeeded; result.part those of one that has not
                 yet
"""

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

JOBS_DIR = "jobs"
RESULT = "result.jsonl"
PART = "result.part"
OFFSET = "result.offset"
WORK = "work"
"""A directory in a job's for what it needs while it runs."""

_LOG = "log"
_LOG_BEFORE = "log.before"
_ID = re.compile(r"[0-9a-f]{8,32}")


def is_id(text: str) -> bool:
    """Return whether this is what the id of a job may be."""
    return _ID.fullmatch(text) is not None


def directory_of(store: Path, job_id: str) -> Path:
    """Return the directory of a job; it need not be there."""
    return store / JOBS_DIR / job_id


def can_work(store: Path) -> bool:
    """Return whether files of jobs can be written: a replica may have the store read-only."""
    try:
        (store / JOBS_DIR).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(store / JOBS_DIR, os.W_OK | os.X_OK)


def make_directory(store: Path, job_id: str) -> Path:
    """Make the directory of a job where there is none, and return it. Raises OSError."""
    directory = directory_of(store, job_id)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def remove_leftovers(store: Path, job_id: str) -> None:
    """Remove what a job that has ended needs no more; its log and its result stay."""
    directory = directory_of(store, job_id)
    shutil.rmtree(directory / WORK, ignore_errors=True)
    for name in (PART, OFFSET):
        with contextlib.suppress(OSError):
            (directory / name).unlink()


def remove_forgotten(store: Path, known_ids: Callable[[], Iterable[str]]) -> None:
    """Remove the directories of jobs whose ids are not known any more.

    The directories are listed before the ids are asked for: one of a job that begins meanwhile is
    not among them.
    """
    with contextlib.suppress(OSError):
        entries = [entry for entry in os.scandir(store / JOBS_DIR) if _ID.fullmatch(entry.name)]
        keep = set(known_ids())
        for entry in entries:
            if entry.name not in keep:
                shutil.rmtree(entry.path, ignore_errors=True)


def read_log(store: Path, job_id: str) -> bytes:
    """Return the log of a job, empty when there is none yet."""
    directory = directory_of(store, job_id)
    content = b""
    for name in (_LOG_BEFORE, _LOG):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            content += (directory / name).read_bytes()
    return content


class BoundedLog:
    """The log of a job: written line by line, never longer than
    `bytes_max`; the oldest half goes first.

    A disk that is full costs the log, not the job. Thread-safe.
    """

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._path = directory / _LOG
        self._before = directory / _LOG_BEFORE
        self._half = max(bytes_max // 2, 1)
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append bytes; of more than half of what the log may have, the end."""
        data = data[-self._half :]
        with self._lock, contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_size + len(data) > self._half:
                    self._path.replace(self._before)
            with self._path.open("ab") as file:
                file.write(data)
