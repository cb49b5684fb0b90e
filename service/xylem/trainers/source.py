"""What a training works with: labelled rows, in memory or read
again; a seed, and who runs its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, Crew, Held, LabelRows, R, SparseRows, Step, T
from xylem.trainers.state import EVERY_PASS, Passes
from xylem_store import I32, I64, TreeEnsemble

Reads = Literal["rows", "passes", "once"]
"""How rows are read: all at hand, from the first to the last as often as needed, or
as they come.
"""


class TrainingSet(NamedTuple):
    """Instances and their labels; rows without features or labels, and unused labels,
    are allowed.
    """

    rows: SparseRows
    labels: LabelRows

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self.labels.n_rows

    @property
    def n_entries(self) -> int:
        """Return how much memory the rows take, in units of 8 bytes: see `entries_of`."""
        return entries_of(self.n_rows, len(self.rows.indices), len(self.labels.indices))

    @staticmethod
    def join(parts: Sequence[TrainingSet]) -> TrainingSet:
        """Return the rows of all parts, one at least, one after the other."""
        return TrainingSet(
            SparseRows.join([part.rows for part in parts]),
            LabelRows.join([part.labels for part in parts]),
        )

    def cut(self, first: int, last: int) -> TrainingSet:
        """Return rows first .. last - 1, as views where possible."""
        return TrainingSet(self.rows.cut(first, last), self.labels.cut(first, last))

    def take(self, chosen: NDArray[Any]) -> TrainingSet:
        """Return the rows at these positions, in their order."""
        return TrainingSet(self.rows.take(chosen), self.labels.take(chosen))


HeldRows = Held[TrainingSet]
"""Rows that stay where they were put until they are wanted."""


class JoinedRows(NamedTuple):
    """Rows that are held in parts."""

    parts: tuple[HeldRows, ...]

    def get(self) -> TrainingSet:
        """Return the rows, first part first."""
        return TrainingSet.join([part.get() for part in self.parts])


def entries_of(n_rows: int, n_nonzeros: int, n_carried: int) -> int:
    """Return the memory of rows in units of 8 bytes: a feature and
    its value; a label takes half of it.
    """
    return n_nonzeros + n_carried + 2 * n_rows


OnRows = Callable[[TreeEnsemble, TrainingSet], None]
"""Called with the model so far, and rows that it has not learnt
from, in the order in which it will.
"""


class Census(NamedTuple):
    """What is counted of all rows.

    n_rows, n_features, n_nonzeros
    n_labelled      rows that carry a label
    label_rows      int64[K]  rows that carry each label
    label_nonzeros  int64[K]  non-zeros of these rows
    """

    n_rows: int
    n_features: int
    n_nonzeros: int
    n_labelled: int
    label_rows: I64
    label_nonzeros: I64

    @property
    def n_entries(self) -> int:
        """Return how much memory all rows would take, in units of 8 bytes."""
        return entries_of(self.n_rows, self.n_nonzeros, int(self.label_rows.sum()))

    def check_labelled(self) -> None:
        """Raise BadData where no row carries a label."""
        if not self.n_labelled:
            raise BadData(f"expected rows with labels, found none in {self.n_rows} rows")


class RowSource(Protocol):
    """Rows with their labels: the same rows in the same order each time that they are read."""

    @property
    def reads(self) -> Reads:
        """Return how the rows can be read; what is held in memory can be read in each way."""

    @property
    def census(self) -> Census:
        """Return the counts of all rows; of rows that are seen
        once, when the last of them has been.
        """

    @property
    def final_ids(self) -> I32 | None:
        """Return the final id of each label of rows that are seen
        once, when the last of them has been.

        Their parts number labels by first appearance; None: ids are final.
        """

    def parts(self) -> Iterator[TrainingSet]:
        """Yield all rows, from the first to the last, some at a
        time; how many is the source's affair.
        """


class MemorySource:
    """The rows of a training set."""

    reads: Reads = "rows"
    final_ids = None

    def __init__(self, data: TrainingSet) -> None:
        self.data = data

    @cached_property
    def census(self) -> Census:
        """Return the counts of all rows."""
        return count(self.data)

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the set as it is."""
        yield self.data


