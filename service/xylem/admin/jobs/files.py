"""The files of jobs, in the store, which all workers and servers share: `STORE/jobs/ID/`.

log, log.before  the log, written by the job's process and its worker: the newest bytes, bounded
result.jsonl     the answers of a batch that has succeeded
result.part      the answers of a batch that has not succeeded yet
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

# A directory in the job's directory, for files that are needed only while the job runs.
WORK = "work"

_LOG = "log"
_LOG_OLD_HALF = "log.before"
_ID = re.compile(r"[0-9a-f]{8,32}")


def is_id(text: str) -> bool:
    """Return whether a text has the form of a job's id."""
    return _ID.fullmatch(text) is not None


def directory_of(store: Path, job_id: str) -> Path:
    """Return the directory of a job, which need not exist."""
    return store / JOBS_DIR / job_id


def can_work(store: Path) -> bool:
    """Return whether files of jobs can be written: a replica may mount the store read-only."""
    try:
        (store / JOBS_DIR).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(store / JOBS_DIR, os.W_OK | os.X_OK)


def make_directory(store: Path, job_id: str) -> Path:
    """Create the directory of a job if it does not exist, and return it. Raises OSError."""
    directory = directory_of(store, job_id)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def remove_leftovers(store: Path, job_id: str) -> None:
    """Remove the files that an ended job does not need; its log and its result stay."""
    directory = directory_of(store, job_id)
    shutil.rmtree(directory / WORK, ignore_errors=True)
    for name in (PART, OFFSET):
        with contextlib.suppress(OSError):
            (directory / name).unlink()


def remove_forgotten(store: Path, known_ids: Callable[[], Iterable[str]]) -> None:
    """Remove the directories of jobs that are not known any more.

    The directories are listed before `known_ids` is called: so the directory of a job that begins
    meanwhile is not in the list.
    """
    with contextlib.suppress(OSError):
        entries = [entry for entry in os.scandir(store / JOBS_DIR) if _ID.fullmatch(entry.name)]
        remaining_ids = set(known_ids())
        for entry in entries:
            if entry.name not in remaining_ids:
                shutil.rmtree(entry.path, ignore_errors=True)


def read_log(store: Path, job_id: str) -> bytes:
    """Return the log of a job, empty if there is none yet."""
    directory = directory_of(store, job_id)
    content = b""
    for name in (_LOG_OLD_HALF, _LOG):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            content += (directory / name).read_bytes()
    return content


class BoundedLog:
    """The log of a job, never longer than `bytes_max`: then its oldest half is dropped.

    If the disk is full, lines of the log are lost, and the job goes on. Thread-safe.
    """

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._path = directory / _LOG
        self._old_half_path = directory / _LOG_OLD_HALF
        self._half = max(bytes_max // 2, 1)
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append bytes; if they are more than half of the bound, only their end."""
        data = data[-self._half :]
        with self._lock, contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_size + len(data) > self._half:
                    self._path.replace(self._old_half_path)
            with self._path.open("ab") as file:
                file.write(data)
