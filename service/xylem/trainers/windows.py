"""Rows in windows that fit in memory, each row dealt to one of them by chance.

Trainers that take one row after the other learn badly from rows in an order, as by label: what
comes last is remembered best. So all rows are shuffled: each is dealt to a window, and the rows of
a window are shuffled anew for each pass. Rows in memory and rows that are read from a file are
dealt alike, and train the same bits. Rows of a file that do not fit in one window are held by the
crew, by window, out of memory.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xylem.base import BadParameter, LabelRows, SparseRows
from xylem.trainers.source import (
    Census,
    HeldRows,
    JoinedRows,
    Progress,
    RowSource,
    Tools,
    TrainingSet,
    all_rows,
    derived_seed,
    parts_with_progress,
)
from xylem_store import I64

WINDOW_ENTRIES_MAX = 1 << 23
"""A window has about so many units of 8 bytes (`source.entries_of`): 64 MiB."""

STAGE = "shuffle"

_DEAL = 7
_VISIT = 8
"""What the seeds of dealing, and of the order of windows, are derived from besides
the training's.
"""


class _SelectedRows(NamedTuple):
    """Some rows of a training set in memory; None: all of them."""

    data: TrainingSet
    rows: I64 | None = None

    def get(self) -> TrainingSet:
        """Return the rows."""
        return self.data if self.rows is None else self.data.take(self.rows)


class RowWindows(NamedTuple):
    """The rows of a source in windows, as often as needed, each in the order of the source."""

    windows: list[HeldRows]
    seed: int

    def visit(self, epoch: int) -> Iterator[tuple[int, TrainingSet]]:
        """Yield the number and the rows of each window; windows have another order in
        each epoch.
        """
        random = np.random.Generator(np.random.PCG64(derived_seed(self.seed, _VISIT, epoch)))
        for number in random.permutation(len(self.windows)).tolist():
            yield number, self.windows[number].get()


def deal_windows(source: RowSource, tools: Tools) -> RowWindows:
    """Return the rows of a source that can be read again in windows; the
    same ones however it cuts its parts.

    Rows of a file that do not fit in one window are held by the crew. Raises BadParameter where the
    temporary directory has no room for them, Unavailable where it fills up. Memory: two windows,
    and a part of the source. Disk: 8 bytes a non-zero, 4 a label, 16 a row.
    """
    census = source.census
    in_memory = source.reads == "rows"
    n_windows = max(1, -(-census.n_entries // WINDOW_ENTRIES_MAX))
    parts = [all_rows(source)] if in_memory else parts_with_progress(source, tools.progress, STAGE)
    if n_windows == 1:
        return RowWindows([_SelectedRows(TrainingSet.join(list(parts)))], tools.seed)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if not in_memory and free < 8 * census.n_entries:
        raise _no_room(census, f"{free >> 20} MiB")
    random = np.random.Generator(np.random.PCG64(derived_seed(tools.seed, _DEAL)))
    pieces: list[list[HeldRows]] = [[] for _ in range(n_windows)]
    for data in _whole_windows(parts):
        # one draw a row: the same windows whatever the parts
        window = (random.random(data.n_rows) * n_windows).astype(np.int64)
        for number, of_window in enumerate(pieces):
            selection = _SelectedRows(data, np.flatnonzero(window == number))
            of_window.append(selection if in_memory else tools.crew.hold(selection.get()))
    return RowWindows([JoinedRows(tuple(of_window)) for of_window in pieces], tools.seed)


def _whole_windows(parts: Iterable[TrainingSet]) -> Iterator[TrainingSet]:
    """Yield the rows of parts, about as many at a time as a window has."""
    waiting: list[TrainingSet] = []
    for part in parts:
        waiting.append(part)
        if sum(piece.n_entries for piece in waiting) >= WINDOW_ENTRIES_MAX:
            yield TrainingSet.join(waiting)
            waiting = []
    if waiting:
        yield TrainingSet.join(waiting)


def at_hand(source: RowSource, progress: Progress) -> tuple[TrainingSet, bool]:
    """Return all rows of a source, and whether they are in a temporary file, mapped.

    So they are where they do not fit in one window: the system holds in memory what it has room
    for. Raises BadParameter where the temporary directory has no room. Disk: 8 bytes a non-zero, 4
    a label, 16 a row.
    """
    census = source.census
    if source.reads == "rows" or census.n_entries <= WINDOW_ENTRIES_MAX:
        parts = (
            [*source.parts()]
            if source.reads == "rows"
            else [*parts_with_progress(source, progress, STAGE)]
        )
        return TrainingSet.join(parts), False
    n_rows = census.n_rows
    n_carried = int(census.label_rows.sum())
    row_ptr = mapped(np.int64, n_rows + 1, census)
    label_ptr = mapped(np.int64, n_rows + 1, census)
    indices, values = (mapped(dtype, census.n_nonzeros, census) for dtype in (np.int32, np.float32))
    carried = mapped(np.int32, n_carried, census)
    n = 0
    nnz = 0
    of_labels = 0
    for rows, labels in parts_with_progress(source, progress, STAGE):
        ends = n + rows.n_rows, nnz + len(rows.indices), of_labels + len(labels.indices)
        if ends[0] > n_rows or ends[1] > len(indices) or ends[2] > n_carried:
            continue  # the file has grown, which its reader tells at the end
        row_ptr[n : ends[0] + 1] = nnz + rows.indptr
        label_ptr[n : ends[0] + 1] = of_labels + labels.indptr
        indices[nnz : ends[1]] = rows.indices
        values[nnz : ends[1]] = rows.values
        carried[of_labels : ends[2]] = labels.indices
        n, nnz, of_labels = ends
    all_labels = LabelRows(label_ptr, carried, len(census.label_rows))
    return TrainingSet(SparseRows(row_ptr, indices, values, census.n_features), all_labels), True


def mapped(dtype: DTypeLike, n: int, census: Census) -> NDArray[Any]:
    """Return an array in a file without a name, which goes with the array.

    Raises BadParameter: no room.
    """
    n_bytes = n * np.dtype(dtype).itemsize
    if not n:
        return np.empty(0, dtype)
    with tempfile.TemporaryFile() as file:
        try:
            # a full disk is an error here, not a signal later
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise _no_room(census, f"none left: {error.strerror}") from error
        return np.asarray(np.memmap(file, dtype, "r+", shape=n))


def _no_room(census: Census, room: str) -> BadParameter:
    needed = f"{8 * census.n_entries >> 20} MiB to shuffle the rows in {tempfile.gettempdir()}"
    return BadParameter(
        f"TMPDIR: expected room for {needed}, found {room}; name a larger directory"
    )