def all_rows(source: RowSource) -> TrainingSet:
    """Return the rows of a source in memory."""
    return TrainingSet.join(list(source.parts()))


def count(data: TrainingSet) -> Census:
    """Return the counts of a training set."""
    rows, labels = data
    of_row = np.repeat(np.diff(rows.indptr), np.diff(labels.indptr))
    return Census(
        n_rows=rows.n_rows,
        n_features=rows.n_features,
        n_nonzeros=len(rows.indices),
        n_labelled=int(np.count_nonzero(np.diff(labels.indptr))),
        label_rows=np.bincount(labels.indices, minlength=labels.n_labels).astype(np.int64),
        label_nonzeros=np.bincount(labels.indices, of_row, labels.n_labels).astype(np.int64),
    )


def check_training_set(data: TrainingSet) -> None:
    """Raise BadData when rows and labels disagree, no row carries
    a label, or a value is not finite.
    """
    n_rows = data.rows.n_rows
    n_labelled = data.labels.n_rows
    if n_rows != n_labelled:
        raise BadData(f"expected labels for {n_rows} rows, found them for {n_labelled}")
    if not len(data.labels.indices):
        raise BadData(f"expected rows with labels, found none in {n_rows} rows")
    wrong = np.flatnonzero(~np.isfinite(data.rows.values))
    if len(wrong):
        row = int(np.searchsorted(data.rows.indptr, wrong[0], "right")) - 1
        raise BadData(f"row {row}: expected finite values, found {data.rows.values[wrong[0]]}")


Progress = Callable[[str, int, int], None]
"""Called in the caller's thread with (stage, units done, units in all)."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def parts_with_progress(source: RowSource, progress: Progress, stage: str) -> Iterator[TrainingSet]:
    """Yield the parts of a source and tell how far it is."""
    n_rows = 0
    total = source.census.n_rows
    progress(stage, 0, total)
    for part in source.parts():
        yield part
        n_rows += part.n_rows
        progress(stage, n_rows, total)


def derived_seed(*words: int) -> int:
    """Return a seed of 63 bits that depends on all the words: the user's seed, then
    what it is for.
    """
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


@dataclass(frozen=True)
class Tools:
    """What a training, or a part of it, works with.

    seed      the same data, parameters and seed give the same bits, whatever the number of threads
    crew      who runs its steps
    progress  is told how far it is
    on_rows   is shown rows of the first pass before they are learnt, by a trainer that shows them
    passes    which of them are made, by a trainer that keeps a state
    """

    seed: int = 0
    crew: Crew = field(default_factory=lambda: Crew(1))
    progress: Progress = no_progress
    on_rows: OnRows | None = None
    passes: Passes = EVERY_PASS

    def seeded(self, *words: int) -> Tools:
        """Return the same with a seed of its own for a part of the work."""
        return replace(self, seed=derived_seed(self.seed, *words))

    def collect(self, stage: str, step: Step[T, R], items: Sequence[T]) -> list[R]:
        """Return the results of a step in the order of the items,
        and tell how many there are so far.
        """
        results: dict[T, R] = {}

        def done(item: T, result: R) -> None:
            results[item] = result
            self.progress(stage, len(results), len(items))

        self.crew.steps(step, items, done)
        return [results[item] for item in items]

    def of_tree(self, tree: int, n_trees: int) -> Tools:
        """Return what a tree of several is trained with: its number follows the name
        of each stage.
        """
        part = self.seeded(tree)
        progress = self.progress
        if n_trees == 1:
            return part
        tree_name = f"tree {tree + 1} of {n_trees}"
        return replace(
            part, progress=lambda stage, done, total: progress(f"{stage}, {tree_name}", done, total)
        )
