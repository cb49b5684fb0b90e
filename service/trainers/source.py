"""Labelled rows that are read from front to back, as often as a trainer needs, and need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import TreeEnsemble
from service.rows import LabelRows, SparseRows
from service.trainers.spec import TrainingSet

WINDOW_ENTRIES_MAX = 1 << 23
"""Rows are held, shuffled and trained on in windows of about so many non-zeros and labels at most."""

_ENTRY_BYTES, _ROW_BYTES = 8, 16


class Census(NamedTuple):
    """What is counted before training.

    n_rows, n_features, n_nonzeros
    n_labelled      rows that carry a label
    label_rows      int64[K]  rows that carry each label
    label_nonzeros  int64[K]  non-zeros of these rows
    """

    n_rows: int
    n_features: int
    n_nonzeros: int
    n_labelled: int
    label_rows: NDArray[np.int64]
    label_nonzeros: NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What a training will take, known before it begins.

    rows, epochs   the rows are read at most so many times, in memory those of a node
    steps          an upper bound on how often a value of a row meets a weight: some 1e8 a second and thread
    weights        an upper bound on the numbers that are trained
    training_bytes in memory, what training takes besides the rows; of a stream, what the weights and the rows
                   of two windows take: a part of the file that is being read, the trees and the label names
                   come on top
    model_bytes    an upper bound on the model; building and writing it takes as much again
    capped         whether there is no room for all weights: features that a node meets late are left out
    """

    rows: int
    epochs: int
    steps: int
    weights: int
    training_bytes: int
    model_bytes: int
    capped: bool


OnPlan = Callable[[Plan], None]
"""Called once, before the first row is trained on."""


def no_plan(plan: Plan) -> None:
    """Say nothing."""


OnRows = Callable[[TreeEnsemble, TrainingSet], None]
"""Called with the model so far, and rows that it has not learnt from, in the order in which it will."""


class RowSource(Protocol):
    """Rows with their labels, the same rows in the same order each time."""

    @property
    def census(self) -> Census:
        """Return the counts of all rows."""

    def parts(self) -> Iterator[TrainingSet]:
        """Yield all rows, from the first to the last, some at a time; how many is the source's affair."""


class MemorySource:
    """The rows of a training set."""

    def __init__(self, data: TrainingSet) -> None:
        self._data = data
        self.census = count(data)

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the set as it is."""
        yield self._data


def count(data: TrainingSet) -> Census:
    """Return the counts of a training set."""
    rows, labels = data
    of_row = np.repeat(np.diff(rows.indptr), np.diff(labels.indptr))
    return Census(
        rows.n_rows,
        rows.n_features,
        len(rows.indices),
        int(np.count_nonzero(np.diff(labels.indptr))),
        np.bincount(labels.indices, minlength=labels.n_labels).astype(np.int64),
        np.bincount(labels.indices, of_row, labels.n_labels).astype(np.int64),
    )


def window_bytes(census: Census, rows_max: int) -> int:
    """Return what two windows of rows take in memory at most."""
    entries = min(WINDOW_ENTRIES_MAX, census.n_nonzeros + int(census.label_rows.sum()))
    return 2 * (entries * _ENTRY_BYTES + min(rows_max, census.n_rows) * _ROW_BYTES)


def windows(source: RowSource, rows_max: int, entries_max: int = WINDOW_ENTRIES_MAX) -> Iterator[TrainingSet]:
    """Yield the rows of a source in runs whose bounds do not depend on how the source cuts its parts.

    A window ends when it has rows_max rows, or entries_max non-zeros and labels together or more. Memory: two
    windows and a part of the source.
    """
    waiting: list[TrainingSet] = []
    n_rows = n_entries = 0
    for part in source.parts():
        waiting.append(part)
        n_rows += part.rows.n_rows
        n_entries += len(part.rows.indices) + len(part.labels.indices)
        if n_rows < rows_max and n_entries < entries_max:
            continue
        whole = _joined(waiting)
        start = 0
        while (stop := _end(whole, start, rows_max, entries_max)) is not None:
            yield _cut(whole, start, stop)
            start = stop
        rest = _cut(whole, start, whole.rows.n_rows)
        waiting = [_copied(rest)] if start < whole.rows.n_rows else []
        n_rows = rest.rows.n_rows
        n_entries = len(rest.rows.indices) + len(rest.labels.indices)
    if waiting:
        yield _joined(waiting)


def _end(data: TrainingSet, start: int, rows_max: int, entries_max: int) -> int | None:
    """Return where the window that begins at `start` ends; None when the rows at hand do not fill it."""
    entries = data.rows.indptr + data.labels.indptr
    full = int(np.searchsorted(entries, entries[start] + entries_max))
    end = min(full, start + rows_max)
    return end if end <= data.rows.n_rows else None


def _joined(parts: list[TrainingSet]) -> TrainingSet:
    if len(parts) == 1:
        return parts[0]
    return TrainingSet(
        SparseRows(
            _offsets([part.rows.indptr for part in parts]),
            np.concatenate([part.rows.indices for part in parts]),
            np.concatenate([part.rows.values for part in parts]),
            parts[0].rows.n_features,
        ),
        LabelRows(
            _offsets([part.labels.indptr for part in parts]),
            np.concatenate([part.labels.indices for part in parts]),
            parts[0].labels.n_labels,
        ),
    )


def _offsets(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))])


def _cut(data: TrainingSet, start: int, stop: int) -> TrainingSet:
    """Return rows start .. stop - 1, as views where possible."""
    rows, labels = data
    of_rows, of_labels = rows.indptr[start : stop + 1], labels.indptr[start : stop + 1]
    entries, carried = slice(of_rows[0], of_rows[-1]), slice(of_labels[0], of_labels[-1])
    return TrainingSet(
        SparseRows(of_rows - of_rows[0], rows.indices[entries], rows.values[entries], rows.n_features),
        LabelRows(of_labels - of_labels[0], labels.indices[carried], labels.n_labels),
    )


def _copied(data: TrainingSet) -> TrainingSet:
    """Return rows that do not keep larger arrays alive."""
    rows, labels = data
    return TrainingSet(
        SparseRows(rows.indptr, rows.indices.copy(), rows.values.copy(), rows.n_features),
        LabelRows(labels.indptr, labels.indices.copy(), labels.n_labels),
    )
