"""Rows in windows that fit in memory, each row dealt to one of them by chance.

Trainers that take one row after the other learn badly from rows in an order, as by label: what comes last is
remembered best. So all rows are shuffled: each is dealt to a window, and the rows of a window are shuffled
anew for each pass. Rows in memory and rows that are read from a file are dealt alike, and train the same
bits. Rows of a file that do not fit in one window are written to a temporary file once, by window, which the
passes read.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from model_store.compiled.handles import I64
from service.base.errors import BadParameter
from service.base.rows import LabelRows, SparseRows, offsets
from service.trainers.source import Census, RowSource, TrainingSet, all_rows
from service.trainers.work import Progress, derived_seed

WINDOW_ENTRIES_MAX = 1 << 23
"""A window has about so many units of 8 bytes (`source.entries_of`): 64 MiB."""

STAGE = "shuffle"

_NO_ROOM = errno.ENOSPC, errno.EDQUOT, errno.EFBIG

_DEAL, _VISIT = 7, 8
"""What the seeds of dealing, and of the order of windows, are derived from besides the training's."""

_Deal = Callable[[int], I64]
"""Returns the windows of the next n rows."""


class RowWindows:
    """The rows of a source in windows, as often as needed; these are in memory."""

    def __init__(self, data: TrainingSet, deal: _Deal, n_windows: int, seed: int) -> None:
        self._data = data
        self._n_windows = n_windows
        self._seed = seed
        if n_windows > 1:
            self._order, self._ptr = _by_window(deal(data.n_rows), n_windows)

    def visit(self, epoch: int) -> Iterator[tuple[int, TrainingSet]]:
        """Yield the number and the rows of each window; windows have another order in each epoch."""
        random = np.random.Generator(np.random.PCG64(derived_seed(self._seed, _VISIT, epoch)))
        for number in random.permutation(self._n_windows).tolist():
            yield number, self.read(number)

    def read(self, number: int) -> TrainingSet:
        """Return the rows of a window, in the order of the source."""
        if self._n_windows == 1:
            return self._data
        return self._data.take(self._order[self._ptr[number] : self._ptr[number + 1]])


