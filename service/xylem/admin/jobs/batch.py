"""A batch job: writes predictions for the lines of a file, and can be killed at any moment.

Answers are appended to result.part. From time to time they are synced to the disk, and
result.offset records how many lines of the data are answered, and how long the answers are. A later
run cuts off what was written after that, skips those lines of the data, and continues.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from xylem.admin.jobs.context import JobContext, WatchedFiles
from xylem.admin.jobs.files import OFFSET, PART, RESULT
from xylem.admin.jobs.requests import BatchJob
from xylem.base import BadData, TableColumns, unfinished
from xylem.serving import (
    DEFAULT_ALIAS,
    TUNED,
    Answered,
    LineBlock,
    OnlineLearning,
    answers_of,
    blocks_of,
    denied_by,
    in_order,
    open_named,
    opened,
)

SYNC_SECONDS = 2.0  # the time between two syncs; a later run can continue from a sync


class Offset(NamedTuple):
    """The point from which a later run can continue.

    lines   lines of the data that are answered
    bad     how many of them were answered by an error
    bytes   the length of the answers
    prints  the fingerprints of the data file
    """

    lines: int = 0
    bad: int = 0
    bytes: int = 0
    prints: object = None


def run(context: JobContext, request: BatchJob) -> dict[str, int]:
    """Do the job; return the number of lines answered, of those with an error, and of bytes."""
    files = WatchedFiles(context.data)
    data = files.find(request.data)
    columns = request.columns(files.find)
    version = context.resolve_version(request.version)
    # an earlier run had finished, but was killed before it could report that
    if (context.directory / RESULT).exists():
        return _counts(_offset_of(context.directory))
    prints = json.loads(json.dumps(files.prints()))
    offset = _offset_of(context.directory)
    if offset.prints not in (None, prints):
        raise BadData(
            f"{data}: expected the file whose first lines were answered, found it changed"
        )
    learning = OnlineLearning(context.settings)
    try:
        context.on_progress("open", 0, 1)
        limits = context.settings.limits
        denied = denied_by(context.store, context.job.model, str(request.version or DEFAULT_ALIAS))
        served = open_named(
            context.store,
            context.job.model,
            version,
            learning,
            limits,
            denied=denied,
            is_tuned=request.threshold == TUNED,
        )
        offset = _answer(
            context,
            data,
            answers_of(served, request, limits),
            offset._replace(prints=prints),
            columns.for_version(served.featurizer.fields),
            rows_max=request.block_rows(limits),
        )
    finally:
        learning.close()
    files.check()
    (context.directory / PART).replace(context.directory / RESULT)
    return _counts(offset)


def _counts(offset: Offset) -> dict[str, int]:
    return {"lines": offset.lines, "bad": offset.bad, "bytes": offset.bytes}


def _answer(
    context: JobContext,
    data: Path,
    answer: Callable[[LineBlock], Answered],
    offset: Offset,
    columns: TableColumns,
    *,
    rows_max: int,
) -> Offset:
    """Answer the lines after an offset, at most rows_max together; return the offset at the end."""
    path = context.directory / PART
    path.touch(0o640)
    with path.open("r+b") as result_file, opened(str(data), columns) as source:
        result_file.truncate(offset.bytes)
        result_file.seek(offset.bytes)
        synced_at = time.monotonic()
        blocks = _blocks_after(
            blocks_of(source, context.settings.limits.line_bytes_max, rows_max), offset.lines
        )
        for answered in in_order(blocks, answer, context.threads, lambda: False):
            result_file.write(answered.lines)
            offset = offset._replace(
                lines=offset.lines + answered.n_rows + answered.n_bad,
                bad=offset.bad + answered.n_bad,
                bytes=offset.bytes + len(answered.lines),
            )
            position = source.raw.tell()
            # estimated from the position in the file
            n_lines = round(offset.lines * source.n_bytes / position) if position else 0
            context.on_progress(
                "predict", offset.lines, max(offset.lines, n_lines) if position else 0
            )
            if time.monotonic() > synced_at + SYNC_SECONDS:
                _sync(context.directory, result_file, offset)
                synced_at = time.monotonic()
        _sync(context.directory, result_file, offset)
    return offset


def _blocks_after(all_blocks: Iterator[LineBlock], n_lines: int) -> Iterator[LineBlock]:
    for block in all_blocks:
        n_done = n_lines + 1 - block.first
        if n_done < len(block.lines):
            yield block if n_done <= 0 else LineBlock(n_lines + 1, block.lines[n_done:])


def _sync(directory: Path, out: BinaryIO, offset: Offset) -> None:
    """Sync the answers so far to the disk, and then the offset."""
    out.flush()
    os.fsync(out.fileno())
    with unfinished(directory / OFFSET) as file:
        file.write(json.dumps(offset._asdict()).encode())


def _offset_of(directory: Path) -> Offset:
    """Return the offset that an earlier run stored; the beginning if there is none."""
    try:
        return Offset(**json.loads((directory / OFFSET).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return Offset()
