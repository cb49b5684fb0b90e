"""Windows of rows: parts that fit in memory, with every row dealt to one of them at random.

Trainers that learn from one row after the other learn badly if the rows are sorted, for example by
label: the last rows have the largest influence. Therefore all rows are shuffled: each row is dealt
to a window, and a trainer shuffles the rows of a window again for each pass. Rows in memory and
rows that are read from a file are dealt in the same way, and give the same bits. If the rows of a
file do not fit in one window, the crew stores the windows outside memory.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xylem.base import BadParameter, LabelRows, OnProgress, SparseRows
from xylem.trainers.source import (
    JoinedRows,
    RowsHandle,
    RowSource,
    Tools,
    TrainingSet,
    all_rows,
    derived_random,
    parts_with_progress,
)
from xylem_store import I64

# About the size of a window, in units of 8 bytes (`source.entries_of`): 64 MiB.
WINDOW_ENTRIES_MAX = 1 << 23

STAGE = "shuffle"

# Words of derived seeds: for dealing rows to windows, and for the order of the windows.
_DEAL = 7
_VISIT = 8


class _SelectedRows(NamedTuple):
    """A handle of some rows of a training set in memory.

    rows  int64[..]  positions of the rows; None: all rows
    """

    data: TrainingSet
    rows: I64 | None = None

    def get(self) -> TrainingSet:
        """Return the rows."""
        return self.data if self.rows is None else self.data.take(self.rows)


class RowWindows(NamedTuple):
    """The rows of a source in windows; within a window they are in the order of the source."""

    windows: list[RowsHandle]
    seed: int

    def visit(self, epoch: int) -> Iterator[tuple[int, TrainingSet]]:
        """Yield (number, rows) of each window, in an order that differs from epoch to epoch."""
        random = derived_random(self.seed, _VISIT, epoch)
        for number in random.permutation(len(self.windows)).tolist():
            yield number, self.windows[number].get()


def deal_windows(source: RowSource, tools: Tools) -> RowWindows:
    """Deal the rows of a source to windows.

    The source must not be one that can be read only once. The windows do not depend on how it cuts
    its parts. Rows of a file that do not fit in one window are stored by the crew. Raises
    BadParameter if the temporary directory has no room for them, Unavailable if it becomes full.
    Memory: two windows, and a part of the source. Disk: 8 bytes a non-zero, 4 a label, 16 a row.
    """
    census = source.census
    in_memory = source.reads == "rows"
    n_windows = max(1, -(-census.n_entries // WINDOW_ENTRIES_MAX))
    parts = [all_rows(source)] if in_memory else parts_with_progress(source, tools.progress, STAGE)
    if n_windows == 1:
        return RowWindows([_SelectedRows(TrainingSet.join(list(parts)))], tools.seed)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if not in_memory and free < 8 * census.n_entries:
        raise _no_room(8 * census.n_entries, f"{free >> 20} MiB")
    random = derived_random(tools.seed, _DEAL)
    pieces: list[list[RowsHandle]] = [[] for _ in range(n_windows)]
    for data in _whole_windows(parts):
        # one random number for each row, so that the windows do not depend on the parts
        window = (random.random(data.n_rows) * n_windows).astype(np.int64)
        for number, window_rows in enumerate(pieces):
            selection = _SelectedRows(data, np.flatnonzero(window == number))
            window_rows.append(selection if in_memory else tools.crew.hold(selection.get()))
    return RowWindows([JoinedRows(tuple(window_rows)) for window_rows in pieces], tools.seed)


def _whole_windows(parts: Iterable[TrainingSet]) -> Iterator[TrainingSet]:
    """Yield the rows of all parts, in sets of about the size of a window."""
    waiting: list[TrainingSet] = []
    for part in parts:
        waiting.append(part)
        if sum(piece.n_entries for piece in waiting) >= WINDOW_ENTRIES_MAX:
            yield TrainingSet.join(waiting)
            waiting = []
    if waiting:
        yield TrainingSet.join(waiting)


def load_rows(source: RowSource, progress: OnProgress) -> tuple[TrainingSet, bool]:
    """Return all rows of a source, and whether they are in a memory-mapped temporary file.

    They are in a file if they come from one and do not fit in one window; the operating system then
    keeps in memory what it has room for. Raises BadParameter if the temporary directory has no
    room. Disk: 8 bytes a non-zero, 4 a label, 16 a row.
    """
    census = source.census
    if source.reads == "rows" or census.n_entries <= WINDOW_ENTRIES_MAX:
        return TrainingSet.join(
            [*source.parts()]
            if source.reads == "rows"
            else [*parts_with_progress(source, progress, STAGE)]
        ), False
    n_rows = census.n_rows
    n_carried = int(census.label_rows.sum())
    row_ptr = mapped(n_rows + 1, np.int64)
    label_ptr = mapped(n_rows + 1, np.int64)
    indices, values = (mapped(census.n_nonzeros, dtype) for dtype in (np.int32, np.float32))
    label_ids = mapped(n_carried, np.int32)
    n = nnz = label_end = 0
    for rows, labels in parts_with_progress(source, progress, STAGE):
        ends = n + rows.n_rows, nnz + len(rows.indices), label_end + len(labels.indices)
        if ends[0] > n_rows or ends[1] > len(indices) or ends[2] > n_carried:
            continue  # the file has grown since it was counted: its reader raises this at the end
        row_ptr[n : ends[0] + 1] = nnz + rows.indptr
        label_ptr[n : ends[0] + 1] = label_end + labels.indptr
        indices[nnz : ends[1]] = rows.indices
        values[nnz : ends[1]] = rows.values
        label_ids[label_end : ends[2]] = labels.indices
        n, nnz, label_end = ends
    return TrainingSet(
        SparseRows(row_ptr, indices, values, census.n_features),
        LabelRows(label_ptr, label_ids, len(census.label_rows)),
    ), True


def mapped(n: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of n zeros in a memory-mapped temporary file without a name.

    The file is removed with the array. Raises BadParameter if there is no room for it.
    """
    n_bytes = n * np.dtype(dtype).itemsize
    if not n:
        return np.empty(0, dtype)
    with tempfile.TemporaryFile() as file:
        try:
            # allocates the blocks now: on a full disk this raises an error, where a write to the
            # mapped array would end the process by a signal
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise _no_room(n_bytes, f"none left: {error.strerror}") from error
        return np.asarray(np.memmap(file, dtype, "r+", shape=n))


def _no_room(n_bytes: int, room: str) -> BadParameter:
    return BadParameter(
        f"TMPDIR: expected room for {n_bytes >> 20} MiB in {tempfile.gettempdir()}, found {room}; "
        "name a larger directory"
    )