@contextmanager
def dealt(source: RowSource, seed: int, progress: Progress) -> Iterator[RowWindows]:
    """Give the rows of a source that can be read again in windows; the same ones however it cuts its parts.

    Raises BadParameter where the temporary directory has no room for rows that do not fit in one window.
    Memory: two windows, and a part of the source. Disk: 8 bytes a non-zero, 4 a label, 16 a row.
    """
    census = source.census
    n_windows = max(1, -(-census.n_entries // WINDOW_ENTRIES_MAX))
    random = np.random.Generator(np.random.PCG64(derived_seed(seed, _DEAL)))

    def deal(n_rows: int) -> I64:
        # one draw a row: the same windows whatever the parts
        return (random.random(n_rows) * n_windows).astype(np.int64)

    if source.reads == "rows":
        yield RowWindows(all_rows(source), deal, n_windows, seed)
        return
    parts = _told(source, progress)
    if n_windows == 1:
        yield RowWindows(TrainingSet.join(list(parts)), deal, 1, seed)
        return
    _check_room(census)
    with tempfile.TemporaryFile() as file:
        windows = _SpilledWindows(file, deal, n_windows, seed)
        try:
            windows.fill(parts)
            yield windows
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise _no_room(census, f"none left: {error.strerror}") from error


def _told(source: RowSource, progress: Progress) -> Iterator[TrainingSet]:
    """Yield the parts of a source and tell how far it is."""
    n_rows, total = 0, source.census.n_rows
    progress(STAGE, 0, total)
    for part in source.parts():
        yield part
        n_rows += part.n_rows
        progress(STAGE, n_rows, total)


def at_hand(source: RowSource, progress: Progress) -> tuple[TrainingSet, bool]:
    """Return all rows of a source, and whether they are in a temporary file, mapped.

    So they are where they do not fit in one window: the system holds in memory what it has room for. Raises
    BadParameter where the temporary directory has no room. Disk: 8 bytes a non-zero, 4 a label, 16 a row.
    """
    census = source.census
    if source.reads == "rows" or census.n_entries <= WINDOW_ENTRIES_MAX:
        parts = [*source.parts()] if source.reads == "rows" else [*_told(source, progress)]
        return TrainingSet.join(parts), False
    n_rows, n_carried = census.n_rows, int(census.label_rows.sum())
    row_ptr, label_ptr = mapped(np.int64, n_rows + 1, census), mapped(np.int64, n_rows + 1, census)
    indices, values = (mapped(dtype, census.n_nonzeros, census) for dtype in (np.int32, np.float32))
    carried = mapped(np.int32, n_carried, census)
    n, nnz, of_labels = 0, 0, 0
    for rows, labels in _told(source, progress):
        ends = n + rows.n_rows, nnz + len(rows.indices), of_labels + len(labels.indices)
        if ends[0] > n_rows or ends[1] > len(indices) or ends[2] > n_carried:
            continue  # the file has grown, which its reader tells at the end
        row_ptr[n : ends[0] + 1] = nnz + rows.indptr
        label_ptr[n : ends[0] + 1] = of_labels + labels.indptr
        indices[nnz : ends[1]], values[nnz : ends[1]] = rows.indices, rows.values
        carried[of_labels : ends[2]] = labels.indices
        n, nnz, of_labels = ends
    all_labels = LabelRows(label_ptr, carried, len(census.label_rows))
    return TrainingSet(SparseRows(row_ptr, indices, values, census.n_features), all_labels), True


def mapped(dtype: DTypeLike, n: int, census: Census) -> NDArray[Any]:
    """Return an array in a file without a name, which goes with the array. Raises BadParameter: no room."""
    n_bytes = n * np.dtype(dtype).itemsize
    if not n:
        return np.empty(0, dtype)
    with tempfile.TemporaryFile() as file:
        try:
            os.posix_fallocate(file.fileno(), 0, n_bytes)  # a full disk is an error here, not a signal later
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise _no_room(census, f"none left: {error.strerror}") from error
        return np.asarray(np.memmap(file, dtype, "r+", shape=n))


class _Piece(NamedTuple):
    """Rows of a window that stand together in the file: where they begin, and how many there are."""

    at: int
    n_rows: int
    n_nonzeros: int
    n_carried: int


class _SpilledWindows(RowWindows):
    """Windows in a file without a name, which ends with the process whatever ends it."""

    def __init__(self, file: IO[bytes], deal: _Deal, n_windows: int, seed: int) -> None:
        self._n_windows = n_windows
        self._seed = seed
        self._file = file
        self._deal = deal
        self._pieces: list[list[_Piece]] = [[] for _ in range(n_windows)]
        self._sizes = 0, 0

    def fill(self, parts: Iterator[TrainingSet]) -> None:
        """Write all rows."""
        waiting: list[TrainingSet] = []
        n_entries = 0
        for part in parts:
            waiting.append(part)
            n_entries += part.n_entries
            if n_entries >= WINDOW_ENTRIES_MAX:
                self._write(TrainingSet.join(waiting))
                waiting, n_entries = [], 0
        if waiting:
            self._write(TrainingSet.join(waiting))

    def _write(self, data: TrainingSet) -> None:
        order, ptr = _by_window(self._deal(data.n_rows), len(self._pieces))
        data = data.take(order)
        self._sizes = data.rows.n_features, data.labels.n_labels
        for number in np.flatnonzero(np.diff(ptr)).tolist():
            rows, labels = data.cut(int(ptr[number]), int(ptr[number + 1]))
            at = self._file.tell()
            for array in (rows.indptr, rows.indices, rows.values, labels.indptr, labels.indices):
                self._file.write(array.data)
            piece = _Piece(at, rows.n_rows, len(rows.indices), len(labels.indices))
            self._pieces[number].append(piece)

    def read(self, number: int) -> TrainingSet:
        """Return the rows of a window."""
        return TrainingSet.join([self._piece(piece) for piece in self._pieces[number]] or [self._nothing()])

    def _piece(self, piece: _Piece) -> TrainingSet:
        self._file.seek(piece.at)
        rows = SparseRows(
            self._array(np.int64, piece.n_rows + 1),
            self._array(np.int32, piece.n_nonzeros),
            self._array(np.float32, piece.n_nonzeros),
            self._sizes[0],
        )
        indptr = self._array(np.int64, piece.n_rows + 1)
        return TrainingSet(rows, LabelRows(indptr, self._array(np.int32, piece.n_carried), self._sizes[1]))

    def _array(self, dtype: DTypeLike, n: int) -> NDArray[Any]:
        return np.fromfile(self._file, dtype, n)

    def _nothing(self) -> TrainingSet:
        none, ids = np.zeros(1, np.int64), np.empty(0, np.int32)
        rows = SparseRows(none, ids, np.empty(0, np.float32), self._sizes[0])
        return TrainingSet(rows, LabelRows(none, ids, self._sizes[1]))


def _by_window(window: I64, n_windows: int) -> tuple[I64, I64]:
    """Return the rows by window, ascending in each, and where those of each window begin."""
    return np.argsort(window, kind="stable"), offsets(np.bincount(window, minlength=n_windows))


def _check_room(census: Census) -> None:
    """Raise BadParameter where the temporary directory has no room for the rows."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < 8 * census.n_entries:
        raise _no_room(census, f"{free >> 20} MiB")


def _no_room(census: Census, found: str) -> BadParameter:
    wanted = f"{8 * census.n_entries >> 20} MiB to shuffle the rows in {tempfile.gettempdir()}"
    return BadParameter(f"TMPDIR: expected room for {wanted}, found {found}; name a larger directory")
